//! The ledger on disk: what was committed survives SIGKILL; what a sweep has begun is ended over a restart;
//! each removal is ordered once.

mod guarded;
mod killed;
mod presets;
mod room;
mod swept;

use crawlgate::ledger::observation::DeliveredDocument;
use crawlgate::store::ledger::LedgerUpdate;

use crate::support::ledger::{delivered, failed, observation};

/// A GET that was answered so.
fn answered(crawler: &str, url: &str, status: u16) -> LedgerUpdate {
    let what = if status == 200 {
        delivered(DeliveredDocument::default())
    } else {
        failed(status)
    };
    observation(crawler, url, 1, what)
}
