//! Tunnels: whether a policy can tell one from another.

use crate::policy::Policy;
use crate::policy::condition::Condition;
use crate::policy::field::Field;
use crate::policy::rule::{Guard, Mode, Rule, RuleBody};

impl Policy {
    /// Whether every blind tunnel gets the same verdict: no rule that takes part names anything that a tunnel shows,
    /// such as its host.
    pub fn judges_tunnels_alike(&self) -> bool {
        let mut alike = true;
        let rules = self.rules.iter().filter(|rule| rule.mode == Mode::Enforce);
        rules.filter_map(condition).for_each(|condition| {
            condition.each_field(&mut |field| alike &= !tells_tunnels_apart(field));
        });
        alike
    }
}

fn condition(rule: &Rule) -> Option<&Condition> {
    match &rule.body {
        RuleBody::Filter(filter) => Some(&filter.condition),
        RuleBody::Group(group) => match &group.guard {
            Guard::Always => None,
            Guard::When(condition) | Guard::Unless(condition) => Some(condition),
        },
    }
}

/// Whether a field could have different values for two tunnels, or a test of it different outcomes.
fn tells_tunnels_apart(field: &Field) -> bool {
    match field {
        Field::Url
        | Field::Scheme
        | Field::Host
        | Field::Port
        | Field::Authority
        | Field::AuthorityPathQuery
        | Field::Crawler
        | Field::Address => true,
        Field::Path
        | Field::PathAndQuery
        | Field::RelPath
        | Field::RelPathAndQuery
        | Field::Query
        | Field::Param(_)
        | Field::Method
        | Field::Referer
        | Field::Dest
        | Field::Depth
        | Field::ContentType
        | Field::Status
        | Field::Size
        | Field::Header(_)
        | Field::Usage(_)
        | Field::Title
        | Field::BodyPrefix
        | Field::MetaRobots
        | Field::Canonical => false,
    }
}
