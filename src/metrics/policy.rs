//! The counters of a loaded policy: several for each rule, resolved once, removed some time after the last policy that
//! contains the rule.
//!
//! `rule` labels come from policies only, never from requests, and at most [`RULE_LABELS`] rules of each policy have
//! their own label. Each label and mode has one series of matches and at most two of verdicts. The number of pairs of
//! label and mode is therefore limited: [`RULE_LABELS`] and two (the shared label in both modes) for each loaded policy
//! (the active one, its shadow, and those that requests in progress still use), and [`RULE_LABELS`] of removed rules.

mod series;

use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use parking_lot::Mutex;

use crate::clock::Clock;
use crate::model::rule_id::RuleId;

use super::Metrics;
use super::families::MetricFamilies;
use super::labels::{MetricsMode, ReloadResult, RuleKind, RuleMode, VerdictLabel};
use super::series::gauge_value;
use super::shadow::ShadowStats;

use series::{RuleCounterFamilies, RuleCounters};

pub use series::RETENTION;

/// The number of rules of a policy that are counted under their own id; the others share [`OTHER_RULES`].
pub const RULE_LABELS: usize = 2_000;
/// The `rule` label of all other rules.
pub const OTHER_RULES: &str = "__other__";

/// The series of loaded policies.
pub(super) struct PolicySeries {
    rule_counters: RuleCounterFamilies,
    /// The name and revision that `policy_info` shows.
    shown_policy: Mutex<Option<(Box<str>, Box<str>)>>,
}

impl PolicySeries {
    pub(super) fn new(families: &MetricFamilies, mode: MetricsMode) -> Self {
        Self {
            rule_counters: RuleCounterFamilies::new(families, mode),
            shown_policy: Mutex::default(),
        }
    }

    /// Removes the series of rules whose retention time is over.
    pub(super) fn sweep(&self) {
        self.rule_counters.sweep();
    }
}

/// The counters of a loaded policy, and the names that its records contain.
///
/// It lives as long as the snapshot it belongs to and the records evaluated under it; the series of rules that no other
/// loaded policy contains are removed [`RETENTION`] later. Rules are identified by their index, in document order.
pub struct PolicyMetrics {
    metrics: Metrics,
    name: Box<str>,
    revision: Box<str>,
    rules: Box<[RuleSeries]>,
    shadow_stats: ShadowStats,
}

struct RuleSeries {
    /// The rule's id; in a shadow policy prefixed with the policy's name and a slash, which no id contains.
    id: Box<str>,
    mode: RuleMode,
    /// The label under which it is counted.
    label: RuleLabel,
    counters: Option<Arc<RuleCounters>>,
}

#[derive(Clone, Copy)]
enum RuleLabel {
    Own,
    Shared,
}

/// The counts of a rule since its series exist: over all policies that contained it, with gaps shorter than
/// [`RETENTION`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleCounts {
    /// The number of requests that it matched.
    pub matched: u64,
    /// The number of requests that it allowed.
    pub allowed: u64,
    /// The number of requests that it refused.
    pub rejected: u64,
    /// The time of the last match, to the second; recorded when the request has ended.
    pub last_match: Option<SystemTime>,
}

impl RuleCounts {
    /// Returns the number of requests that it decided.
    pub fn decided(&self) -> u64 {
        self.allowed + self.rejected
    }
}

impl Metrics {
    /// Exports the number of rules that can never act.
    pub fn set_inert_rules(&self, count: usize) {
        self.families().policy_rules_inert.set(gauge_value(count));
    }

    /// Resolves the counters of a policy that becomes active now, and exports it in `policy_info` and related families.
    ///
    /// `rules` are in the order of their indices. To be called before the old policy's value is dropped, so that rules
    /// in both keep their counts.
    pub fn register_policy<'r>(
        &self,
        name: &str,
        revision: &str,
        rules: impl IntoIterator<Item = (&'r RuleId, RuleMode, RuleKind)>,
        clock: &Clock,
    ) -> Arc<PolicyMetrics> {
        let policies = &self.0.policies;
        policies.rule_counters.set_clock(clock);
        let mut rule_count = 0;
        let rules: Box<[RuleSeries]> = rules
            .into_iter()
            .map(|(id, mode, kind)| {
                RuleSeries::resolve(policies, id.as_str(), mode, kind, &mut rule_count)
            })
            .collect();
        let disabled = rules
            .iter()
            .filter(|rule| rule.mode == RuleMode::Disabled)
            .count();
        let families = self.families();
        families.policy_rules.set(gauge_value(rules.len()));
        families.policy_rules_disabled.set(gauge_value(disabled));
        self.record_successful_load(clock.wall_time());
        families.policy_reloads.increment(ReloadResult::Success);
        self.set_policy_info(name, revision);
        Arc::new(PolicyMetrics {
            metrics: self.clone(),
            name: name.into(),
            revision: revision.into(),
            rules,
            shadow_stats: ShadowStats::default(),
        })
    }

    /// Resolves the counters of a shadow policy. Each rule is counted as `POLICY/RULE`, in mode `shadow`, so that it
    /// cannot be confused with one of the active policy.
    pub fn register_shadow_policy<'r>(
        &self,
        name: &str,
        revision: &str,
        rules: impl IntoIterator<Item = (&'r RuleId, RuleMode, RuleKind)>,
        clock: &Clock,
    ) -> Arc<PolicyMetrics> {
        let policies = &self.0.policies;
        policies.rule_counters.set_clock(clock);
        let mut rule_count = 0;
        let rules = rules.into_iter().map(|(id, mode, kind)| {
            let mode = if mode == RuleMode::Enforce {
                RuleMode::Shadow
            } else {
                RuleMode::Disabled
            };
            RuleSeries::resolve(
                policies,
                &format!("{name}/{id}"),
                mode,
                kind,
                &mut rule_count,
            )
        });
        Arc::new(PolicyMetrics {
            metrics: self.clone(),
            name: name.into(),
            revision: revision.into(),
            rules: rules.collect(),
            shadow_stats: ShadowStats::default(),
        })
    }

    /// Records that the policy was loaded again and is unchanged.
    pub fn record_unchanged_policy(&self, at: SystemTime) {
        self.record_successful_load(at);
        self.families()
            .policy_reloads
            .increment(ReloadResult::Unchanged);
    }

    /// Counts a policy that could not be loaded; the old one stays active.
    pub fn record_failed_reload(&self) {
        let families = self.families();
        families.policy_last_reload_success.set(0);
        families.policy_reloads.increment(ReloadResult::Failure);
    }

    /// Sets the time at which the reload in progress began; `None` if none is in progress.
    pub fn set_reload_start(&self, at: Option<SystemTime>) {
        let timestamp = at.map_or(0, unix_seconds);
        self.families().policy_reload_start.set(timestamp);
    }

    fn record_successful_load(&self, at: SystemTime) {
        let families = self.families();
        families.policy_last_reload_success.set(1);
        families.policy_last_reload_time.set(unix_seconds(at));
    }

    fn set_policy_info(&self, name: &str, revision: &str) {
        let info = &self.families().policy_info;
        let mut shown_policy = self.0.policies.shown_policy.lock();
        if let Some((old_name, old_revision)) = shown_policy.replace((name.into(), revision.into()))
            && (&*old_name, &*old_revision) != (name, revision)
        {
            let _ = info.remove_label_values(&[&*old_name, &*old_revision]);
        }
        info.with_label_values(&[name, revision]).set(1);
    }
}

fn unix_seconds(at: SystemTime) -> i64 {
    let timestamp = at
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    gauge_value(timestamp.as_secs())
}

impl RuleSeries {
    fn resolve(
        policies: &PolicySeries,
        id: &str,
        mode: RuleMode,
        kind: RuleKind,
        own: &mut usize,
    ) -> Self {
        let label = if *own < RULE_LABELS {
            RuleLabel::Own
        } else {
            RuleLabel::Shared
        };
        if mode != RuleMode::Disabled {
            *own += 1;
        }
        let mut series = Self {
            id: id.into(),
            mode,
            label,
            counters: None,
        };
        series.counters = policies.rule_counters.acquire(series.label(), mode, kind);
        series
    }

    fn label(&self) -> &str {
        match self.label {
            RuleLabel::Own => &self.id,
            RuleLabel::Shared => OTHER_RULES,
        }
    }
}

impl PolicyMetrics {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// Returns the name of a rule in headers, log and metrics: its id, or `POLICY/ID` in a shadow policy.
    pub fn rule_name(&self, rule: u32) -> Option<&str> {
        self.series(rule).map(|series| &*series.id)
    }

    /// The differences that shadows would have made under this policy.
    pub fn shadow_stats(&self) -> &ShadowStats {
        &self.shadow_stats
    }

    /// Returns the counts of a rule; `None` for a disabled one, for one that is counted together with others
    /// ([`OTHER_RULES`]), and if nothing is counted.
    pub fn counts(&self, rule: u32) -> Option<RuleCounts> {
        let series = self
            .series(rule)
            .filter(|series| matches!(series.label, RuleLabel::Own))?;
        series
            .counters
            .as_ref()
            .map(|counters| self.rule_counters().counts(counters))
    }

    /// Counts a match, in a request that ended at `at`.
    pub(super) fn record_match(&self, rule: u32, at: Instant) {
        if let Some(counters) = self
            .series(rule)
            .and_then(|series| series.counters.as_ref())
        {
            self.rule_counters().record_match(counters, at);
        }
    }

    /// Counts a request whose depth is unknown, although the policy depends on it.
    pub(crate) fn record_unknown_depth(&self) {
        if let Some(families) = self.metrics.enabled_families() {
            families.depth_unknown.inc();
        }
    }

    /// Counts a decision.
    pub(super) fn record_decision(&self, rule: u32, verdict: VerdictLabel) {
        let Some(series) = self.series(rule) else {
            return;
        };
        if let Some(counters) = &series.counters {
            self.rule_counters()
                .verdict_counter(counters, series.label(), series.mode, verdict)
                .inc();
        }
    }

    fn rule_counters(&self) -> &RuleCounterFamilies {
        &self.metrics.0.policies.rule_counters
    }

    fn series(&self, rule: u32) -> Option<&RuleSeries> {
        self.rules.get(rule as usize)
    }
}

impl fmt::Debug for PolicyMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "PolicyMetrics({}@{}, {} rules)",
            self.name,
            self.revision,
            self.rules.len()
        )
    }
}

impl Drop for PolicyMetrics {
    fn drop(&mut self) {
        let counted = self.rules.iter().filter(|rule| rule.counters.is_some());
        self.rule_counters()
            .release(counted.map(|rule| (rule.label(), rule.mode)));
    }
}
