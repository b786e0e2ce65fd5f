//! The counters of rules beyond the number of labels: exact counts for each, bounded series, and series that never go
//! backwards, whatever is loaded and whichever rules have a label.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crawlgate::metrics::MetricsExtent;
use crawlgate::metrics::labels::{RuleKind, RuleMode};
use crawlgate::metrics::policy::{OTHER_RULES, PolicyMetrics, RETENTION};
use crawlgate::metrics::record::UrlRetention;
use crawlgate::model::reason::Reason;
use crawlgate::model::rule_id::RuleId;
use fastrand::Rng;

use super::MetricsBench;

fn bench(rule_labels: usize) -> MetricsBench {
    MetricsBench::with_extent(MetricsExtent {
        rule_labels,
        ..MetricsExtent::default()
    })
}

fn load(bench: &MetricsBench, rules: impl IntoIterator<Item = usize>) -> Arc<PolicyMetrics> {
    let ids = ids(rules);
    let rules = ids
        .iter()
        .map(|id| (id, RuleMode::Enforce, RuleKind::Filter));
    bench
        .metrics
        .register_policy("big", "00000001", rules, &bench.clock)
}

fn ids(rules: impl IntoIterator<Item = usize>) -> Vec<RuleId> {
    rules
        .into_iter()
        .map(|n| RuleId::new(&format!("r{n}")).unwrap())
        .collect()
}

/// Counts requests that this rule matched and refused.
fn refuse(bench: &MetricsBench, policy: &Arc<PolicyMetrics>, rule: u32, times: u32) {
    for _ in 0..times {
        let mut record = bench.begin();
        record.set_policy(policy);
        record.set_matched_rules([rule]);
        record.set_rejected(Reason::Rule, Some(rule), UrlRetention::Host);
    }
}

/// The value of each series of a family by its labels, as a scrape shows them.
fn scrape(bench: &MetricsBench, family: &str) -> BTreeMap<String, u64> {
    let text = bench.metrics.render();
    let samples = text.lines().filter_map(|line| {
        let (labels, value) = line.strip_prefix(family)?.rsplit_once(' ')?;
        Some((labels.to_owned(), value.parse().ok()?))
    });
    samples.collect()
}

fn matched(bench: &MetricsBench) -> BTreeMap<String, u64> {
    let series = scrape(bench, "crawlgate_rule_matched_total");
    let rule = |labels: &str| labels.split('"').nth(3).unwrap().to_owned();
    series
        .into_iter()
        .map(|(labels, value)| (rule(&labels), value))
        .collect()
}

fn labels(series: &BTreeMap<String, u64>) -> BTreeSet<&str> {
    series.keys().map(String::as_str).collect()
}

#[test]
fn every_rule_of_a_large_policy_is_counted() {
    let bench = bench(2_000);
    let policy = load(&bench, 0..10_000);
    for rule in 0..10_000 {
        refuse(&bench, &policy, rule, rule % 3 + 1);
    }
    for rule in 0..10_000 {
        let counts = policy.counts(rule).map(|c| (c.matched, c.rejected));
        let expected = u64::from(rule % 3 + 1);
        assert_eq!(counts, Some((expected, expected)), "rule {rule}");
    }
    assert_eq!(policy.counts(10_000), None);
    // One line changes: the counts of the others stay, including those without a label.
    let next = load(&bench, (0..10_000).map(|n| if n == 7 { 70_000 } else { n }));
    drop(policy);
    for (rule, expected) in [(6, 1), (7, 0), (8, 3), (9_999, 1)] {
        let counts = next.counts(rule).map(|c| c.matched);
        assert_eq!(counts, Some(expected), "rule {rule}");
    }
    let back = load(&bench, 0..10_000);
    drop(next);
    assert_eq!(
        back.counts(7).map(|c| c.matched),
        Some(2),
        "it is back in time"
    );
}

/// A policy of 150,000 rules that is taken back within minutes has lost nothing.
#[test]
fn the_last_policy_is_kept_whole_whatever_its_size() {
    let bench = bench(2);
    let policy = load(&bench, 0..150_000);
    refuse(&bench, &policy, 0, 1);
    refuse(&bench, &policy, 149_999, 2);
    let small = load(&bench, 200_000..200_001);
    drop(policy);
    bench.manual_clock.advance(RETENTION / 2);
    let back = load(&bench, 0..150_000);
    drop(small);
    let counts = [0, 149_999].map(|rule| back.counts(rule).map(|c| c.matched));
    assert_eq!(counts, [Some(1), Some(2)]);
    drop(back);
    bench.manual_clock.advance(RETENTION);
    let anew = load(&bench, 0..150_000);
    assert_eq!(anew.counts(149_999).map(|c| c.matched), Some(0));
}

#[test]
fn labels_go_first_to_the_first_rules_and_then_to_those_that_count_most() {
    let bench = bench(2);
    let policy = load(&bench, 0..5);
    assert_eq!(labels(&matched(&bench)), ["__other__", "r0", "r1"].into());
    refuse(&bench, &policy, 1, 2);
    refuse(&bench, &policy, 4, 3);
    refuse(&bench, &policy, 3, 1);
    // Rule 4 takes the label of rule 0, which has counted nothing; its series begins at 0.
    let first = matched(&bench);
    let expected = [("__other__", 4), ("r0", 0), ("r1", 2), ("r4", 0)];
    assert_eq!(
        first,
        expected
            .map(|(rule, value)| (rule.to_owned(), value))
            .into()
    );
    // Rule 3 has no more than twice what rule 1 has, and waits.
    refuse(&bench, &policy, 3, 3);
    refuse(&bench, &policy, 4, 5);
    let second = matched(&bench);
    let expected = [("__other__", 7), ("r0", 0), ("r1", 2), ("r4", 5)];
    assert_eq!(
        second,
        expected
            .map(|(rule, value)| (rule.to_owned(), value))
            .into()
    );
    refuse(&bench, &policy, 3, 1);
    bench.manual_clock.advance(RETENTION);
    matched(&bench);
    refuse(&bench, &policy, 1, 1);
    refuse(&bench, &policy, 3, 1);
    // Rule 1 is among the others now: its series stays for a while, and what it counts is in their sum.
    let third = matched(&bench);
    let expected = [("__other__", 9), ("r1", 2), ("r3", 1), ("r4", 5)];
    assert_eq!(
        third,
        expected
            .map(|(rule, value)| (rule.to_owned(), value))
            .into()
    );
    bench.manual_clock.advance(RETENTION);
    let last = matched(&bench);
    let expected = [("__other__", 9), ("r3", 1), ("r4", 5)];
    assert_eq!(
        last,
        expected
            .map(|(rule, value)| (rule.to_owned(), value))
            .into()
    );
    let counts = [0, 1, 2, 3, 4].map(|rule| policy.counts(rule).unwrap().matched);
    assert_eq!(counts, [0, 3, 0, 6, 8], "labels change no count");
}

#[test]
fn the_sum_of_others_survives_its_rules() {
    let bench = bench(1);
    let old = load(&bench, 0..3);
    refuse(&bench, &old, 0, 5);
    refuse(&bench, &old, 1, 4);
    assert_eq!(matched(&bench)[OTHER_RULES], 4);
    let new = load(&bench, 10..11);
    drop(old);
    assert_eq!(matched(&bench)[OTHER_RULES], 4);
    bench.manual_clock.advance(RETENTION);
    let series = matched(&bench);
    assert_eq!(labels(&series), ["__other__", "r10"].into());
    assert_eq!(series[OTHER_RULES], 4, "a counter stays");
    drop(new);
}

#[test]
fn without_labels_there_is_the_sum() {
    let bench = bench(0);
    let policy = load(&bench, 0..3);
    assert_eq!(matched(&bench), [(OTHER_RULES.to_owned(), 0)].into());
    refuse(&bench, &policy, 2, 7);
    assert_eq!(matched(&bench), [(OTHER_RULES.to_owned(), 7)].into());
    assert_eq!(policy.counts(2).map(|c| c.rejected), Some(7));
}

/// The last value of each series of a family, as a scraper stores them.
struct Scraper {
    family: &'static str,
    last: BTreeMap<String, u64>,
}

impl Scraper {
    /// Returns what all series have counted since the last scrape, and checks that none went back.
    fn increase(&mut self, bench: &MetricsBench) -> u64 {
        let now = scrape(bench, self.family);
        let increase = now.iter().map(|(labels, value)| {
            let before = self.last.get(labels).copied().unwrap_or_default();
            let increase = value.checked_sub(before);
            increase.unwrap_or_else(|| panic!("{labels} went from {before} to {value}"))
        });
        let increase = increase.sum();
        self.last = now;
        increase
    }
}

/// Reloads, changes of labels, retention times and scrapes: between two scrapes, the series together have counted what
/// was counted, and none went back. A scrape comes between any two reloads; without, a series may begin anew.
#[test]
fn series_together_count_each_event_once() {
    for seed in 0..40 {
        let mut rng = Rng::with_seed(seed);
        let limit = rng.usize(..5);
        let bench = bench(limit);
        let mut scraper = Scraper {
            family: "crawlgate_rule_decided_total",
            last: BTreeMap::new(),
        };
        let mut policy = load_some(&bench, &mut rng);
        let mut counted = 0;
        let mut changed = false;
        for _ in 0..400 {
            let step = rng.u32(..10);
            if step == 2 || (step < 2 && changed) {
                let increase = scraper.increase(&bench);
                assert_eq!(increase, counted, "seed {seed}, {limit} labels");
                let own = scraper.last.keys().filter(|l| !l.contains(OTHER_RULES));
                assert!(own.count() <= 2 * limit, "seed {seed}: {:?}", scraper.last);
                counted = 0;
                changed = false;
            }
            match step {
                0 => policy = load_some(&bench, &mut rng),
                1 => bench.manual_clock.advance(RETENTION / 5 * rng.u32(..6)),
                _ => {
                    let rule = rng.u32(..4);
                    if policy.counts(rule).is_some() {
                        let times = rng.u32(1..10);
                        refuse(&bench, &policy, rule, times);
                        counted += u64::from(times);
                    }
                }
            }
            changed |= step < 2;
        }
    }
}

fn load_some(bench: &MetricsBench, rng: &mut Rng) -> Arc<PolicyMetrics> {
    let first = rng.usize(..10);
    load(bench, first..first + rng.usize(1..13))
}
