//! The latest decisions and a stream of new ones: `/api/v1/decisions` and `/api/v1/decisions/{id}`.

pub mod lookup;
mod query;
mod stream;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use serde_json::json;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::metrics::log::tap::{LogTap, RecentLines};

use super::api_request::{ApiError, ApiResult, run_blocking};
use super::body::{AdminBody, StreamPermit};
use super::response::problem_with;
use query::{DecisionStreamMode, DecisionStreamQuery};

/// The most concurrent streams.
const MAX_STREAMS: usize = 16;
/// The most concurrent searches of the whole ring.
const MAX_CONCURRENT_SEARCHES: usize = 2;
/// Chunks between a stream's source and its connection.
const STREAM_BUFFER: usize = 2;
const NDJSON_TYPE: &str = "application/x-ndjson";

/// The part of the API that shows decisions.
#[derive(Clone, Debug)]
pub struct DecisionsApi {
    tap: Arc<LogTap>,
    stream_permits: Arc<Semaphore>,
    search_permits: Arc<Semaphore>,
}

impl DecisionsApi {
    /// Creates the API for the decisions of a log.
    pub fn new(tap: Arc<LogTap>) -> Self {
        Self {
            tap,
            stream_permits: Arc::new(Semaphore::new(MAX_STREAMS)),
            search_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_SEARCHES)),
        }
    }

    /// `GET /api/v1/decisions`: the latest decisions that match, and new ones as they are made.
    pub(super) async fn list(&self, method: &Method, query: Option<&str>) -> Response<AdminBody> {
        let query = match DecisionStreamQuery::parse(query) {
            Ok(query) => query,
            Err(error) => return error.into_response().map(AdminBody::from),
        };
        if *method == Method::HEAD {
            return ndjson_response(AdminBody::from(Full::default()));
        }
        let Ok(permit) = Arc::clone(&self.stream_permits).try_acquire_owned() else {
            return too_many_streams();
        };
        ndjson_response(self.stream(query, Arc::new(permit)))
    }

    /// `GET /api/v1/decisions/{id}`: one decision, or the latest of a trace.
    pub(super) async fn show(&self, id: &str) -> ApiResult {
        let Some(id) = lookup::DecisionLookupKey::parse(id) else {
            return Ok(lookup::invalid_id());
        };
        let lines = self.tap.recent_lines();
        search_blocking(&self.search_permits, move || {
            lookup::find_decision(&lines, &id)
        })
        .await
    }

    fn stream(&self, query: DecisionStreamQuery, permit: StreamPermit) -> AdminBody {
        let (lines, follower) = match query.mode {
            DecisionStreamMode::RecentOnly => (self.tap.recent_lines(), None),
            DecisionStreamMode::Follow => {
                let (lines, follower) = self.tap.follow();
                (lines, Some(follower))
            }
        };
        let (sender, chunks) = mpsc::channel(STREAM_BUFFER);
        let (source, end) = oneshot::channel();
        let search_permits = Arc::clone(&self.search_permits);
        let source_permit = Arc::clone(&permit);
        tokio::spawn(async move {
            let recent = read_recent(lines, &query, &search_permits, &sender).await;
            stream::run(recent, follower, &query.filters, sender).await;
            drop((source, source_permit));
        });
        AdminBody::stream(chunks, end, permit)
    }
}

/// Returns the recent lines that match; nothing if the reader disconnects.
async fn read_recent(
    lines: RecentLines,
    query: &DecisionStreamQuery,
    search_permits: &Arc<Semaphore>,
    out: &mpsc::Sender<Bytes>,
) -> Bytes {
    if query.recent == 0 {
        return Bytes::new();
    }
    let limit = query.recent;
    let filters = query.filters.clone();
    let reader = out.clone();
    let search = search_blocking(search_permits, move || {
        lines.latest(limit, &filters, || !reader.is_closed())
    });
    tokio::select! {
        () = out.closed() => Bytes::new(),
        found = search => found.unwrap_or_default().into(),
    }
}

/// Searches the ring on a thread that may block, once there is a permit.
async fn search_blocking<T: Send + 'static>(
    search_permits: &Arc<Semaphore>,
    search: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    let permit = Arc::clone(search_permits).acquire_owned().await;
    let permit = permit.map_err(|_| ApiError::Internal)?;
    run_blocking(move || {
        let _permit = permit;
        search()
    })
    .await
}

fn ndjson_response(body: AdminBody) -> Response<AdminBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(NDJSON_TYPE));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn too_many_streams() -> Response<AdminBody> {
    let detail =
        format!("{MAX_STREAMS} streams of decisions are open, which is the limit; close one");
    let mut response = problem_with(
        StatusCode::SERVICE_UNAVAILABLE,
        &json!({ "detail": detail }),
    );
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static("10"));
    response.map(AdminBody::from)
}
