//! The decision about a tunnel: three verdicts, no look-up before a refusal, and an evaluation of every address.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crawlgate::clock::Clock;
use crawlgate::pipeline::admission::AdmissionLimits;
use crawlgate::pipeline::snapshot::PolicySnapshot;
use crawlgate::pipeline::tunnel::{TunnelDecision, TunnelResult};

use crate::support::pipeline::{StaticAddresses, StaticResolver, TestPipeline, snapshot_of};
use crate::support::policy::compile_policy;

/// A policy that allows everything that none of these rules refuses.
fn snapshot(rules: &str) -> PolicySnapshot {
    let text = format!("policy: 1\nname: t\noptions: {{ disposition: allow }}\nrules:\n{rules}\n");
    snapshot_of(compile_policy(text).policy)
}

fn resolver(addresses: &[&str]) -> StaticResolver {
    let addresses: Vec<IpAddr> = addresses.iter().map(|a| a.parse().unwrap()).collect();
    StaticResolver::new(move |_| addresses.clone())
}

async fn passage(
    rules: &str,
    authority: &str,
    resolver: &StaticResolver,
) -> TunnelResult<StaticAddresses> {
    let limits = AdmissionLimits {
        per_host: 1,
        total: 1,
        max_wait: Duration::ZERO,
    };
    let pipeline = TestPipeline {
        resolver: resolver.clone(),
        ..TestPipeline::new(snapshot(rules), limits, Clock::system())
    };
    pipeline.admit_tunnel(authority, Duration::ZERO).await
}

/// Checks the verdict, then the reason and the rule of the refusal or the addresses of the permit, then the number of look-ups.
async fn check(rules: &str, verdict: TunnelDecision, outcome: &str, lookups: usize) {
    let names = resolver(&["192.0.2.1", "198.51.100.7"]);
    let TunnelResult {
        outcome: got,
        evaluation: judged,
        ..
    } = passage(rules, "a.test:443", &names).await;
    let got = match got {
        Ok(permit) => {
            let (host, StaticAddresses(addresses), _slot) = permit.redeem();
            assert_eq!(host.authority(), "a.test");
            addresses
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" ")
        }
        Err(refusal) => {
            let rule = refusal.rule.as_ref().map_or("-", |rule| rule.as_str());
            format!("{} {rule}", refusal.reason.as_str())
        }
    };
    let expected = (verdict, outcome, lookups);
    assert_eq!(
        (judged.verdict(), got.as_str(), names.lookups()),
        expected,
        "{rules}"
    );
}

#[tokio::test]
async fn hosts_are_evaluated_before_the_look_up_and_addresses_after_it() {
    use TunnelDecision::{Admit, Reject, Undecided};
    let both = "192.0.2.1 198.51.100.7";
    for (rules, verdict, outcome, lookups) in [
        ("  - { id: x, forbid: { host: b.test } }", Admit, both, 1),
        (
            "  - { id: x, forbid: { host: a.test } }",
            Reject,
            "rule x",
            0,
        ),
        ("  - { id: x, forbid: { port: 443 } }", Reject, "rule x", 0),
        ("  - { id: x, forbid: { scheme: http } }", Admit, both, 1),
        (
            "  - { id: x, forbid: { crawler: anonymous } }",
            Reject,
            "rule x",
            0,
        ),
        (
            "  - { id: x, forbid: { under: /private } }",
            Undecided,
            "undecided x",
            0,
        ),
        (
            "  - { id: x, forbid: { content_type: image/* } }",
            Undecided,
            "undecided x",
            0,
        ),
        (
            "  - { id: x, forbid: { all: [ { host: b.test }, { under: /private } ] } }",
            Admit,
            both,
            1,
        ),
        // `tunnel_undecided: allow`, for this host and for another.
        (
            "  - { id: o, when: { host: a.test }, set: { tunnel_undecided: allow } }\n  - { id: x, forbid: { under: /p } }",
            Undecided,
            both,
            1,
        ),
        (
            "  - { id: o, when: { host: b.test }, set: { tunnel_undecided: allow } }\n  - { id: x, forbid: { under: /p } }",
            Undecided,
            "undecided x",
            0,
        ),
        // By address.
        (
            "  - { id: x, forbid: { address: 192.0.2.0/24 } }",
            Admit,
            "198.51.100.7",
            1,
        ),
        (
            "  - { id: x, forbid: { address: [192.0.2.0/24, 198.51.100.0/24] } }",
            Reject,
            "rule x",
            1,
        ),
        (
            "  - { id: x, forbid: { address: 203.0.113.0/24 } }",
            Admit,
            both,
            1,
        ),
        (
            "  - { id: x, forbid: { all: [ { address: 192.0.2.0/24 }, { under: /p } ] } }",
            Admit,
            "198.51.100.7",
            1,
        ),
        (
            "  - { id: x, forbid: { address: 10.0.0.0/8 } }\n  - { id: y, forbid: { host: a.test } }",
            Reject,
            "rule y",
            0,
        ),
    ] {
        check(rules, verdict, outcome, lookups).await;
    }
}

#[tokio::test]
async fn an_undecided_tunnel_gets_the_rule_and_the_remedies() {
    let names = resolver(&["192.0.2.1"]);
    let passage = passage(
        "  - { id: half, forbid: { under: /p } }",
        "a.test:443",
        &names,
    )
    .await;
    let refusal = passage.outcome.unwrap_err();
    let detail = refusal.detail.unwrap();
    for part in ["half", "tls: intercept", "tunnel_undecided: allow"] {
        assert!(detail.contains(part), "{detail}");
    }
}

#[tokio::test]
async fn an_open_tunnel_is_evaluated_by_the_active_policy() {
    let names = resolver(&["192.0.2.1"]);
    let mut judged = passage(
        "  - { id: x, forbid: { host: b.test } }",
        "a.test:443",
        &names,
    )
    .await
    .evaluation;
    let address = Some("192.0.2.1".parse().unwrap());
    for (rules, refused) in [
        ("  - { id: x, forbid: { host: a.test } }", Some("rule")),
        ("  - { id: x, forbid: { host: c.test } }", None),
        ("  - { id: x, forbid: { under: /p } }", Some("undecided")),
        (
            "  - { id: x, forbid: { address: 192.0.2.0/24 } }",
            Some("rule"),
        ),
        ("  - { id: x, forbid: { address: 198.51.100.0/24 } }", None),
    ] {
        let now = judged.re_evaluate(Arc::new(snapshot(rules)), address);
        assert_eq!(
            now.err().map(|refusal| refusal.reason.as_str()),
            refused,
            "{rules}"
        );
    }
    assert_eq!(names.lookups(), 1, "a tunnel stays where it is");
}
