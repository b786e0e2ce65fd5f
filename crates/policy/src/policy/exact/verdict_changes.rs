//! The changes of verdicts that a change of a policy can cause.

use crate::model::disposition::Disposition;
use crate::policy::Policy;
use crate::policy::compare::{PolicyChange, PolicyChangeKind};
use crate::policy::options::{Assignment, OptionValue, schema};
use crate::policy::rule::{GroupRule, Rule, RuleBody};

/// Changes of verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerdictChanges {
    /// Refused by the old policy, admitted by the new one.
    pub new_access: bool,
    /// Admitted by the old policy, refused by the new one.
    pub new_refusal: bool,
}

/// Options that refuse no URL, as beginnings of their paths.
const OPTIONS_WITHOUT_VERDICT: [&str; 13] = [
    "follow",
    "index",
    "max_buffer",
    "meta.",
    "politeness.",
    "priority",
    "record",
    "reject",
    "reject_status",
    "removal.",
    "request_headers.",
    "source",
    "timeouts.",
];

impl VerdictChanges {
    pub(super) const NONE: Self = Self {
        new_access: false,
        new_refusal: false,
    };
    pub(super) const BOTH: Self = Self {
        new_access: true,
        new_refusal: true,
    };
    const ACCESS: Self = Self {
        new_access: true,
        new_refusal: false,
    };
    const REFUSAL: Self = Self {
        new_access: false,
        new_refusal: true,
    };

    /// Returns the changes that are in either set.
    pub(super) fn union(self, other: Self) -> Self {
        Self {
            new_access: self.new_access || other.new_access,
            new_refusal: self.new_refusal || other.new_refusal,
        }
    }

    /// Returns the changes that are not in another set.
    pub(super) fn without(self, other: Self) -> Self {
        Self {
            new_access: self.new_access && !other.new_access,
            new_refusal: self.new_refusal && !other.new_refusal,
        }
    }

    /// Returns the change from one verdict to another.
    pub(super) fn between(old_admits: bool, new_admits: bool) -> Self {
        Self {
            new_access: !old_admits && new_admits,
            new_refusal: old_admits && !new_admits,
        }
    }

    fn reversed(self) -> Self {
        Self {
            new_access: self.new_refusal,
            new_refusal: self.new_access,
        }
    }

    /// Returns the possible effects of a change of an option of the document or of a space.
    pub(super) fn of_option(change: &PolicyChange) -> Self {
        let path = match change.name.split_once(".options.") {
            Some((_, path)) => path,
            None => &*change.name,
        };
        if !may_refuse(path) {
            return Self::NONE;
        }
        match &change.kind {
            PolicyChangeKind::Changed(values) if change.name == "disposition" => {
                let allow = Disposition::Allow.as_str();
                if values.iter().all(|value| value.new == allow) {
                    Self::ACCESS
                } else {
                    Self::REFUSAL
                }
            }
            PolicyChangeKind::Added(_)
            | PolicyChangeKind::Removed(_)
            | PolicyChangeKind::Changed(_)
            | PolicyChangeKind::Moved => Self::BOTH,
        }
    }

    /// Returns the possible effects of adding a rule that contains no others and is not in a
    /// `match: first` list.
    pub(super) fn of_added(policy: &Policy, rule: &Rule) -> Self {
        match &rule.body {
            RuleBody::Filter(_) => Self::REFUSAL,
            RuleBody::Group(group) if group.stop => Self::BOTH,
            RuleBody::Group(group) => Self::of_assignments(policy, group.assignments.iter()),
        }
    }

    /// Returns the possible effects of removing such a rule.
    pub(super) fn of_removed(policy: &Policy, rule: &Rule) -> Self {
        Self::of_added(policy, rule).reversed()
    }

    /// Returns the possible effects of a change of such a rule where both versions apply.
    pub(super) fn of_changed(old: (&Policy, &Rule), new: (&Policy, &Rule)) -> Self {
        match (&old.1.body, &new.1.body) {
            (RuleBody::Filter(_), RuleBody::Filter(_)) => Self::NONE,
            (RuleBody::Group(before), RuleBody::Group(after)) if before.stop == after.stop => {
                let lost = Self::of_assignments(old.0, differing(before, old.0, after, new.0));
                let gained = Self::of_assignments(new.0, differing(after, new.0, before, old.0));
                lost.reversed().union(gained)
            }
            (RuleBody::Filter(_) | RuleBody::Group(_), _) => Self::BOTH,
        }
    }

    /// Returns the possible effects of moving such a rule.
    pub(super) fn of_moved(policy: &Policy, rule: &Rule) -> Self {
        match &rule.body {
            RuleBody::Filter(_) => Self::NONE,
            RuleBody::Group(_) => {
                let added = Self::of_added(policy, rule);
                added.union(added.reversed())
            }
        }
    }

    fn of_assignments<'a>(
        policy: &Policy,
        assignments: impl Iterator<Item = &'a Assignment>,
    ) -> Self {
        let effects = assignments.map(|assignment| {
            if assignment.index == schema::DISPOSITION {
                if assignment.value == OptionValue::Disposition(Disposition::Allow) {
                    Self::ACCESS
                } else {
                    Self::REFUSAL
                }
            } else if may_refuse(policy.option_path(assignment.index)) {
                Self::BOTH
            } else {
                Self::NONE
            }
        });
        effects.fold(Self::NONE, Self::union)
    }
}

/// Returns the assignments of a group that another one does not have.
fn differing<'g>(
    group: &'g GroupRule,
    policy: &'g Policy,
    other: &'g GroupRule,
    other_policy: &'g Policy,
) -> impl Iterator<Item = &'g Assignment> {
    group.assignments.iter().filter(move |assignment| {
        !other.assignments.iter().any(|other| {
            policy.option_path(assignment.index) == other_policy.option_path(other.index)
                && assignment.value == other.value
        })
    })
}

/// Returns `true` if URLs may be refused because of an option.
fn may_refuse(path: &str) -> bool {
    !OPTIONS_WITHOUT_VERDICT.iter().any(|option| {
        if option.ends_with('.') {
            path.starts_with(option)
        } else {
            path == *option
        }
    })
}
