//! What the gate says of a tunnel: three values, no look-up for a refusal, every address judged.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crawlgate::clock::Clock;
use crawlgate::metrics::Metrics;
use crawlgate::model::crawler::Crawler;
use crawlgate::pipeline::admission::{AdmissionLimits, AdmissionQueue};
use crawlgate::pipeline::destination::{
    AddressList, DestinationError, DestinationResolver, RemainingAddresses,
};
use crawlgate::pipeline::snapshot::{ActivePolicy, PolicySnapshot};
use crawlgate::pipeline::tunnel::{
    TunnelDecision, TunnelFacts, TunnelResult, TunnelServices, admit_tunnel,
};
use crawlgate::policy::compile::load;
use crawlgate::policy::source::MemoryFileSystem;
use crawlgate::store::HostStore;
use crawlgate::urls::target::{HostTarget, UrlTarget};

use crate::support::way::snapshot_of;

/// Answers every look-up with the same addresses, and counts them.
struct Names {
    addresses: Vec<IpAddr>,
    asked: AtomicUsize,
}

#[derive(Debug)]
struct Found(Vec<IpAddr>);

impl AddressList for Found {
    fn retain(&mut self, keep: &mut dyn FnMut(IpAddr) -> bool) -> RemainingAddresses {
        self.0.retain(|address| keep(*address));
        if self.0.is_empty() {
            RemainingAddresses::None
        } else {
            RemainingAddresses::Some
        }
    }

    fn first(&self) -> Option<IpAddr> {
        self.0.first().copied()
    }

    fn lookup_time(&self) -> Option<crawlgate::clock::TimeSpan> {
        None
    }
}

impl DestinationResolver for Names {
    type Addresses = Found;

    async fn vet(&self, _: &UrlTarget) -> Result<Found, DestinationError> {
        unreachable!("a tunnel has no URL")
    }

    async fn vet_host(&self, _: &HostTarget) -> Result<Found, DestinationError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Ok(Found(self.addresses.clone()))
    }
}

/// A policy that allows what none of these rules refuses.
fn snapshot(rules: &str) -> PolicySnapshot {
    let text = format!("policy: 1\nname: t\noptions: {{ disposition: allow }}\nrules:\n{rules}\n");
    let files = MemoryFileSystem::new().with_file("p.yaml", text);
    let compiled =
        load(&files, "p.yaml").unwrap_or_else(|problems| panic!("{rules}: {problems:?}"));
    snapshot_of(compiled.policy)
}

fn asked(authority: &str) -> TunnelFacts {
    TunnelFacts {
        host: HostTarget::parse_authority(authority).unwrap(),
        crawler: Crawler::anonymous(),
    }
}

fn names(addresses: &[&str]) -> Names {
    Names {
        addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
        asked: AtomicUsize::new(0),
    }
}

async fn passage(rules: &str, authority: &str, names: &Names) -> TunnelResult<Found> {
    let in_force = ActivePolicy::new(snapshot(rules));
    let limits = AdmissionLimits {
        per_host: 1,
        total: 1,
        max_wait: Duration::ZERO,
    };
    let metrics = Metrics::new(&[], &[]).unwrap();
    let hold = Arc::new(AdmissionQueue::new(
        HostStore::new(),
        limits,
        Clock::system(),
        metrics,
    ));
    let patience = Duration::ZERO;
    let way = TunnelServices {
        destinations: names,
        active_policy: &in_force,
        admission: &hold,
        max_wait: patience,
    };
    admit_tunnel(asked(authority), in_force.load(), &way).await
}

/// What the policy says; the reason and the rule of the refusal, or the addresses of the permit; look-ups.
async fn check(rules: &str, verdict: TunnelDecision, outcome: &str, lookups: usize) {
    let names = names(&["192.0.2.1", "198.51.100.7"]);
    let TunnelResult {
        outcome: got,
        evaluation: judged,
        ..
    } = passage(rules, "a.test:443", &names).await;
    let got = match got {
        Ok(permit) => {
            let (host, Found(addresses), _slot) = permit.redeem();
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
        (
            judged.verdict(),
            got.as_str(),
            names.asked.load(Ordering::SeqCst)
        ),
        expected,
        "{rules}"
    );
}

#[tokio::test]
async fn hosts_are_judged_before_they_are_looked_up_and_addresses_behind_that() {
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
async fn an_undecided_tunnel_is_told_the_rule_and_the_ways_out() {
    let names = names(&["192.0.2.1"]);
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
async fn an_open_tunnel_is_judged_by_the_policy_of_the_day() {
    let names = names(&["192.0.2.1"]);
    let mut judged = passage(
        "  - { id: x, forbid: { host: b.test } }",
        "a.test:443",
        &names,
    )
    .await
    .evaluation;
    let address = "192.0.2.1".parse().unwrap();
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
    assert_eq!(
        names.asked.load(Ordering::SeqCst),
        1,
        "a tunnel stays where it is"
    );
}
