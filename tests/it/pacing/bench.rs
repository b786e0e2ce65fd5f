//! A pipeline with two addresses and a robots.txt, on a clock of the test.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use crawlgate::clock::Clock;
use crawlgate::pipeline::admission::AdmissionLimits;

use crate::support::pipeline::{
    Admission, ScriptedRobots, StaticResolver, TestPipeline, snapshot_of,
};
use crate::support::policy::compile_policy;

/// A pipeline with these options in YAML's flow style, which ignores robots.txt.
pub(super) fn pipeline(politeness: &str, clock: Clock) -> TestPipeline {
    pipeline_with_robots("{ obey: false }", politeness, "", "", clock)
}

/// A pipeline with the options `robots` and `politeness`, rules, and the robots.txt of every host. Hosts with one letter
/// before the dot have the address 192.0.2.1, others 192.0.2.2.
pub(super) fn pipeline_with_robots(
    robots: &str,
    politeness: &str,
    rules: &str,
    file: &str,
    clock: Clock,
) -> TestPipeline {
    let policy = compile_policy(format!(
        "policy: 1\nname: p\noptions: {{ disposition: allow, robots: {robots}, politeness: {politeness} }}\n\
         rules: [{rules}]\n"
    ));
    let limits = AdmissionLimits {
        per_host: 100,
        total: 1_000,
        max_wait: Duration::from_secs(600),
    };
    let robots = ScriptedRobots::with_file(file, clock.now());
    TestPipeline {
        robots,
        resolver: StaticResolver::new(|host| {
            let last = if host.find('.') == Some(1) { 1 } else { 2 };
            vec![IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))]
        }),
        ..TestPipeline::new(snapshot_of(policy.policy), limits, clock)
    }
}

impl TestPipeline {
    /// Makes a request with this value of `Sec-Fetch-Dest`: `document`, `image`.
    pub(super) async fn ask_for(&self, url: &str, dest: &str) -> Admission {
        self.ask_with(url, &[("sec-fetch-dest", dest)]).await
    }

    /// Makes a request that is admitted, sent, and answered with this number of bytes; returns the time for which it was
    /// held.
    pub(super) async fn pass_bytes(&self, url: &str, bytes: usize) -> Option<Duration> {
        let (mut slot, held) = self.ask(url).await.admitted();
        slot.record_sent();
        slot.record_received(bytes);
        slot.record_response(http::StatusCode::OK, &http::HeaderMap::new());
        held
    }
}

/// Lets everything that is ready run, without time passing.
pub(super) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
