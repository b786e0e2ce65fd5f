//! Requests that wait for room in a full ledger.

use crawlgate::clock::Clock;
use crawlgate::ledger::key::LedgerKey;
use crawlgate::ledger::observation::{
    BadOutcome, DeliveredDocument, ObservationOutcome, ObservedRefusal, RefusalRecording,
};
use crawlgate::model::crawl_status::CrawlStatus;
use crawlgate::model::crawler::Crawler;
use crawlgate::model::removal::{RemovalAction, RemovalOutcome};
use crawlgate::model::rule_id::Slug;
use crawlgate::pipeline::admission::AdmissionLimits;
use crawlgate::pipeline::request::{RequestServices, admit_request};
use crawlgate::store::ledger::{Ledger, LedgerFullAction, LedgerSettings};

use crate::support::ledger::{delivered, observation};
use crate::support::pipeline::{KnownRequest, TestPipeline, request_facts, snapshot_of};
use crate::support::policy::compile_policy;

const REMOVED: &str = "http://a.test/removed";
/// The writer may make room before the request; then it is sent again.
const MAX_REQUESTS: u64 = 200_000;

/// A ledger with room for one change, and a page that was removed from the index.
fn small_ledger() -> Ledger {
    let ledger = Ledger::in_memory_with(LedgerSettings {
        queue: 1,
        on_full: LedgerFullAction::Wait,
        ..LedgerSettings::default()
    });
    let page = delivered(DeliveredDocument::default());
    ledger.record(observation("news", REMOVED, 1, page));
    let refusal = ObservationOutcome::SweptRefusal(ObservedRefusal {
        crawl_status: CrawlStatus::Filter,
        code: None,
        removal: Some(BadOutcome {
            outcome: RemovalOutcome::Rule,
            action: RemovalAction::Remove,
        }),
        recording: RefusalRecording::Skip,
    });
    ledger.record(observation("news", REMOVED, 2, refusal));
    let record = ledger
        .look_up(LedgerKey::for_url("news", REMOVED))
        .expect("the page is known");
    assert!(record.lacks_document());
    ledger
}

/// A policy that does not need the ledger still records the outcome of a URL that an index lacks.
#[tokio::test]
async fn a_url_that_the_index_lacks_waits_for_room_under_any_policy() {
    let text = "policy: 1\nname: p\noptions: { disposition: allow, robots: { obey: false }, politeness: { delay: 0s } }\n";
    let limits = AdmissionLimits {
        per_host: 10,
        total: 10,
        max_wait: std::time::Duration::from_secs(1),
    };
    let snapshot = snapshot_of(compile_policy(text).policy);
    let bench = TestPipeline::new(snapshot, limits, Clock::system());
    let ledger = small_ledger();
    let services = RequestServices {
        destinations: &bench.resolver,
        robots: &bench.robots,
        active_policy: &bench.active_policy,
        admission: &bench.admission,
        ledger: Some(&ledger),
    };
    let get = async |url: &str, at: u64| {
        let page = delivered(DeliveredDocument::default());
        ledger.record(observation(
            "news",
            &format!("http://b.test/{at}"),
            at,
            page,
        ));
        let crawler = Crawler::new(&Slug::new("news").unwrap());
        let facts = request_facts(crawler, url, &[]);
        let policy = bench.active_policy.load();
        let result = admit_request(&mut KnownRequest(facts), &mut (), policy, &services).await;
        assert!(result.unwrap().outcome.is_ok(), "{url}");
        ledger.stats().waits
    };
    for at in 0..1_000 {
        let waits = get("http://a.test/other", at).await;
        assert_eq!(waits, 0, "it needs no room");
    }
    for at in 1_000..MAX_REQUESTS {
        if get(REMOVED, at).await > 0 {
            return;
        }
    }
    panic!("no request has waited");
}
