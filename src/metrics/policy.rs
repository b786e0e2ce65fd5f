//! The counters of a loaded policy: one pair for each rule, resolved once, gone with the last policy that has the rule.
//!
//! `rule` labels come from policies only, never from requests, and at most [`RULE_LABELS`] of each policy have a
//! label of their own.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use crate::vocab::rule_id::RuleId;

use super::labels::RuleMode;
use super::names;
use super::series::{Error, Registrar};
use super::shadow::Book;
use super::{Families, Metrics};

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
    matched: IntCounterVec,
    decided: IntCounterVec,
    books: Mutex<Books>,
}

/// What must change together when policies come and go.
#[derive(Default)]
struct Books {
    /// How many living policies have a rule's series.
    users: BTreeMap<(Box<str>, RuleMode), usize>,
    /// Name and revision that `policy_info` shows.
    shown: Option<(Box<str>, Box<str>)>,
}

impl PolicyFamilies {
    pub(super) fn register(new: &Registrar<'_>) -> Result<Self, Error> {
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
            matched: new.counters(&names::RULE_MATCHED)?,
            decided: new.counters(&names::RULE_DECIDED)?,
            books: Mutex::default(),
        })
    }

    fn succeeded(&self, at: SystemTime) {
        self.last_success.set(1);
        let unix = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        self.last_success_time.set(i64::try_from(unix).unwrap_or(i64::MAX));
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, name: &str, revision: &str) {
        let shown = self.books().shown.replace((name.into(), revision.into()));
        if let Some((old_name, old_revision)) = shown
            && (&*old_name, &*old_revision) != (name, revision)
        {
            let _ = self.info.remove_label_values(&[&*old_name, &*old_revision]);
        }
        self.info.with_label_values(&[name, revision]).set(1);
    }

    /// Resolves a series, and notes one more user of it.
    fn claim(&self, rule: &str, mode: RuleMode) -> Counters {
        let mut books = self.books();
        *books.users.entry((rule.into(), mode)).or_default() += 1;
        let labels = [rule, mode.as_str()];
        Counters {
            matched: self.matched.with_label_values(&labels),
            decided: self.decided.with_label_values(&labels),
        }
    }

    /// Notes one user less, and removes the series with the last.
    fn release(&self, rule: &str, mode: RuleMode) {
        let mut books = self.books();
        let key = (rule.into(), mode);
        let left = books.users.get(&key).map_or(0, |users| users.saturating_sub(1));
        if left > 0 {
            books.users.insert(key, left);
            return;
        }
        books.users.remove(&key);
        let labels = [rule, mode.as_str()];
        let _ = self.matched.remove_label_values(&labels);
        let _ = self.decided.remove_label_values(&labels);
    }
}

/// The counters of one loaded policy, and the names that its records carry.
///
/// It lives as long as the snapshot it belongs to and the records judged under it; then the series of rules that no
/// other loaded policy has are removed. Rules are named by their index in the policy, in document order.
pub struct PolicyMetrics {
    families: Arc<Families>,
    name: Box<str>,
    revision: Box<str>,
    rules: Box<[RuleSeries]>,
    book: Book,
}

struct RuleSeries {
    /// Its id; in a shadow policy behind the policy's name and a slash, which no id has.
    id: Box<str>,
    mode: RuleMode,
    /// The label under which it is counted.
    label: Label,
    counters: Option<Counters>,
}

#[derive(Clone, Copy)]
enum Label {
    Own,
    Shared,
}

#[derive(Clone)]
struct Counters {
    matched: IntCounter,
    decided: IntCounter,
}

impl Metrics {
    /// Resolves the counters of a policy that takes force now, and shows it in `policy_info` and its companions.
    ///
    /// `rules` in the order of their indices. Call it before the old policy's value is dropped, so that rules which
    /// both have go on counting.
    pub fn policy_loaded<'r>(
        &self,
        name: &str,
        revision: &str,
        rules: impl IntoIterator<Item = (&'r RuleId, RuleMode)>,
        at: SystemTime,
    ) -> Arc<PolicyMetrics> {
        let families = &self.families().policy;
        let mut own = 0;
        let rules: Box<[RuleSeries]> = rules
            .into_iter()
            .map(|(id, mode)| RuleSeries::resolve(families, id.as_str(), mode, &mut own))
            .collect();
        let disabled = rules.iter().filter(|rule| rule.mode == RuleMode::Disabled).count();
        families.rules.set(gauge(rules.len()));
        families.rules_disabled.set(gauge(disabled));
        families.succeeded(at);
        families.reloaded.inc();
        families.show(name, revision);
        let families = Arc::clone(&self.0);
        let book = Book::default();
        Arc::new(PolicyMetrics { families, name: name.into(), revision: revision.into(), rules, book })
    }

    /// Resolves the counters of a policy that is judged in shadow of the live one. Each rule is counted as
    /// `POLICY/RULE`, in mode `shadow`, so that it cannot be mixed up with one of the live policy.
    pub fn shadow_loaded<'r>(
        &self,
        name: &str,
        revision: &str,
        rules: impl IntoIterator<Item = (&'r RuleId, RuleMode)>,
    ) -> Arc<PolicyMetrics> {
        let families = &self.families().policy;
        let mut own = 0;
        let series = |(id, mode): (&RuleId, RuleMode)| {
            let mode = if mode == RuleMode::Enforce { RuleMode::Shadow } else { RuleMode::Disabled };
            RuleSeries::resolve(families, &format!("{name}/{id}"), mode, &mut own)
        };
        let rules = rules.into_iter().map(series).collect();
        let (families, book) = (Arc::clone(&self.0), Book::default());
        Arc::new(PolicyMetrics { families, name: name.into(), revision: revision.into(), rules, book })
    }

    /// The policy was read again and is what was in force.
    pub fn policy_unchanged(&self, at: SystemTime) {
        let families = &self.families().policy;
        families.succeeded(at);
        families.unchanged.inc();
    }

    /// Counts a policy that could not be loaded; the old one stays in force.
    pub fn policy_failed(&self) {
        let families = &self.families().policy;
        families.last_success.set(0);
        families.failed.inc();
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl RuleSeries {
    fn resolve(families: &PolicyFamilies, id: &str, mode: RuleMode, own: &mut usize) -> Self {
        let label = if *own < RULE_LABELS { Label::Own } else { Label::Shared };
        let mut series = Self { id: id.into(), mode, label, counters: None };
        if mode != RuleMode::Disabled {
            *own += 1;
            series.counters = Some(families.claim(series.label(), mode));
        }
        series
    }

    fn label(&self) -> &str {
        match self.label {
            Label::Own => &self.id,
            Label::Shared => OTHER_RULES,
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
    pub fn shown(&self, rule: u32) -> Option<&str> {
        self.series(rule).map(|series| &*series.id)
    }

    /// What shadows would have changed under this policy.
    pub fn book(&self) -> &Book {
        &self.book
    }

    /// How often a rule matched and how often it decided; `None` for one that takes no part.
    pub fn counts(&self, rule: u32) -> Option<(u64, u64)> {
        let counters = self.series(rule)?.counters.as_ref()?;
        Some((counters.matched.get(), counters.decided.get()))
    }

    /// Counts a rule that matched.
    pub(super) fn matched(&self, rule: u32) {
        if let Some(counters) = self.series(rule).and_then(|series| series.counters.as_ref()) {
            counters.matched.inc();
        }
    }

    /// Counts a rule that decided.
    pub(super) fn decided(&self, rule: u32) {
        if let Some(counters) = self.series(rule).and_then(|series| series.counters.as_ref()) {
            counters.decided.inc();
        }
    }

    fn series(&self, rule: u32) -> Option<&RuleSeries> {
        self.rules.get(rule as usize)
    }
}

impl fmt::Debug for PolicyMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PolicyMetrics({}@{}, {} rules)", self.name, self.revision, self.rules.len())
    }
}

impl Drop for PolicyMetrics {
    fn drop(&mut self) {
        for rule in self.rules.iter().filter(|rule| rule.counters.is_some()) {
            self.families.policy.release(rule.label(), rule.mode);
        }
    }
}
