//! `GET /api/v1/ledger`: how many URLs there are and what became of them, what waits for the disk, and how far the sweep
//! is.

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;

use crate::admin::response;
use crate::report::ledger;

use super::LedgerApi;

impl LedgerApi {
    /// `GET /api/v1/ledger`.
    pub(crate) async fn show_stats(&self) -> Response<Full<Bytes>> {
        let sweep = self.sweep_document();
        self.read_blocking(move |look| {
            let (stats, bytes) = (look.ledger.stats(), look.ledger.disk_bytes());
            Ok(response::json(
                StatusCode::OK,
                &ledger::to_json(&stats, bytes, sweep),
            ))
        })
        .await
    }
}
