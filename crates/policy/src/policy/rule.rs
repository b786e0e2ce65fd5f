//! Compiled rules: a flattened tree, parents before children, in document order.

use crate::model::intent::Intent;
use crate::model::rule_id::RuleId;
use crate::model::stage::Stage;
use crate::model::words::words;

use super::condition::{Assertion, Condition, Polarity, Truth};
use super::options::Assignment;

words! {
    /// The stages at which a policy is evaluated.
    pub enum PolicyStage {
        /// The URL, method, crawler, depth, referer and destination are known.
        Request = "request",
        /// The origin's address is known.
        Destination = "destination",
        /// The response head is known.
        Response = "response",
        /// The beginning of the document is known: for a GET answered with 2xx, in HTML or text.
        Document = "document",
    }
}

impl PolicyStage {
    /// The corresponding stage in the path of a request.
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

    /// Returns `true` if the stage is in the set.
    pub fn contains(self, stage: PolicyStage) -> bool {
        self.0 & (1 << stage as u8) != 0
    }
}

/// The index of a rule in [`super::Policy::rules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleIndex(pub u32);

/// The enforcement of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnforcementMode {
    /// The rule takes part in decisions.
    Enforce,
    /// The rule, or one around it, has `mode: shadow` and does not affect decisions.
    Shadow,
    /// The rule, or one around it, has `enabled: false` or a condition that cannot be compiled
    /// (`on_invalid_rule: disable`).
    Disabled,
}

/// A rule.
#[derive(Debug)]
pub struct Rule {
    /// The id, or the position: `rules.3.1`.
    pub id: RuleId,
    /// The description in explanations and refusals.
    pub about: Option<Box<str>>,
    pub mode: EnforcementMode,
    /// The group around the rule.
    pub parent: Option<RuleIndex>,
    /// The index after the rule's last child. The children follow the rule directly.
    pub end: RuleIndex,
    /// The first stage at which the rule may run: its own `stage`, that of a group around it, or
    /// that of the `match: first` list it is in; otherwise the request stage.
    pub earliest_stage: PolicyStage,
    /// The stage at which all fields in the conditions of the rule and of the groups around it are
    /// known. A group runs at this stage, a filter as soon as it is decided.
    pub stage: PolicyStage,
    /// The stages if response headers provide fields that would otherwise come from the document.
    pub header_stages: Option<HeaderStages>,
    /// `true` if the rule only matches 2xx with content from the response stage on: it names
    /// `content_type` or `size`, and neither it nor a group around it names `status` or a header.
    pub content_only: bool,
    /// The stages at which the rule or its children may have an effect. Shadow rules count only for
    /// other shadow rules.
    pub active_stages: StageSet,
    /// The class, which affects the code of a refusal.
    pub class: RuleClass,
    pub body: RuleBody,
}

/// The classes of rules that determine the code of a refused URL in the ledger (after OmniFind).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleClass {
    /// The rule and the groups around it name no fields except `host`, `authority` and `port`.
    Domain,
    /// All other rules, such as prefix and address rules.
    Other,
}

impl Rule {
    /// The condition; `None` for a group without one.
    pub fn condition(&self) -> Option<&Condition> {
        self.assertion().map(|assertion| assertion.condition)
    }

    /// The condition with the value for which the rule applies or matches; `None` for a group
    /// without a condition.
    pub(crate) fn assertion(&self) -> Option<Assertion<'_>> {
        let (condition, polarity) = match &self.body {
            RuleBody::Filter(filter) => match filter.kind {
                FilterKind::Forbid => (&filter.condition, Polarity::Yes),
                FilterKind::Require => (&filter.condition, Polarity::No),
            },
            RuleBody::Group(group) => match &group.guard {
                GroupGuard::Always => return None,
                GroupGuard::When(condition) => (condition, Polarity::Yes),
                GroupGuard::Unless(condition) => (condition, Polarity::No),
            },
        };
        Some(Assertion {
            condition,
            polarity,
        })
    }

    /// The key of the condition; `None` for a group without one.
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

    /// The value of the condition with which the rule has no effect.
    pub fn neutral_truth(&self) -> Truth {
        self.assertion().map_or(Truth::No, |assertion| {
            assertion.polarity.negate().to_truth()
        })
    }
}

/// The stages of a rule that names fields which response headers may provide. Such a rule may run
/// at both stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderStages {
    /// [`Rule::earliest_stage`] if headers provide these fields.
    pub earliest_stage: (HeaderFields, PolicyStage),
    /// [`Rule::stage`] if headers provide these fields.
    pub stage: (HeaderFields, PolicyStage),
}

/// The fields that response headers may provide instead of the document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderFields {
    /// `meta_robots`.
    pub meta_robots: bool,
    /// `canonical`.
    pub canonical: bool,
}

impl HeaderFields {
    pub(crate) const NONE: Self = Self {
        meta_robots: false,
        canonical: false,
    };

    /// Returns the fields in either set.
    pub fn union(self, other: Self) -> Self {
        Self {
            meta_robots: self.meta_robots || other.meta_robots,
            canonical: self.canonical || other.canonical,
        }
    }
}

/// The kinds of rules.
#[derive(Debug)]
pub enum RuleBody {
    /// A group sets options and contains rules.
    Group(GroupRule),
    /// A filter refuses URLs.
    Filter(FilterRule),
}

/// A rule with `when`, `unless`, or neither.
#[derive(Debug)]
pub struct GroupRule {
    pub guard: GroupGuard,
    /// The assignments of `then` and `set`, in this order; one per option.
    pub assignments: Box<[Assignment]>,
    /// `true` if the group ends the list of its outermost parent, for its stage.
    pub stop: bool,
    /// The processing of its children.
    pub order: ChildOrder,
}

/// The children of a group that are processed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildOrder {
    All,
    /// `match: first`: only the first that matches. All children run at this stage; if it is the
    /// document stage, possibly at the response stage.
    First(PolicyStage),
}

/// The condition of a group.
#[derive(Debug)]
pub enum GroupGuard {
    Always,
    /// The group applies if the condition holds.
    When(Condition),
    /// The group applies if the condition does not hold.
    Unless(Condition),
}

/// A rule with `forbid` or `require`.
#[derive(Debug)]
pub struct FilterRule {
    pub kind: FilterKind,
    pub condition: Condition,
    /// `true` if refused URLs are recorded.
    pub log: bool,
    /// `reject`: the intent of the refusal.
    pub reject_intent: Option<Intent>,
    /// `reject_status`: the status of the refusal.
    pub reject_status: Option<u16>,
    /// `as`: the page is an error with this status, regardless of the origin's status.
    pub soft_error: Option<u16>,
}

/// The kinds of filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterKind {
    /// Refuses if the condition holds.
    Forbid,
    /// Refuses if the condition does not hold.
    Require,
}
