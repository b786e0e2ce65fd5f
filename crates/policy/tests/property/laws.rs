//! The laws of evaluation over random policies, URLs and facts.
//!
//! Unlike the oracle tests, these do not compute expected decisions. Each law compares two
//! decisions: of one policy with more facts, or of a policy and a variant of its text. So they
//! cover what the oracle does not implement: shadow rules, deep groups, styles and files.
//! `tests/mutants/run` breaks several laws, each of which must be detected by its test.
//!
//! `CRAWLGATE_LAWS` sets the number of policies for each law.

mod enrich;
mod outcome;
mod variant;

use serde_json::{Value as Json, json};

use crawlgate_policy::internal::policy::decide::Verdict;
use crawlgate_policy::internal::policy::rule::RuleBody;
use crawlgate_policy::internal::policy::source::MemoryFileSystem;

use enrich::EnrichedGenerator;
use outcome::{Outcome, compiled, evaluate};

/// The default number of policies for each law; each is evaluated for [`FACTS`] random sets of
/// facts.
const POLICIES: u64 = 1_000;
const FACTS: usize = 20;
/// One in `CONTROL` policies is also compared with a variant that must differ, to prove that the
/// comparison can fail.
const CONTROL: u64 = 8;

fn policies() -> u64 {
    std::env::var("CRAWLGATE_LAWS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(POLICIES)
}

/// The number of decisions that a law compared, and of those that could have broken it.
#[derive(Default)]
struct LawStats {
    compared: u64,
    relevant: u64,
}

impl LawStats {
    /// Requires that at least one in `one_in` policies had a relevant decision.
    fn report(&self, law: &str, one_in: u64) {
        let all = policies();
        let relevant = self.relevant;
        println!(
            "{law}: {all} policies, {} decisions compared, {relevant} of them relevant",
            self.compared
        );
        assert!(
            relevant * one_in >= all,
            "{law}: only {relevant} relevant decisions of {all} policies"
        );
    }
}

/// A URL that a filter rejected stays rejected with any rules after the filter. If the stage and
/// the reason are the same, the cause is the same filter.
#[test]
fn a_filter_is_never_undone() {
    let mut source = EnrichedGenerator::new(11);
    let mut stats = LawStats::default();
    for _ in 0..policies() {
        let (document, policy) = source.policy();
        let all_facts: Vec<Json> = (0..FACTS).map(|_| source.facts()).collect();
        let filtered = all_facts.iter().filter_map(|facts| {
            let outcome = evaluate(&policy, facts);
            let rule = outcome
                .cause_of(&policy)
                .filter(|rule| matches!(rule.body, RuleBody::Filter(_)))?;
            if !variant::contains(&document, rule.id.as_str()) {
                return None;
            }
            let at = policy
                .rules()
                .iter()
                .position(|other| other.id == rule.id)?;
            Some((at, facts, outcome))
        });
        let filtered: Vec<_> = filtered.collect();
        let Some((at, ..)) = filtered.iter().max_by_key(|(at, ..)| *at) else {
            continue;
        };
        let last = policy.rules()[*at].id.as_str();
        let longer = variant::insert_after(&document, last, &source.allowing_rules());
        let policy = compiled(&longer).unwrap_or_else(|problems| panic!("{problems}\n{longer}"));
        for (_, facts, before) in &filtered {
            let after = evaluate(&policy, facts);
            stats.compared += 1;
            stats.relevant += 1;
            assert!(
                after.rejects(),
                "{facts}\n{before:?}\n{after:?}\n{document}\n{longer}"
            );
            assert!(
                after.stage <= before.stage,
                "{facts}\n{before:?}\n{after:?}\n{document}\n{longer}"
            );
            if after.stage == before.stage && after.reason == before.reason {
                assert_eq!(after.cause, before.cause, "{facts}\n{document}\n{longer}");
            }
        }
    }
    stats.report("a filter is never undone", 1);
}

/// Additional facts do not change a rejection. A filter that decided early also hits with all
/// facts: alone in the groups around it, it rejects at the document stage.
#[test]
fn an_early_answer_never_contradicts_the_full_one() {
    let mut source = EnrichedGenerator::new(12);
    let mut stats = LawStats::default();
    for _ in 0..policies() {
        let (document, policy) = source.policy();
        for at in 0..FACTS {
            let full = source.facts_of_a_page();
            let parts: Vec<Outcome> = (0..4)
                .map(|known| evaluate(&policy, &enrich::up_to(known, &full)))
                .collect();
            let Some(first) = parts.iter().position(Outcome::rejects) else {
                continue;
            };
            stats.compared += 1;
            for later in &parts[first..] {
                assert_eq!(
                    later.decision(),
                    parts[first].decision(),
                    "{full}\n{document}"
                );
            }
            let filter = parts[first]
                .cause_of(&policy)
                .filter(|rule| matches!(rule.body, RuleBody::Filter(_)));
            let Some(filter) = filter
                .filter(|rule| at == 0 && parts[first].stage < rule.stage.to_stage())
                .filter(|rule| variant::contains(&document, rule.id.as_str()))
            else {
                continue;
            };
            stats.relevant += 1;
            let late = variant::alone_at_document_stage(&document, filter.id.as_str());
            let alone = compiled(&late).unwrap_or_else(|problems| panic!("{problems}\n{late}"));
            let in_full = evaluate(&alone, &full);
            assert_eq!(
                in_full.cause.as_deref(),
                Some(filter.id.as_str()),
                "{full}\n{late}\n{document}"
            );
            assert!(in_full.rejects(), "{full}\n{late}\n{document}");
        }
    }
    stats.report("an early answer holds", 16);
}

/// A decision on a tunnel, with or without its address, holds for every URL of its host.
#[test]
fn a_tunnels_answer_never_contradicts_that_of_a_url() {
    let mut source = EnrichedGenerator::new(13);
    let mut stats = LawStats::default();
    for _ in 0..policies() {
        let (document, policy) = source.policy();
        let host = source.host();
        let first = source.facts_on(host);
        let known = if source.coin() {
            vec!["crawler"]
        } else {
            vec!["crawler", "address"]
        };
        let tunnel = enrich::tunnel(&first, &known);
        let outcome = evaluate(&policy, &tunnel);
        if outcome.verdict == Verdict::Undecided {
            continue;
        }
        stats.relevant += 1;
        for _ in 0..FACTS {
            let mut inside = source.facts_on(host);
            for fact in &known {
                inside[*fact] = first[*fact].clone();
            }
            let inside = evaluate(&policy, &inside);
            // A tunnel has no depth, and `max_depth` has no effect without one.
            if inside.reason == "too_deep" {
                continue;
            }
            stats.compared += 1;
            assert_eq!(
                inside.rejects(),
                outcome.rejects(),
                "{tunnel} {outcome:?}\n{inside:?}\n{document}"
            );
        }
    }
    stats.report("a tunnel's answer holds", 4);
}

/// Shadow rules change nothing: verdict, cause, options and the trail of live rules are those of
/// the policy without them.
#[test]
fn a_shadow_rule_changes_nothing() {
    equals_absent(
        "a rule in shadow changes nothing",
        14,
        "mode",
        &json!("shadow"),
    );
}

/// Disabled rules change nothing.
#[test]
fn a_disabled_rule_equals_an_absent_one() {
    equals_absent(
        "a disabled rule equals an absent one",
        15,
        "enabled",
        &json!(false),
    );
}

fn equals_absent(law: &str, seed: u64, key: &str, value: &Json) {
    let mut source = EnrichedGenerator::new(seed);
    let mut stats = LawStats::default();
    for number in 0..policies() {
        let (document, policy) = source.policy_with(key, value);
        let shorter = variant::without(&document, key, value);
        let control = (number % CONTROL == 0).then(|| variant::without_key(&document, key));
        let control = control.and_then(|document| compiled(&document).ok());
        let absent = compiled(&shorter)
            .unwrap_or_else(|problems| panic!("{problems}\n{document}\n{shorter}"));
        for _ in 0..FACTS {
            let facts = source.facts_or_tunnel();
            let with = evaluate(&policy, &facts);
            let without = evaluate(&absent, &facts);
            stats.compared += 1;
            stats.relevant +=
                u64::from(control.as_ref().is_some_and(|control| {
                    evaluate(control, &facts).decision() != with.decision()
                }));
            assert_eq!(
                with.among(&absent),
                without.among(&absent),
                "{facts}\n{document}\n{shorter}"
            );
        }
    }
    stats.report(law, CONTROL);
}

/// The order of rules determines the decision. Ids, descriptions, the order of keys, style and
/// files do not.
#[test]
fn document_order_is_the_only_order() {
    let mut source = EnrichedGenerator::new(16);
    let mut stats = LawStats::default();
    for number in 0..policies() {
        let (document, policy) = source.policy();
        let style_variant = variant::StyleVariant::new(&document, source.random());
        let files = style_variant
            .files
            .iter()
            .fold(MemoryFileSystem::new(), |files, (path, text)| {
                files.with_file(path, text.as_str())
            });
        let other = crawlgate_policy::load_files(&files, "p")
            .unwrap_or_else(|error| panic!("{error}\n{document}\n{:#?}", style_variant.files))
            .policy;
        let control = (number % CONTROL == 0).then(|| variant::reversed(&document));
        let control = control.and_then(|document| compiled(&document).ok());
        for _ in 0..FACTS {
            let facts = source.facts_or_tunnel();
            let expected = evaluate(&policy, &facts);
            let actual = evaluate(&other, &facts);
            stats.compared += 1;
            stats.relevant += u64::from(control.as_ref().is_some_and(|control| {
                evaluate(control, &facts).decision() != expected.decision()
            }));
            assert_eq!(
                actual.with_ids(|id| style_variant.old_id(id)),
                expected,
                "{facts}\n{document}\n{:#?}",
                style_variant.files
            );
        }
    }
    stats.report("document order is the only order", CONTROL);
}

/// Two adjacent filters may be swapped, and so may a filter and a group that only sets options: the
/// verdict and the options do not change, and a different cause is one of the two.
#[test]
fn filters_side_by_side_may_change_places() {
    let mut source = EnrichedGenerator::new(17);
    let mut stats = LawStats::default();
    for _ in 0..policies() {
        let (document, policy) = source.policy();
        let Some((swapped, pair)) = variant::swapped(&document, source.random()) else {
            continue;
        };
        let other = compiled(&swapped).unwrap_or_else(|problems| panic!("{problems}\n{swapped}"));
        for _ in 0..FACTS {
            let facts = source.facts();
            let before = evaluate(&policy, &facts);
            let after = evaluate(&other, &facts);
            stats.compared += 1;
            stats.relevant += u64::from(caused_by(&before, &pair));
            assert_eq!(
                after.verdict_and_options(),
                before.verdict_and_options(),
                "{pair:?} {facts}\n{document}"
            );
            let same_cause = after.cause == before.cause
                || caused_by(&before, &pair) && caused_by(&after, &pair);
            assert!(
                same_cause,
                "{pair:?} {facts}\n{before:?}\n{after:?}\n{document}"
            );
        }
    }
    stats.report("filters side by side may change places", 1);
}

fn caused_by(outcome: &Outcome, rules: &[String; 2]) -> bool {
    outcome.cause.as_ref().is_some_and(|id| rules.contains(id))
}
