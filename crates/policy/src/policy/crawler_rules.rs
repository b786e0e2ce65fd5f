//! The rules that may apply to a crawler, each considered alone: for checks of a policy against the
//! crawlers of a configuration.

use crate::model::intent::Intent;
use crate::urls::target::HostTarget;

use super::Policy;
use super::fact::Facts;
use super::options::{OptionValue, schema};
use super::rule::{EnforcementMode, Rule, RuleBody, RuleIndex};
use super::trail::Trail;

/// A rule that may apply to a crawler.
#[derive(Clone, Debug)]
pub struct CrawlerRule<'a> {
    pub index: RuleIndex,
    pub rule: &'a Rule,
    /// The options if no rules apply except this one and the groups around it.
    pub trail: Trail,
}

impl CrawlerRule<'_> {
    /// Returns `true` if the rule itself assigns an option whose path begins like this.
    pub fn assigns(&self, policy: &Policy, path_prefix: &str) -> bool {
        let RuleBody::Group(group) = &self.rule.body else {
            return false;
        };
        group.assignments.iter().any(|assignment| {
            policy
                .options
                .get(assignment.index)
                .is_some_and(|option| option.path.starts_with(path_prefix))
        })
    }

    /// Returns `true` if the rule itself says that its refusals mean "later", and leaves their status
    /// to the profile.
    pub fn refuses_with_later(&self) -> bool {
        match &self.rule.body {
            RuleBody::Filter(filter) => {
                filter.reject_intent == Some(Intent::Later) && filter.reject_status.is_none()
            }
            RuleBody::Group(_) => {
                self.rule.assigned_value(schema::REJECT)
                    == Some(&OptionValue::Intent(Intent::Later))
            }
        }
    }
}

impl Policy {
    /// Returns the enforced rules that may apply to a crawler, in document order. A rule is left out
    /// if it belongs to another space, or if its condition or that of a group around it excludes the
    /// crawler for every URL.
    pub fn crawler_rules(&self, crawler: &str) -> Vec<CrawlerRule<'_>> {
        // Conditions on URLs are not evaluated, so any host will do.
        let Ok(host) = HostTarget::parse_authority("host.invalid:443") else {
            return Vec::new();
        };
        let facts = Facts {
            crawler,
            ..Facts::for_tunnel(&host)
        };
        let space = self.spaces.for_crawler(crawler);
        let mut found: Vec<CrawlerRule<'_>> = Vec::new();
        for (index, rule) in (0..).map(RuleIndex).zip(&self.rules) {
            let enforced = rule.mode == EnforcementMode::Enforce;
            if !enforced || !self.spaces.runs_rule(index, space) || self.excludes(rule, &facts) {
                continue;
            }
            let around = match rule.parent {
                // A rule whose group is left out is left out, too.
                Some(parent) => found.iter().find(|group| group.index == parent),
                None => None,
            };
            let mut trail = match (rule.parent, around) {
                (None, _) => Trail::new(self, crawler),
                (Some(_), Some(group)) => group.trail.clone(),
                (Some(_), None) => continue,
            };
            if let RuleBody::Group(group) = &rule.body {
                for assignment in &group.assignments {
                    trail.record_assignment(self, assignment.index, index);
                }
            }
            found.push(CrawlerRule { index, rule, trail });
        }
        found
    }

    /// Returns `true` if the rule has no effect on any request of the crawler.
    fn excludes(&self, rule: &Rule, facts: &Facts<'_>) -> bool {
        rule.condition().is_some_and(|condition| {
            condition.evaluate_for_crawler(facts, &self.lists) == rule.neutral_truth()
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::Policy;
    use crate::policy::compile;
    use crate::policy::options::politeness::PolitenessOption;
    use crate::policy::source::MemoryFileSystem;

    fn load(text: &str) -> Policy {
        let files = MemoryFileSystem::new().with_file("p", text);
        compile::load(&files, "p").unwrap().policy
    }

    #[test]
    fn rules_for_other_crawlers_are_left_out() {
        let text = "
policy: 1
name: p
options: { disposition: allow }
rules:
  - { id: all, forbid: { under: /a } }
  - id: lab-only
    when: { crawler: lab }
    rules:
      - { id: inner, forbid: { under: /b } }
  - { id: not-lab, unless: { crawler: lab }, set: { politeness: { delay: 2s } } }
  - { id: either, forbid: { any: [ { crawler: news }, { under: /c } ] } }
  - { id: both, forbid: { all: [ { crawler: news }, { under: /d } ] } }
  - { id: off, enabled: false, forbid: { under: /e } }
spaces:
  - name: paper
    crawlers: [ news ]
    rules:
      - { id: of-space, forbid: { under: /f } }
";
        let policy = load(text);
        for (crawler, expected) in [
            ("lab", "all lab-only inner either"),
            ("news", "all not-lab either both of-space"),
            ("anonymous", "all not-lab either"),
        ] {
            let rules = policy.crawler_rules(crawler);
            let ids: Vec<&str> = rules.iter().map(|found| found.rule.id.as_str()).collect();
            assert_eq!(ids.join(" "), expected, "{crawler}");
        }
    }

    #[test]
    fn a_trail_has_the_options_of_the_rule_and_the_groups_around_it_alone() {
        let text = "
policy: 1
name: p
options: { disposition: allow, politeness: { delay: 2s } }
rules:
  - { id: other, when: { under: /a }, set: { politeness: { delay: 9s } } }
  - id: outer
    when: { under: /b }
    set: { politeness: { delay: 3s } }
    rules:
      - { id: inner, when: { ext: pdf }, set: { politeness: { max_hold: 7s } } }
";
        let policy = load(text);
        let paces: Vec<_> = policy
            .crawler_rules("anonymous")
            .iter()
            .map(|found| {
                let option = PolitenessOption::new(&policy, &found.trail);
                let hold = option.max_hold().map(|hold| hold.as_secs());
                (option.pages().delay.as_secs(), hold)
            })
            .collect();
        assert_eq!(paces, [(9, None), (3, None), (3, Some(7))]);
    }
}
