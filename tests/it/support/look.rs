//! Looks at URLs, as the ledger is told of them.

use crawlgate::ledger::key::LedgerKey;
use crawlgate::ledger::observation::{
    DeliveredDocument, FailureKind, ObservationOutcome, ObservedResponse, UrlObservation,
};
use crawlgate::ledger::record::UnixMillis;
use crawlgate::model::crawl_status::CrawlStatus;
use crawlgate::store::ledger::LedgerUpdate;

/// A look at a URL of which nothing but this is known, under revision 3f9c2a1b.
pub(crate) fn look(crawler: &str, url: &str, at: u64, what: ObservationOutcome) -> LedgerUpdate {
    let seen = UrlObservation {
        at: UnixMillis(at),
        url: url.into(),
        crawler: crawler.into(),
        space: None,
        depth: None,
        address: None,
        source: None,
        revision: "3f9c2a1b".into(),
        rule: None,
        outcome: what,
    };
    LedgerUpdate {
        key: LedgerKey::for_url(crawler, url),
        observation: seen,
        content_key: None,
    }
}

/// A document was delivered.
pub(crate) fn delivered(document: DeliveredDocument) -> ObservationOutcome {
    answered(200, None, Some(document))
}

/// An answer that is a permanent error.
pub(crate) fn failed(status: u16) -> ObservationOutcome {
    answered(status, Some(FailureKind::Permanent), None)
}

fn answered(
    status: u16,
    failing: Option<FailureKind>,
    document: Option<DeliveredDocument>,
) -> ObservationOutcome {
    let outcome = CrawlStatus::from_origin_status(status);
    ObservationOutcome::Answered(ObservedResponse {
        status,
        crawl_status: outcome,
        intent: None,
        code: None,
        failure: failing,
        document,
    })
}
