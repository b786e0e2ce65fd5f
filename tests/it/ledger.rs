//! The ledger on disk: what was committed survives SIGKILL; what a sweep has begun is ended over a restart.

mod killed;
mod swept;

use crawlgate::ledger::key::Key;
use crawlgate::ledger::record::At;
use crawlgate::ledger::seen::{Answered, Document, Failing, Seen, What};
use crawlgate::store::ledger::Note;
use crawlgate::vocab::crawl_status::CrawlStatus;

/// A GET that was answered so.
fn answered(crawler: &str, url: &str, status: u16) -> Note {
    let outcome = CrawlStatus::of_origin(status);
    let delivered = outcome == CrawlStatus::Accepted;
    let what = What::Answered(Answered {
        status,
        outcome,
        intent: None,
        code: None,
        failing: (!delivered).then_some(Failing::Permanent),
        document: delivered.then(Document::default),
    });
    let seen = Seen {
        at: At(1),
        url: url.into(),
        crawler: crawler.into(),
        space: None,
        depth: None,
        address: None,
        source: None,
        revision: "0".into(),
        rule: None,
        what,
    };
    Note { key: Key::of_url(crawler, url), seen, content: None }
}
