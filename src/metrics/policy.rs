//! The counters of a loaded policy: several for each rule, resolved once, removed some time after the last policy that
//! contains the rule.
//!
//! Every rule is counted exactly ([`PolicyMetrics::counts`]), whatever their number. `rule` labels come from policies
//! only, never from requests, and are limited: `telemetry.rule_labels` rules in effect have their own, and as many that
//! are not in effect any more, or lost theirs, keep it for [`RETENTION`]. The rest shares [`OTHER_RULES`]. Each label
//! and mode has one series of matches and at most two of verdicts.

mod counters;
mod labels;
mod rules;
mod series;

use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use parking_lot::Mutex;

use crate::clock::Clock;
use crate::model::rule_id::RuleId;

use super::families::MetricFamilies;
use super::labels::{ReloadResult, RuleKind, RuleMode, VerdictLabel};
use super::series::gauge_value;
use super::shadow::ShadowStats;
use super::{Metrics, MetricsExtent};

use rules::PolicyRules;
use series::{PolicyRole, RuleCounterFamilies};

pub use series::RETENTION;

/// The number of rules with a label of their own, unless configured.
pub const DEFAULT_RULE_LABELS: usize = 2_000;
/// The `rule` label of all other rules.
pub const OTHER_RULES: &str = "__other__";

/// The series of loaded policies.
pub(super) struct PolicySeries {
    rule_counters: RuleCounterFamilies,
    /// The name and revision that `policy_info` shows.
    shown_policy: Mutex<Option<(Box<str>, Box<str>)>>,
}

impl PolicySeries {
    pub(super) fn new(families: &MetricFamilies, extent: MetricsExtent) -> Self {
        Self {
            rule_counters: RuleCounterFamilies::new(families, extent),
            shown_policy: Mutex::default(),
        }
    }

    /// Brings the series up to date, before they are read.
    pub(super) fn publish(&self) {
        self.rule_counters.publish();
    }
}

/// The counters of a loaded policy, and the names that its records contain.
///
/// It lives as long as the snapshot it belongs to and the records evaluated under it; the counts of rules that no other
/// loaded policy contains are removed [`RETENTION`] later. Rules are identified by their index, in document order.
pub struct PolicyMetrics {
    metrics: Metrics,
    name: Box<str>,
    revision: Box<str>,
    rules: Arc<PolicyRules>,
    shadow_stats: ShadowStats,
}

/// The counts of a rule since it was added: over all policies that contained it, with gaps shorter than
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
        let mut disabled = 0;
        let rules = rules.into_iter().inspect(|(_, mode, _)| {
            if *mode == RuleMode::Disabled {
                disabled += 1;
            }
        });
        let rule_counters = &self.0.policies.rule_counters;
        let rules = rule_counters.register(PolicyRole::Active, "", rules, clock);
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
        let rules = rules.into_iter().map(|(id, mode, kind)| {
            let mode = match mode {
                RuleMode::Enforce => RuleMode::Shadow,
                RuleMode::Shadow | RuleMode::Disabled => RuleMode::Disabled,
            };
            (id, mode, kind)
        });
        let rule_counters = &self.0.policies.rule_counters;
        let prefix = format!("{name}/");
        let rules = rule_counters.register(PolicyRole::Shadow, &prefix, rules, clock);
        Arc::new(PolicyMetrics {
            metrics: self.clone(),
            name: name.into(),
            revision: revision.into(),
            rules,
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

impl PolicyMetrics {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// Returns the name of a rule in headers, log and metrics: its id, or `POLICY/ID` in a shadow policy.
    pub fn rule_name(&self, rule: u32) -> Option<&str> {
        self.rules.name(rule)
    }

    /// The differences that shadows would have made under this policy.
    pub fn shadow_stats(&self) -> &ShadowStats {
        &self.shadow_stats
    }

    /// Returns the counts of a rule; `None` for a disabled one, and if nothing is counted.
    pub fn counts(&self, rule: u32) -> Option<RuleCounts> {
        let counters = self.rules.counters(rule)?;
        Some(self.rule_counters().counts(counters))
    }

    /// Counts a match, in a request that ended at `at`.
    pub(super) fn record_match(&self, rule: u32, at: Instant) {
        if let Some(counters) = self.rules.counters(rule) {
            self.rule_counters().record_match(counters, at);
        }
    }

    /// Counts a request whose depth is unknown, although the policy depends on it.
    pub(crate) fn record_unknown_depth(&self) {
        self.metrics.update(|families| families.depth_unknown.inc());
    }

    /// Counts a decision.
    pub(super) fn record_decision(&self, rule: u32, verdict: VerdictLabel) {
        if let Some(counters) = self.rules.counters(rule) {
            counters.record_verdict(verdict);
        }
    }

    fn rule_counters(&self) -> &RuleCounterFamilies {
        &self.metrics.0.policies.rule_counters
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
        self.rule_counters().release(&self.rules);
    }
}
