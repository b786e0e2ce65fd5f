//! Rules, compiled: a tree laid out flat, parents before children, in document order (policy.md section 2).

use crate::model::intent::Intent;
use crate::model::rule_id::RuleId;
use crate::model::stage::Stage;

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
        self.to_stage().as_str()
    }

    /// Reads the word used in a policy.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.as_str() == word)
    }

    /// The same stage in the path of a request.
    pub fn to_stage(self) -> Stage {
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
    pub fn insert_all(&mut self, other: Self) {
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
pub enum EnforcementMode {
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
    pub mode: EnforcementMode,
    /// The group it stands in.
    pub parent: Option<RuleIndex>,
    /// The place after the last rule that it contains; its children begin right behind itself.
    pub end: RuleIndex,
    /// The first stage at which it may run: its own `stage`, that of a group around it, or that of the
    /// `match: first` list it stands in; else the request.
    pub earliest_stage: PolicyStage,
    /// The stage at which every fact that it and the groups around it name is known. A group runs here; a filter
    /// here or as soon as it is decided.
    pub stage: PolicyStage,
    /// When it runs instead if response headers give what else the document says.
    pub header_stages: Option<HeaderStages>,
    /// From the response stage on it judges only 2xx with content: it names `content_type` or `size`, and neither
    /// it nor a group around it names `status` or a header.
    pub content_only: bool,
    /// The stages at which it, or a rule that it contains, could do something. Rules in shadow count among themselves
    /// only.
    pub active_stages: StageSet,
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
                GroupGuard::When(condition) | GroupGuard::Unless(condition) => Some(condition),
                GroupGuard::Always => None,
            },
        }
    }

    /// The key under which its condition stands; `None` of a group that has none.
    pub fn condition_key(&self) -> Option<&'static str> {
        match &self.body {
            RuleBody::Filter(filter) => Some(match filter.kind {
                FilterKind::Forbid => "forbid",
                FilterKind::Require => "require",
            }),
            RuleBody::Group(group) => match &group.guard {
                GroupGuard::When(_) => Some("when"),
                GroupGuard::Unless(_) => Some("unless"),
                GroupGuard::Always => None,
            },
        }
    }

    /// The value of its condition with which it neither applies nor filters.
    pub fn neutral_truth(&self) -> Truth {
        match self.condition_key() {
            Some("unless" | "require") => Truth::Yes,
            Some(_) | None => Truth::No,
        }
    }
}

/// When a rule runs that names what a response header may give (policy.md section 4: such a rule runs at both stages).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderStages {
    /// [`Rule::earliest_stage`] if these are given.
    pub earliest_stage: (HeaderFields, PolicyStage),
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
    Group(GroupRule),
    /// Filters URLs.
    Filter(FilterRule),
}

/// `when`, `unless`, or neither.
#[derive(Debug)]
pub struct GroupRule {
    /// When it applies.
    pub guard: GroupGuard,
    /// What `then` and `set` assign, in that order; one entry an option.
    pub assignments: Box<[Assignment]>,
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
pub enum GroupGuard {
    /// Always.
    Always,
    /// If the condition holds.
    When(Condition),
    /// If it does not.
    Unless(Condition),
}

/// `forbid` or `require`.
#[derive(Debug)]
pub struct FilterRule {
    /// Which of the two.
    pub kind: FilterKind,
    /// Its condition.
    pub condition: Condition,
    /// Whether a URL that it filters is recorded.
    pub log: bool,
    /// `reject`: the intent of its rejections.
    pub reject_intent: Option<Intent>,
    /// `reject_status`: a wire status of its own.
    pub reject_status: Option<u16>,
    /// `as`: the page is an error with this status, whatever the origin says.
    pub soft_error: Option<u16>,
}

/// The two kinds of filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterKind {
    /// Filters if the condition holds.
    Forbid,
    /// Filters if the condition does not hold.
    Require,
}
