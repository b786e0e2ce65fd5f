//! The matches of each rule in the last hour, in twelve parts.
//!
//! A part lists only the rules that matched in it, so that policies of 100,000 rules take little memory.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::metrics::policy::PolicyMetrics;
use crate::pipeline::snapshot::PolicySnapshot;
use crate::policy::Policy;

/// The length of a part.
const PART: Duration = Duration::from_secs(300);
/// The number of parts that have ended; the current one comes on top.
const ENDED_PARTS: usize = 11;
/// The number of all parts.
pub(super) const PARTS: usize = ENDED_PARTS + 1;

/// The matches of the rules of the active policy.
#[derive(Debug, Default)]
pub(super) struct RuleTrends(Mutex<TrendSamples>);

#[derive(Debug, Default)]
struct TrendSamples {
    /// The policy whose rules the indexes are; `None` before the first sample.
    policy: Option<Arc<Policy>>,
    /// The parts that have ended, the oldest first.
    parts: VecDeque<BTreeMap<u32, u64>>,
    /// The count of each rule at the beginning of the current part.
    counts: Vec<u64>,
    /// The beginning of the current part.
    began: Option<Instant>,
}

impl RuleTrends {
    /// Ends the current part if it is long enough. To be called often, and first when the process starts.
    pub(super) fn sample(&self, snapshot: &PolicySnapshot, now: Instant) {
        let mut samples = self.0.lock();
        samples.follow(&snapshot.policy);
        let Some(began) = samples.began else {
            samples.began = Some(now);
            return;
        };
        if now.saturating_duration_since(began) >= PART {
            samples.end_part(&snapshot.counters);
            samples.began = Some(now);
        }
    }

    /// Returns the matches in the last hour of each of these rules, in the parts of the hour, the oldest first.
    pub(super) fn read(
        &self,
        snapshot: &PolicySnapshot,
        rules: impl Iterator<Item = u32>,
    ) -> Vec<[u64; PARTS]> {
        let mut samples = self.0.lock();
        samples.follow(&snapshot.policy);
        rules
            .map(|rule| samples.trend(rule, matches(&snapshot.counters, rule)))
            .collect()
    }
}

impl TrendSamples {
    /// Translates the indexes after a reload. Rules keep their counts by their ids, as their counters do.
    fn follow(&mut self, policy: &Arc<Policy>) {
        let Some(old) = &self.policy else {
            self.counts = vec![0; policy.rules().len()];
            self.policy = Some(Arc::clone(policy));
            return;
        };
        if Arc::ptr_eq(old, policy) {
            return;
        }
        let old_indexes: HashMap<&str, u32> = (0..)
            .zip(old.rules())
            .map(|(index, rule)| (rule.id.as_str(), index))
            .collect();
        let mut counts = vec![0; policy.rules().len()];
        let mut new_indexes = HashMap::new();
        for ((rule, index), count) in policy.rules().iter().zip(0_u32..).zip(&mut counts) {
            if let Some(old_index) = old_indexes.get(rule.id.as_str()) {
                *count = self
                    .counts
                    .get(*old_index as usize)
                    .copied()
                    .unwrap_or_default();
                new_indexes.insert(*old_index, index);
            }
        }
        for part in &mut self.parts {
            let translated = part
                .iter()
                .filter_map(|(index, count)| Some((*new_indexes.get(index)?, *count)));
            *part = translated.collect();
        }
        self.counts = counts;
        self.policy = Some(Arc::clone(policy));
    }

    fn end_part(&mut self, counters: &PolicyMetrics) {
        let mut part = BTreeMap::new();
        for (rule, before) in (0_u32..).zip(&mut self.counts) {
            let count = matches(counters, rule);
            if count > *before {
                part.insert(rule, count - *before);
            }
            *before = count;
        }
        if self.parts.len() == ENDED_PARTS {
            self.parts.pop_front();
        }
        self.parts.push_back(part);
    }

    fn trend(&self, rule: u32, count: u64) -> [u64; PARTS] {
        let before = self.counts.get(rule as usize).copied().unwrap_or_default();
        let ended = self.parts.iter().rev();
        let ended = ended.map(|part| part.get(&rule).copied().unwrap_or_default());
        let mut trend = [0; PARTS];
        let latest_first = [count.saturating_sub(before)].into_iter().chain(ended);
        for (part, matches) in trend.iter_mut().rev().zip(latest_first) {
            *part = matches;
        }
        trend
    }
}

fn matches(counters: &PolicyMetrics, rule: u32) -> u64 {
    counters.counts(rule).map_or(0, |counts| counts.matched)
}

#[cfg(test)]
mod tests {
    use http::Method;

    use crate::clock::Clock;
    use crate::metrics::Metrics;
    use crate::metrics::labels::{RuleKind, RuleMode};
    use crate::metrics::log::{DecisionLog, LogDestination, LogSettings};
    use crate::metrics::record::Recorder;
    use crate::policy::compile;
    use crate::policy::source::MemoryFileSystem;

    use super::*;

    const BEFORE: &str = "
  - { id: a, forbid: { under: /a } }
  - { id: b, forbid: { under: /b } }
";
    const AFTER: &str = "
  - { id: new, forbid: { under: /new } }
  - { id: b, forbid: { under: /b } }
  - { id: a, forbid: { under: /a } }
";

    fn snapshot(metrics: &Metrics, clock: &Clock, rules: &str) -> PolicySnapshot {
        let text = format!("policy: 1\nname: p\noptions: {{ disposition: allow }}\nrules:{rules}");
        let files = MemoryFileSystem::new().with_file("p.yaml", text.as_bytes());
        let policy = compile::load(&files, "p.yaml").unwrap().policy;
        let rules = policy.rules().iter();
        let rules = rules.map(|rule| (&rule.id, RuleMode::Enforce, RuleKind::Filter));
        let counters = metrics.register_policy(policy.name(), policy.revision(), rules, clock);
        PolicySnapshot::new(policy, counters)
    }

    fn count_matches(
        metrics: &Metrics,
        clock: &Clock,
        snapshot: &PolicySnapshot,
        rule: u32,
        times: u32,
    ) {
        let settings = LogSettings {
            destination: LogDestination::None,
            ..LogSettings::default()
        };
        let log = DecisionLog::open(settings, metrics, clock).unwrap();
        let recorder = Recorder::new(metrics.clone(), log, clock.clone());
        for _ in 0..times {
            let mut record = recorder.begin(clock.now(), &Method::GET);
            record.set_policy(&snapshot.counters);
            record.set_matched_rules([rule]);
            record.set_allowed(None);
        }
    }

    #[test]
    fn matches_are_counted_in_parts_and_follow_their_rules() {
        let (clock, manual_clock) = Clock::manual();
        let metrics = Metrics::new(&[], &[]).unwrap();
        let before = snapshot(&metrics, &clock, BEFORE);
        let trends = RuleTrends::default();
        let read = |snapshot: &PolicySnapshot, rule| trends.read(snapshot, [rule].into_iter())[0];
        trends.sample(&before, clock.now());
        count_matches(&metrics, &clock, &before, 0, 3);
        count_matches(&metrics, &clock, &before, 1, 1);
        assert_eq!(read(&before, 0), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3]);
        manual_clock.advance(PART);
        trends.sample(&before, clock.now());
        count_matches(&metrics, &clock, &before, 0, 2);
        // Before the part has ended, nothing changes.
        trends.sample(&before, clock.now());
        assert_eq!(read(&before, 0), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 2]);

        let after = snapshot(&metrics, &clock, AFTER);
        assert_eq!(read(&after, 2), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 2]);
        assert_eq!(read(&after, 1), [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
        assert_eq!(read(&after, 0), [0; PARTS]);
        for _ in 0..ENDED_PARTS {
            manual_clock.advance(PART);
            trends.sample(&after, clock.now());
        }
        assert_eq!(read(&after, 2), [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        manual_clock.advance(PART);
        trends.sample(&after, clock.now());
        assert_eq!(read(&after, 2), [0; PARTS]);
    }
}
