//! The enforcement of `index: false` and `follow: false` beyond the header (options `enforce_index`, `enforce_follow`):
//! what is changed in a document for crawlers that do not read `X-Robots-Tag`. Each level includes those before it:
//! `strip` also adds the meta element. `noindex: links` and `duplicate: links` are `index: false` with `strip`.

use http::response::Parts;

use crate::policy::Policy;
use crate::policy::options::schema::STRIP_WORD;
use crate::policy::options::{OptionIndex, OptionValue, schema};

use super::evaluation::Evaluation;
use super::header_effects::RobotsTag;
use super::stage::response::{BodyType, body_type};

const META: &str = "meta";

/// A policy's need to change documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RewriteNeed {
    /// Every document is passed on unchanged.
    #[default]
    Never,
    /// An option requires more than the header.
    Possible,
}

impl RewriteNeed {
    /// Searches all options of a policy.
    pub fn from_policy(policy: &Policy) -> Self {
        let index = may_be_off(policy, schema::INDEX) && may_rewrite(policy, schema::ENFORCE_INDEX);
        let follow =
            may_be_off(policy, schema::FOLLOW) && may_rewrite(policy, schema::ENFORCE_FOLLOW);
        if index || follow || policy.ever_gives_links() {
            Self::Possible
        } else {
            Self::Never
        }
    }
}

/// Returns `true` if a rule, or the document's options, turn a flag off.
pub(super) fn may_be_off(policy: &Policy, flag: OptionIndex) -> bool {
    policy
        .possible_values(flag)
        .any(|(_, value)| *value == OptionValue::Bool(false))
}

fn may_rewrite(policy: &Policy, level: OptionIndex) -> bool {
    policy.possible_values(level).any(|(_, value)| {
        *value == OptionValue::Word(META) || *value == OptionValue::Word(STRIP_WORD)
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkHandling {
    /// They stay.
    Keep,
    /// They are removed.
    Strip,
}

/// The handling of all other content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextHandling {
    /// It stays.
    Keep,
    /// It is removed, which leaves a body of links.
    Strip,
}

/// The changes to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentRewrite {
    /// The content of `<meta name="robots">`.
    pub robots_meta: RobotsTag,
    /// The handling of its links.
    pub links: LinkHandling,
    /// The handling of its text.
    pub text: TextHandling,
}

impl DocumentRewrite {
    /// Returns `true` if something must be removed before the document may be passed on.
    pub fn is_stripping(self) -> bool {
        self.links == LinkHandling::Strip || self.text == TextHandling::Strip
    }
}

/// Returns the changes to the body of this head, as far as the policy has been evaluated: only for HTML of a 2xx
/// response to a GET. The response to a HEAD gets the same header.
pub(crate) fn plan(evaluation: &Evaluation, head: &Parts) -> Option<DocumentRewrite> {
    if evaluation.snapshot().rewrite_need == RewriteNeed::Never
        || evaluation.facts().reads_robots_txt()
    {
        return None;
    }
    if body_type(&evaluation.facts().method, head) != BodyType::Html {
        return None;
    }
    let index = enforcement_level(evaluation, schema::INDEX, schema::ENFORCE_INDEX);
    let follow = enforcement_level(evaluation, schema::FOLLOW, schema::ENFORCE_FOLLOW);
    let robots_meta = match (has_meta(index), has_meta(follow)) {
        (true, true) => RobotsTag::Neither,
        (true, false) => RobotsTag::NoIndex,
        (false, true) => RobotsTag::NoFollow,
        (false, false) => return None,
    };
    let links = if follow == Some(STRIP_WORD) {
        LinkHandling::Strip
    } else {
        LinkHandling::Keep
    };
    let text = if index == Some(STRIP_WORD) {
        TextHandling::Strip
    } else {
        TextHandling::Keep
    };
    Some(DocumentRewrite {
        robots_meta,
        links,
        text,
    })
}

/// Returns the level at which a flag that is off is enforced.
fn enforcement_level(
    evaluation: &Evaluation,
    flag: OptionIndex,
    level: OptionIndex,
) -> Option<&'static str> {
    let trail = evaluation.trail();
    trail
        .word(evaluation.policy(), level)
        .filter(|_| !trail.is_on(evaluation.policy(), flag))
}

fn has_meta(level: Option<&str>) -> bool {
    matches!(level, Some(META | STRIP_WORD))
}
