//! Rules, compiled: a tree laid out flat, parents before children, in document order (policy.md section 2).

use crate::vocab::intent::Intent;
use crate::vocab::rule_id::RuleId;
use crate::vocab::stage::Stage;

use super::condition::{Condition, Truth};
use super::options::Assignment;

/// The stages at which a policy is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyStage {
    /// URL, method, crawler, depth, referer, dest.
    Request,
    /// The address that would be dialled.
    Destination,
    /// The response head.
    Response,
    /// The first bytes of the document: of a GET answered with 2xx, in HTML or text.
    Document,
}

impl PolicyStage {
    /// Every stage, in order.
    pub const ALL: [Self; 4] = [
        Self::Request,
        Self::Destination,
        Self::Response,
        Self::Document,
    ];

    /// The word used in a policy.
    pub fn as_str(self) -> &'static str {
        self.stage().as_str()
    }

    /// Reads the word used in a policy.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == word)
    }

    /// The same stage in the path of a request.
    pub fn stage(self) -> Stage {
        match self {
            Self::Request => Stage::Request,
            Self::Destination => Stage::Destination,
            Self::Response => Stage::Response,
            Self::Document => Stage::Document,
        }
    }
}

/// A set of policy stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageSet(u8);

impl StageSet {
    /// Adds a stage.
    pub fn insert(&mut self, stage: PolicyStage) {
        self.0 |= 1 << stage as u8;
    }

    /// Adds the stages of another set.
    pub fn unite(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Whether the stage is in the set.
    pub fn contains(self, stage: PolicyStage) -> bool {
        self.0 & (1 << stage as u8) != 0
    }
}

/// A rule's place in [`super::Policy::rules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleIndex(pub u32);

/// Whether a rule takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It does.
    Enforce,
    /// It, or a rule around it, has `mode: shadow`: for the live policy it is absent.
    Shadow,
    /// It, or a rule around it, has `enabled: false`, or a condition that could not be compiled
    /// (`on_invalid_rule: disable`).
    Disabled,
}

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// Its id, or its position: `rules.3.1`.
    pub id: RuleId,
    /// The text shown by explain and in the reason.
    pub about: Option<Box<str>>,
    /// Whether it takes part.
    pub mode: Mode,
    /// The group it stands in.
    pub parent: Option<RuleIndex>,
    /// The place after the last rule that it contains; its children begin right behind itself.
    pub end: RuleIndex,
    /// The first stage at which it may run: its own `stage`, that of a group around it, or that of the
    /// `match: first` list it stands in; else the request.
    pub floor: PolicyStage,
    /// The stage at which every fact that it and the groups around it name is known. A group runs here; a filter
    /// here or as soon as it is decided.
    pub stage: PolicyStage,
    /// When it runs instead if response headers give what else the document says.
    pub by_headers: Option<ByHeaders>,
    /// From the response stage on it judges only 2xx with content: it names `content_type` or `size`, and neither
    /// it nor a group around it names `status` or a header.
    pub content_only: bool,
    /// The stages at which it, or a rule that it contains, could do something. Rules in shadow count among themselves
    /// only.
    pub active: StageSet,
    /// Which part it has in the code of a refusal.
    pub class: RuleClass,
    /// What it is.
    pub body: RuleBody,
}

/// The kinds of rule that a crawl space tells apart when it refuses a URL of the ledger (policy.md section 6, after
/// OmniFind).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleClass {
    /// It, and the groups around it, name no field but `host`, `authority` and `port`.
    Domain,
    /// It counts as a prefix or address rule.
    Other,
}

impl Rule {
    /// Its condition; `None` of a group that has none.
    pub fn condition(&self) -> Option<&Condition> {
        match &self.body {
            RuleBody::Filter(filter) => Some(&filter.condition),
            RuleBody::Group(group) => match &group.guard {
                Guard::When(condition) | Guard::Unless(condition) => Some(condition),
                Guard::Always => None,
            },
        }
    }

    /// The key under which its condition stands; `None` of a group that has none.
    pub fn key(&self) -> Option<&'static str> {
        match &self.body {
            RuleBody::Filter(filter) => Some(match filter.sense {
                Sense::Forbid => "forbid",
                Sense::Require => "require",
            }),
            RuleBody::Group(group) => match &group.guard {
                Guard::When(_) => Some("when"),
                Guard::Unless(_) => Some("unless"),
                Guard::Always => None,
            },
        }
    }

    /// The value of its condition with which it neither applies nor filters.
    pub fn indifferent(&self) -> Truth {
        match self.key() {
            Some("unless" | "require") => Truth::Yes,
            Some(_) | None => Truth::No,
        }
    }
}

/// When a rule runs that names what a response header may give (policy.md section 4: such a rule runs at both stages).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByHeaders {
    /// [`Rule::floor`] if these are given.
    pub floor: (HeaderFields, PolicyStage),
    /// [`Rule::stage`] if these are given.
    pub stage: (HeaderFields, PolicyStage),
}

/// Which of the fields that a response header or else the document gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderFields {
    /// `meta_robots`.
    pub meta_robots: bool,
    /// `canonical`.
    pub canonical: bool,
}

impl HeaderFields {
    /// Those of both.
    pub fn union(self, other: Self) -> Self {
        Self {
            meta_robots: self.meta_robots || other.meta_robots,
            canonical: self.canonical || other.canonical,
        }
    }
}

/// The two kinds of rule.
#[derive(Debug)]
pub enum RuleBody {
    /// Applies options and contains rules.
    Group(Group),
    /// Filters URLs.
    Filter(Filter),
}

/// `when`, `unless`, or neither.
#[derive(Debug)]
pub struct Group {
    /// When it applies.
    pub guard: Guard,
    /// What `then` and `set` assign, in that order; one entry an option.
    pub assign: Box<[Assignment]>,
    /// Whether it ends the list in which its outermost parent stands, for its stage.
    pub stop: bool,
    /// How its direct children are processed.
    pub order: ChildOrder,
}

/// Which direct children of a group are processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildOrder {
    /// All of them.
    All,
    /// `match: first`: only the first that applies. All of them run at this stage, if it is the document's perhaps at
    /// the response's.
    First(PolicyStage),
}

/// When a group applies.
#[derive(Debug)]
pub enum Guard {
    /// Always.
    Always,
    /// If the condition holds.
    When(Condition),
    /// If it does not.
    Unless(Condition),
}

/// `forbid` or `require`.
#[derive(Debug)]
pub struct Filter {
    /// Which of the two.
    pub sense: Sense,
    /// Its condition.
    pub condition: Condition,
    /// Whether a URL that it filters is recorded.
    pub log: bool,
    /// `reject`: the intent of its rejections.
    pub reject: Option<Intent>,
    /// `reject_status`: a wire status of its own.
    pub reject_status: Option<u16>,
    /// `as`: the page is an error with this status, whatever the origin says.
    pub soft_error: Option<u16>,
}

/// The two kinds of filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sense {
    /// Filters if the condition holds.
    Forbid,
    /// Filters if the condition does not hold.
    Require,
}
