//! The refusal of a whole host: what its URLs have in common, although different rules may refuse them.

use super::{Cause, Decision};
use crate::model::intent::Intent;
use crate::policy::Policy;
use crate::policy::fact::{Facts, LedgerPresence};
use crate::policy::options::{OptionValue, schema};
use crate::policy::rule::{RuleBody, RuleIndex};
use crate::policy::trail::{RuleState, Trail};
use crate::urls::target::UrlTarget;

impl Policy {
    /// Returns the intent with which the policy refuses every URL of a host; `None` if it does not refuse every one. If
    /// some URLs are refused for good and others are not, the intent is `Keep`. `facts` are those of one of the URLs.
    pub fn whole_host_intent(&self, target: &UrlTarget, facts: &Facts<'_>) -> Option<Intent> {
        let host = target.host_target();
        let host_facts = Facts {
            crawler: facts.crawler,
            ..Facts::for_tunnel(&host)
        };
        let (trail, decision) = self.decide(&host_facts);
        if !decision.rejects() {
            return None;
        }
        let intent = self.refusal(&trail, &decision).intent;
        let is_uniform = self
            .other_intents(&trail, &decision)
            .chain(self.known_url_intent(facts))
            .all(|other| other == intent || is_final(other) && is_final(intent));
        Some(if is_uniform { intent } else { Intent::Keep })
    }

    /// Returns the intents that other rules may give to some of the host's URLs: filters that come before the rule that
    /// decides, and groups that set the option `reject`, if that rule does not name an intent itself.
    fn other_intents(&self, trail: &Trail, decision: &Decision) -> impl Iterator<Item = Intent> {
        let deciding = trail.first_filter;
        let filters_end = deciding.unwrap_or(RuleIndex(u32::MAX));
        let by_rule = deciding.and_then(|rule| self.filter_intent(rule));
        let by_options = self
            .refusal(
                trail,
                &Decision {
                    cause: Cause::Default,
                    ..*decision
                },
            )
            .intent;
        trail
            .rules_in_state(RuleState::Undecided)
            .filter_map(move |at| match &self.rule(at)?.body {
                RuleBody::Filter(filter) if at < filters_end => {
                    Some(filter.reject_intent.unwrap_or(by_options))
                }
                RuleBody::Group(_) if by_rule.is_none() => self.assigned_intent(at),
                RuleBody::Filter(_) | RuleBody::Group(_) => None,
            })
    }

    fn filter_intent(&self, at: RuleIndex) -> Option<Intent> {
        match &self.rule(at)?.body {
            RuleBody::Filter(filter) => filter.reject_intent,
            RuleBody::Group(_) => None,
        }
    }

    fn assigned_intent(&self, at: RuleIndex) -> Option<Intent> {
        if let OptionValue::Intent(intent) = self.assigned_value(at, schema::REJECT)? {
            Some(*intent)
        } else {
            None
        }
    }

    /// Returns the intent for URLs of the host that are in the ledger, if the policy has crawl spaces.
    fn known_url_intent(&self, facts: &Facts<'_>) -> Option<Intent> {
        let facts = Facts {
            in_ledger: LedgerPresence::Present,
            ..*facts
        };
        let (trail, decision) = self.decide_request(&facts);
        let exclusion = self.exclusion(&trail, &decision, &facts)?;
        let decision = Decision {
            exclusion: Some(exclusion),
            ..decision
        };
        Some(self.refusal(&trail, &decision).intent)
    }
}

/// Returns `true` if a crawler need never request the URL again.
fn is_final(intent: Intent) -> bool {
    match intent {
        Intent::Deny | Intent::Gone => true,
        Intent::Keep | Intent::Later => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::compile;
    use crate::policy::source::MemoryFileSystem;

    fn intent(rest: &str, crawler: &str) -> Option<Intent> {
        let text = format!("policy: 1\nname: p\n{rest}");
        let files = MemoryFileSystem::new().with_file("p", text);
        let policy = compile::load(&files, "p").unwrap().policy;
        let target = UrlTarget::parse("http://a.test/robots.txt").unwrap();
        let facts = Facts {
            crawler,
            ..Facts::for_url(&target)
        };
        policy.whole_host_intent(&target, &facts)
    }

    #[test]
    fn the_intent_is_that_of_every_url() {
        let host = "forbid: { host: a.test }";
        let news = "{ id: news, forbid: { under: /news }, reject: keep }";
        let set = "{ id: set, when: { under: /news }, set: { reject: later } }";
        for (rules, expected) in [
            (news.to_owned(), None),
            (format!("{{ id: h, {host} }}"), Some(Intent::Deny)),
            (
                format!("{{ id: h, {host}, reject: gone }}"),
                Some(Intent::Gone),
            ),
            (
                format!("{{ id: h, {host}, reject: later }}"),
                Some(Intent::Later),
            ),
            // The first filter decides.
            (format!("{{ id: h, {host} }}, {news}"), Some(Intent::Deny)),
            (format!("{news}, {{ id: h, {host} }}"), Some(Intent::Keep)),
            // An option applies to a rule without an intent of its own.
            (format!("{set}, {{ id: h, {host} }}"), Some(Intent::Keep)),
            (
                format!("{set}, {{ id: h, {host}, reject: deny }}"),
                Some(Intent::Deny),
            ),
        ] {
            let text = format!("options: {{ disposition: allow }}\nrules: [{rules}]\n");
            assert_eq!(intent(&text, "x"), expected, "{rules}");
        }
        let gone = "options: { disposition: disallow, reject: gone }\n";
        assert_eq!(intent(gone, "x"), Some(Intent::Gone));
    }

    /// URLs that another crawler may fetch stay in the index (code 761).
    #[test]
    fn known_urls_of_another_space_are_kept() {
        let text = "options: { disposition: disallow }\nspaces:\n\
                    - { name: one, crawlers: one, rules: [{ id: a, when: { host: a.test }, then: allow }] }\n\
                    - { name: two, crawlers: two, rules: [{ id: b, when: { host: b.test }, then: allow }] }\n";
        let union = format!("{text}global_space: union\n");
        assert_eq!(intent(text, "one"), None);
        assert_eq!(intent(text, "two"), Some(Intent::Deny));
        assert_eq!(intent(&union, "two"), Some(Intent::Keep));
    }
}
