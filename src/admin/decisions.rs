//! What goes on now: the latest decisions and those to come, `/api/v1/decisions` and `/api/v1/decisions/{id}`.

mod lookup;
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

use super::api_request::run_blocking;
use super::body::{AdminBody, StreamPermit};
use super::response::{self, problem_with};
use query::{DecisionStreamMode, DecisionStreamQuery};

/// Streams at once.
const MAX_STREAMS: usize = 16;
/// Looks through the whole ring at once.
const MAX_CONCURRENT_SEARCHES: usize = 2;
/// Pieces between a stream's source and its connection.
const STREAM_BUFFER: usize = 2;
/// One line of JSON each.
const NDJSON_TYPE: &str = "application/x-ndjson";

/// The decisions as they come.
#[derive(Clone, Debug)]
pub struct DecisionsApi {
    tap: Arc<LogTap>,
    stream_permits: Arc<Semaphore>,
    search_permits: Arc<Semaphore>,
}

impl DecisionsApi {
    /// Shows what the decision log shows.
    pub fn new(tap: Arc<LogTap>) -> Self {
        let (places, looks) = (
            Semaphore::new(MAX_STREAMS),
            Semaphore::new(MAX_CONCURRENT_SEARCHES),
        );
        Self {
            tap,
            stream_permits: Arc::new(places),
            search_permits: Arc::new(looks),
        }
    }

    /// `GET /api/v1/decisions`: the latest decisions that pass, and those to come.
    pub(super) async fn list(&self, method: &Method, query: Option<&str>) -> Response<AdminBody> {
        let sought = match DecisionStreamQuery::parse(query) {
            Ok(sought) => sought,
            Err(mistake) => return mistake.to_response().map(AdminBody::from),
        };
        if *method == Method::HEAD {
            return ndjson_response(AdminBody::from(Full::default()));
        }
        let Ok(place) = Arc::clone(&self.stream_permits).try_acquire_owned() else {
            return too_many_streams();
        };
        ndjson_response(self.stream(sought, Arc::new(place)))
    }

    /// `GET /api/v1/decisions/{id}`: the line of a decision, or the latest of a trace.
    pub(super) async fn show(&self, id: &str) -> Response<Full<Bytes>> {
        let Some(id) = lookup::DecisionLookupKey::parse(id) else {
            return lookup::invalid_id();
        };
        let kept = self.tap.recent_lines();
        let looked = search_blocking(&self.search_permits, move || {
            lookup::find_decision(&kept, &id)
        })
        .await;
        looked.unwrap_or_else(response::internal_error)
    }

    fn stream(&self, query: DecisionStreamQuery, permit: StreamPermit) -> AdminBody {
        let (kept, follower) = match query.mode {
            DecisionStreamMode::RecentOnly => (self.tap.recent_lines(), None),
            DecisionStreamMode::Follow => {
                let (kept, follower) = self.tap.follow();
                (kept, Some(follower))
            }
        };
        let (pieces, received) = mpsc::channel(STREAM_BUFFER);
        let (source, over) = oneshot::channel();
        let (looks, its) = (Arc::clone(&self.search_permits), Arc::clone(&permit));
        tokio::spawn(async move {
            let first = read_recent(kept, &query, &looks, &pieces).await;
            stream::run(first, follower, &query.filters, pieces).await;
            drop((source, its));
        });
        AdminBody::stream(received, over, permit)
    }
}

/// What is kept, as long as there is somebody to read it.
async fn read_recent(
    kept: RecentLines,
    query: &DecisionStreamQuery,
    search_permits: &Arc<Semaphore>,
    out: &mpsc::Sender<Bytes>,
) -> Bytes {
    if query.recent == 0 {
        return Bytes::new();
    }
    let (most, sieve, reader) = (query.recent, query.filters.clone(), out.clone());
    let look = search_blocking(search_permits, move || {
        kept.latest(most, &sieve, || !reader.is_closed())
    });
    tokio::select! {
        () = out.closed() => Bytes::new(),
        found = look => found.unwrap_or_default().into(),
    }
}

/// Looks through the ring apart from the threads that serve, when it has its turn; `None` if that broke down.
async fn search_blocking<T: Send + 'static>(
    search_permits: &Arc<Semaphore>,
    search: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let turn = Arc::clone(search_permits).acquire_owned().await.ok()?;
    run_blocking(move || {
        let _turn = turn;
        search()
    })
    .await
}

fn ndjson_response(body: AdminBody) -> Response<AdminBody> {
    let mut answer = Response::new(body);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(NDJSON_TYPE));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

fn too_many_streams() -> Response<AdminBody> {
    let detail =
        format!("{MAX_STREAMS} streams of decisions are open, as many as there may be; close one");
    let mut answer = problem_with(
        StatusCode::SERVICE_UNAVAILABLE,
        &json!({ "detail": detail }),
    );
    answer
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static("10"));
    answer.map(AdminBody::from)
}
