//! Looks at URLs, as the ledger is told of them.

use crawlgate::ledger::key::Key;
use crawlgate::ledger::record::At;
use crawlgate::ledger::seen::{Answered, Document, Failing, Seen, What};
use crawlgate::store::ledger::Note;
use crawlgate::vocab::crawl_status::CrawlStatus;

/// A look at a URL of which nothing but this is known, under revision 3f9c2a1b.
pub(crate) fn look(crawler: &str, url: &str, at: u64, what: What) -> Note {
    let seen = Seen {
        at: At(at),
        url: url.into(),
        crawler: crawler.into(),
        space: None,
        depth: None,
        address: None,
        source: None,
        revision: "3f9c2a1b".into(),
        rule: None,
        what,
    };
    Note {
        key: Key::of_url(crawler, url),
        seen,
        content: None,
    }
}

/// A document was delivered.
pub(crate) fn delivered(document: Document) -> What {
    answered(200, None, Some(document))
}

/// An answer that is a permanent error.
pub(crate) fn failed(status: u16) -> What {
    answered(status, Some(Failing::Permanent), None)
}

fn answered(status: u16, failing: Option<Failing>, document: Option<Document>) -> What {
    let outcome = CrawlStatus::of_origin(status);
    What::Answered(Answered {
        status,
        outcome,
        intent: None,
        code: None,
        failing,
        document,
    })
}
