//! The ledger on disk: what was committed survives SIGKILL; what a sweep has begun is ended over a restart.

mod killed;
mod swept;

use crawlgate::ledger::seen::Document;
use crawlgate::store::ledger::Note;

use crate::support::look::{delivered, failed, look};

/// A GET that was answered so.
fn answered(crawler: &str, url: &str, status: u16) -> Note {
    let what = if status == 200 {
        delivered(Document::default())
    } else {
        failed(status)
    };
    look(crawler, url, 1, what)
}
