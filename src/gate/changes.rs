//! How `index: false` and `follow: false` are enforced beyond the header (options `enforce_index`, `enforce_follow`): what
//! is changed in a document for crawlers that read no `X-Robots-Tag`. Each level has those before it: who strips also says
//! so in the document.

use http::response::Parts;

use crate::policy::Policy;
use crate::policy::options::schema::STRIP;
use crate::policy::options::{Value, schema};

use super::effects::RobotsTag;
use super::judged::Judged;
use super::stage::content::{Type, type_of};

const META: &str = "meta";

/// Whether anything in a policy ever changes a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MayChange {
    /// Nothing does: every document is passed on as it came.
    #[default]
    Never,
    /// An option asks for more than the header.
    Perhaps,
}

impl MayChange {
    /// Looks through the options of a policy, wherever they are set.
    pub fn of(policy: &Policy) -> Self {
        let beyond = |slot| {
            policy
                .values_of(slot)
                .any(|(_, value)| *value == Value::Word(META) || *value == Value::Word(STRIP))
        };
        let off = |slot| {
            policy
                .values_of(slot)
                .any(|(_, value)| *value == Value::Bool(false))
        };
        let index = off(schema::INDEX) && beyond(schema::ENFORCE_INDEX);
        let follow = off(schema::FOLLOW) && beyond(schema::ENFORCE_FOLLOW);
        if index || follow {
            Self::Perhaps
        } else {
            Self::Never
        }
    }
}

/// What becomes of links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// They stay.
    Kept,
    /// They lead nowhere.
    Stripped,
}

/// What becomes of everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// It stays.
    Kept,
    /// It is left out: a body of links only.
    Stripped,
}

/// What is changed in one document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changes {
    /// What the document says to crawlers in `<meta name="robots">`.
    pub says: RobotsTag,
    /// Its links.
    pub links: Links,
    /// Its text.
    pub text: Text,
}

impl Changes {
    /// Whether something has to be gone before the document may be passed on.
    pub fn strips(self) -> bool {
        self.links == Links::Stripped || self.text == Text::Stripped
    }
}

/// What is changed in the body that goes with this head, as far as the policy is heard by now: only HTML of a 2xx answer to
/// a GET; the head of an answer to HEAD says the same.
pub(in crate::gate) fn of<C>(judged: &Judged<C>, head: &Parts) -> Option<Changes> {
    if judged.snapshot.changes == MayChange::Never || judged.asked.reads_robots_txt() {
        return None;
    }
    if type_of(&judged.asked.method, head) != Type::Html {
        return None;
    }
    let (policy, trail) = (judged.policy(), &judged.trail);
    let level = |flag, slot| {
        trail
            .word(policy, slot)
            .filter(|_| !trail.is_on(policy, flag))
    };
    let index = level(schema::INDEX, schema::ENFORCE_INDEX);
    let follow = level(schema::FOLLOW, schema::ENFORCE_FOLLOW);
    let says = |level| matches!(level, Some(META | STRIP));
    let says = match (says(index), says(follow)) {
        (true, true) => RobotsTag::Neither,
        (true, false) => RobotsTag::NoIndex,
        (false, true) => RobotsTag::NoFollow,
        (false, false) => return None,
    };
    let links = if follow == Some(STRIP) {
        Links::Stripped
    } else {
        Links::Kept
    };
    let text = if index == Some(STRIP) {
        Text::Stripped
    } else {
        Text::Kept
    };
    Some(Changes { says, links, text })
}
