//! How `index: false` and `follow: false` are enforced beyond the header (options `enforce_index`, `enforce_follow`): what
//! is changed in a document for crawlers that read no `X-Robots-Tag`. Each level has those before it: who strips also says
//! so in the document.

use http::response::Parts;

use crate::policy::Policy;
use crate::policy::options::schema::STRIP_WORD;
use crate::policy::options::{OptionValue, schema};

use super::evaluation::Evaluation;
use super::header_effects::RobotsTag;
use super::stage::content::{BodyType, body_type};

const META: &str = "meta";

/// Whether anything in a policy ever changes a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RewriteNeed {
    /// Nothing does: every document is passed on as it came.
    #[default]
    Never,
    /// An option asks for more than the header.
    Possible,
}

impl RewriteNeed {
    /// Looks through the options of a policy, wherever they are set.
    pub fn from_policy(policy: &Policy) -> Self {
        let beyond = |slot| {
            policy.possible_values(slot).any(|(_, value)| {
                *value == OptionValue::Word(META) || *value == OptionValue::Word(STRIP_WORD)
            })
        };
        let off = |slot| {
            policy
                .possible_values(slot)
                .any(|(_, value)| *value == OptionValue::Bool(false))
        };
        let index = off(schema::INDEX) && beyond(schema::ENFORCE_INDEX);
        let follow = off(schema::FOLLOW) && beyond(schema::ENFORCE_FOLLOW);
        if index || follow {
            Self::Possible
        } else {
            Self::Never
        }
    }
}

/// What becomes of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkHandling {
    /// They stay.
    Keep,
    /// They lead nowhere.
    Strip,
}

/// What becomes of everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextHandling {
    /// It stays.
    Keep,
    /// It is left out: a body of links only.
    Strip,
}

/// What is changed in one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentRewrite {
    /// What the document says to crawlers in `<meta name="robots">`.
    pub robots_meta: RobotsTag,
    /// Its links.
    pub links: LinkHandling,
    /// Its text.
    pub text: TextHandling,
}

impl DocumentRewrite {
    /// Whether something has to be gone before the document may be passed on.
    pub fn is_stripping(self) -> bool {
        self.links == LinkHandling::Strip || self.text == TextHandling::Strip
    }
}

/// What is changed in the body that goes with this head, as far as the policy is heard by now: only HTML of a 2xx answer to
/// a GET; the head of an answer to HEAD says the same.
pub(crate) fn plan(evaluation: &Evaluation, head: &Parts) -> Option<DocumentRewrite> {
    if evaluation.snapshot().rewrite_need == RewriteNeed::Never
        || evaluation.facts().reads_robots_txt()
    {
        return None;
    }
    if body_type(&evaluation.facts().method, head) != BodyType::Html {
        return None;
    }
    let (policy, trail) = (evaluation.policy(), evaluation.trail());
    let level = |flag, slot| {
        trail
            .word(policy, slot)
            .filter(|_| !trail.is_on(policy, flag))
    };
    let index = level(schema::INDEX, schema::ENFORCE_INDEX);
    let follow = level(schema::FOLLOW, schema::ENFORCE_FOLLOW);
    let says = |level| matches!(level, Some(META | STRIP_WORD));
    let says = match (says(index), says(follow)) {
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
        robots_meta: says,
        links,
        text,
    })
}
