//! A pipeline on the time of the runtime, for tests of stops.

use std::time::Duration;

use crawlgate::clock::Clock;
use crawlgate::model::crawler::Crawler;
use crawlgate::model::rule_id::Slug;
use crawlgate::pipeline::admission::AdmissionLimits;
use crawlgate::pipeline::snapshot::PolicySnapshot;

use crate::support::pipeline::{TestPipeline, snapshot_of};
use crate::support::policy::compile_policy;

pub(super) const SECOND: Duration = Duration::from_secs(1);

pub(super) const FREE: &str = "{ delay: 0s, max_hold: 20s }";

pub(super) fn pipeline(politeness: &str, rules: &str) -> TestPipeline {
    pipeline_with_total(politeness, rules, 100)
}

/// A pipeline that holds at most this number of requests.
pub(super) fn pipeline_with_total(politeness: &str, rules: &str, total: usize) -> TestPipeline {
    let limits = AdmissionLimits {
        per_host: 100,
        total,
        max_wait: 60 * SECOND,
    };
    let mut bench = TestPipeline::new(snapshot(politeness, rules), limits, Clock::from_runtime());
    bench.robots.may_fetch = true;
    bench
}

pub(super) fn snapshot(politeness: &str, rules: &str) -> PolicySnapshot {
    let text = format!(
        "policy: 1\nname: p\noptions: {{ disposition: allow, politeness: {politeness} }}\nrules: [{rules}]\n"
    );
    snapshot_of(compile_policy(text).policy)
}

pub(super) fn crawler(name: &str) -> Crawler {
    Crawler::new(&Slug::new(name).unwrap())
}
