//! Observations of URLs, as the ledger records them.

use crawlgate::ledger::key::LedgerKey;
use crawlgate::ledger::observation::{
    BadOutcome, DeliveredDocument, ObservationOutcome, ObservedResponse, RefusalRecording,
    UrlObservation,
};
use crawlgate::ledger::record::UnixMillis;
use crawlgate::model::crawl_status::CrawlStatus;
use crawlgate::model::failure_kind::FailureKind;
use crawlgate::model::removal::{RemovalAction, RemovalOutcome};
use crawlgate::store::ledger::LedgerUpdate;

/// An observation with only these properties, under the policy revision 3f9c2a1b.
pub(crate) fn observation(
    crawler: &str,
    url: &str,
    at: u64,
    outcome: ObservationOutcome,
) -> LedgerUpdate {
    let observation = UrlObservation {
        at: UnixMillis(at),
        url: url.into(),
        crawler: crawler.into(),
        space: None,
        depth: None,
        address: None,
        source: None,
        revision: "3f9c2a1b".into(),
        rule: None,
        intent: None,
        user_agent: None,
        outcome,
    };
    LedgerUpdate {
        key: LedgerKey::for_url(crawler, url),
        observation,
        content_key: None,
    }
}

/// The delivery of a document.
pub(crate) fn delivered(document: DeliveredDocument) -> ObservationOutcome {
    answered(200, None, Some(document))
}

/// A response that is a permanent error.
pub(crate) fn failed(status: u16) -> ObservationOutcome {
    answered(status, Some(FailureKind::Permanent), None)
}

fn answered(
    status: u16,
    failure: Option<FailureKind>,
    document: Option<DeliveredDocument>,
) -> ObservationOutcome {
    ObservationOutcome::Answered(ObservedResponse {
        status,
        crawl_status: CrawlStatus::from_origin_status(status),
        code: None,
        failure,
        removal: failure.map(|_| BadOutcome {
            outcome: RemovalOutcome::from_origin_status(status),
            action: RemovalAction::Remove,
        }),
        document,
        recording: RefusalRecording::Keep,
    })
}
