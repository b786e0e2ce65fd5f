//! The counters of a loaded policy: some for each rule, resolved once, gone some time after the last policy that has it.
//!
//! `rule` labels come from policies only, never from requests, and at most [`RULE_LABELS`] of each policy have a
//! label of their own. With a mode each has one series of matches and at most two of verdicts. So there are never more
//! pairs of label and mode than [`RULE_LABELS`] and two (the shared label in both modes) for each policy that is loaded,
//! which are the one in force, the one in its shadow and those under which requests are still judged, and
//! [`RULE_LABELS`] of rules that are gone.

mod series;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use prometheus::{IntCounter, IntGauge, IntGaugeVec};

use crate::clock::Clock;
use crate::model::rule_id::RuleId;

use super::labels::{MetricsMode, RuleKind, RuleMode, VerdictLabel};
use super::names;
use super::series::{Error, Registrar};
use super::shadow::ShadowStats;
use super::{MetricFamilies, Metrics};

use series::{RuleCounterFamilies, RuleCounters};

pub use series::RETENTION;

/// How many rules of a policy are counted under their own id; the rest share [`OTHER_RULES`].
pub const RULE_LABELS: usize = 2_000;
/// The `rule` of those that do not.
pub const OTHER_RULES: &str = "__other__";

/// The families that speak of policies.
pub(super) struct PolicyFamilies {
    info: IntGaugeVec,
    last_success: IntGauge,
    last_success_time: IntGauge,
    reloaded: IntCounter,
    failed: IntCounter,
    unchanged: IntCounter,
    rules: IntGauge,
    rules_disabled: IntGauge,
    rule_counters: RuleCounterFamilies,
    /// Name and revision that `policy_info` shows.
    shown_policy: Mutex<Option<(Box<str>, Box<str>)>>,
}

impl PolicyFamilies {
    pub(super) fn register(new: &Registrar<'_>, counting: MetricsMode) -> Result<Self, Error> {
        let reloads = new.counters(&names::POLICY_RELOADS)?;
        Ok(Self {
            info: new.gauges(&names::POLICY_INFO)?,
            last_success: new.gauge(&names::POLICY_LAST_RELOAD_SUCCESS)?,
            last_success_time: new.gauge(&names::POLICY_LAST_RELOAD_TIMESTAMP)?,
            reloaded: reloads.get_metric_with_label_values(&["success"])?,
            failed: reloads.get_metric_with_label_values(&["failure"])?,
            unchanged: reloads.get_metric_with_label_values(&["unchanged"])?,
            rules: new.gauge(&names::POLICY_RULES)?,
            rules_disabled: new.gauge(&names::POLICY_RULES_DISABLED)?,
            rule_counters: RuleCounterFamilies::register(new, counting)?,
            shown_policy: Mutex::default(),
        })
    }

    fn record_success(&self, at: SystemTime) {
        self.last_success.set(1);
        let unix = at
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        self.last_success_time
            .set(i64::try_from(unix).unwrap_or(i64::MAX));
    }

    /// Removes the series of rules that have been gone for long.
    pub(super) fn sweep(&self) {
        self.rule_counters.sweep();
    }

    fn set_info(&self, name: &str, revision: &str) {
        let mut shown = self
            .shown_policy
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((old_name, old_revision)) = shown.replace((name.into(), revision.into()))
            && (&*old_name, &*old_revision) != (name, revision)
        {
            let _ = self.info.remove_label_values(&[&*old_name, &*old_revision]);
        }
        self.info.with_label_values(&[name, revision]).set(1);
    }
}

/// The counters of one loaded policy, and the names that its records carry.
///
/// It lives as long as the snapshot it belongs to and the records judged under it; the series of rules that no other
/// loaded policy has are removed [`RETENTION`] later. Rules are named by their index in the policy, in document order.
pub struct PolicyMetrics {
    families: Arc<MetricFamilies>,
    name: Box<str>,
    revision: Box<str>,
    rules: Box<[RuleSeries]>,
    shadow_stats: ShadowStats,
}

struct RuleSeries {
    /// Its id; in a shadow policy behind the policy's name and a slash, which no id has.
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

/// What a rule has done since its series exist: over all policies that had it, with gaps shorter than [`RETENTION`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleCounts {
    /// Requests for which it matched.
    pub matched: u64,
    /// Requests that it let through.
    pub allowed: u64,
    /// Requests that it refused.
    pub rejected: u64,
    /// When it matched last, to the second; it is known when the request has ended.
    pub last_match: Option<SystemTime>,
}

impl RuleCounts {
    /// Requests that it decided.
    pub fn decided(&self) -> u64 {
        self.allowed + self.rejected
    }
}

impl Metrics {
    /// Resolves the counters of a policy that takes force now, and shows it in `policy_info` and its companions.
    ///
    /// `rules` in the order of their indices. Call it before the old policy's value is dropped, so that rules which
    /// both have go on counting.
    pub fn register_policy<'r>(
        &self,
        name: &str,
        revision: &str,
        rules: impl IntoIterator<Item = (&'r RuleId, RuleMode, RuleKind)>,
        clock: &Clock,
    ) -> Arc<PolicyMetrics> {
        let families = &self.families().policy;
        families.rule_counters.set_clock(clock);
        let mut own = 0;
        let rules: Box<[RuleSeries]> = rules
            .into_iter()
            .map(|(id, mode, kind)| {
                RuleSeries::resolve(families, id.as_str(), mode, kind, &mut own)
            })
            .collect();
        let disabled = rules
            .iter()
            .filter(|rule| rule.mode == RuleMode::Disabled)
            .count();
        families.rules.set(gauge_value(rules.len()));
        families.rules_disabled.set(gauge_value(disabled));
        families.record_success(clock.wall_time());
        families.reloaded.inc();
        families.set_info(name, revision);
        let families = Arc::clone(&self.0);
        let book = ShadowStats::default();
        Arc::new(PolicyMetrics {
            families,
            name: name.into(),
            revision: revision.into(),
            rules,
            shadow_stats: book,
        })
    }

    /// Resolves the counters of a policy that is judged in shadow of the live one. Each rule is counted as
    /// `POLICY/RULE`, in mode `shadow`, so that it cannot be mixed up with one of the live policy.
    pub fn register_shadow_policy<'r>(
        &self,
        name: &str,
        revision: &str,
        rules: impl IntoIterator<Item = (&'r RuleId, RuleMode, RuleKind)>,
        clock: &Clock,
    ) -> Arc<PolicyMetrics> {
        let families = &self.families().policy;
        families.rule_counters.set_clock(clock);
        let mut own = 0;
        let series = |(id, mode, kind): (&RuleId, RuleMode, RuleKind)| {
            let mode = if mode == RuleMode::Enforce {
                RuleMode::Shadow
            } else {
                RuleMode::Disabled
            };
            RuleSeries::resolve(families, &format!("{name}/{id}"), mode, kind, &mut own)
        };
        let rules = rules.into_iter().map(series).collect();
        let (families, book) = (Arc::clone(&self.0), ShadowStats::default());
        Arc::new(PolicyMetrics {
            families,
            name: name.into(),
            revision: revision.into(),
            rules,
            shadow_stats: book,
        })
    }

    /// The policy was read again and is what was in force.
    pub fn record_unchanged_policy(&self, at: SystemTime) {
        let families = &self.families().policy;
        families.record_success(at);
        families.unchanged.inc();
    }

    /// Counts a policy that could not be loaded; the old one stays in force.
    pub fn record_failed_reload(&self) {
        let families = &self.families().policy;
        families.last_success.set(0);
        families.failed.inc();
    }
}

fn gauge_value(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl RuleSeries {
    fn resolve(
        families: &PolicyFamilies,
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
        series.counters = families.rule_counters.acquire(series.label(), mode, kind);
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
    /// The policy's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The policy's revision.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// The name of a rule in headers, log and metrics: its id, or `POLICY/ID` in a shadow policy.
    pub fn rule_name(&self, rule: u32) -> Option<&str> {
        self.series(rule).map(|series| &*series.id)
    }

    /// What shadows would have changed under this policy.
    pub fn shadow_stats(&self) -> &ShadowStats {
        &self.shadow_stats
    }

    /// What a rule did; `None` for one that takes no part, or is counted together with others ([`OTHER_RULES`]), or if
    /// nothing is counted.
    pub fn counts(&self, rule: u32) -> Option<RuleCounts> {
        let series = self
            .series(rule)
            .filter(|series| matches!(series.label, RuleLabel::Own))?;
        series
            .counters
            .as_ref()
            .map(|counters| self.rule_counters().counts(counters))
    }

    /// Counts a rule that matched, in a request that ended `at` this time.
    pub(super) fn record_match(&self, rule: u32, at: Instant) {
        if let Some(counters) = self
            .series(rule)
            .and_then(|series| series.counters.as_ref())
        {
            self.rule_counters().record_match(counters, at);
        }
    }

    /// Counts a rule that decided.
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
        &self.families.policy.rule_counters
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
