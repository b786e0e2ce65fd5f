//! What goes on now: the latest decisions and those to come, `/api/v1/decisions` and `/api/v1/decisions/{id}`.

mod one;
mod sought;
mod stream;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Response, StatusCode};
use http_body_util::Full;
use serde_json::json;
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::metrics::log::tap::{Kept, Tap};

use super::ask::apart;
use super::page::{self, problem_with};
use super::reply::{Place, Reply};
use sought::{Sought, Until};

/// Streams at once.
const STREAMS: usize = 16;
/// Looks through the whole ring at once.
const LOOKS: usize = 2;
/// Pieces between a stream's source and its connection.
const PIECES: usize = 2;
/// One line of JSON each.
const NDJSON: &str = "application/x-ndjson";

/// The decisions as they come.
#[derive(Clone, Debug)]
pub struct LiveApi {
    tap: Arc<Tap>,
    places: Arc<Semaphore>,
    looks: Arc<Semaphore>,
}

impl LiveApi {
    /// Shows what the decision log shows.
    pub fn new(tap: Arc<Tap>) -> Self {
        let (places, looks) = (Semaphore::new(STREAMS), Semaphore::new(LOOKS));
        Self {
            tap,
            places: Arc::new(places),
            looks: Arc::new(looks),
        }
    }

    /// `GET /api/v1/decisions`: the latest decisions that pass, and those to come.
    pub(super) async fn decisions(&self, method: &Method, query: Option<&str>) -> Response<Reply> {
        let sought = match Sought::read(query) {
            Ok(sought) => sought,
            Err(mistake) => return mistake.answer().map(Reply::from),
        };
        if *method == Method::HEAD {
            return lines(Reply::from(Full::default()));
        }
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            return too_many();
        };
        lines(self.stream(sought, Arc::new(place)))
    }

    /// `GET /api/v1/decisions/{id}`: the line of a decision, or the latest of a trace.
    pub(super) async fn decision(&self, id: &str) -> Response<Full<Bytes>> {
        let Some(id) = one::Id::parse(id) else {
            return one::no_id();
        };
        let kept = self.tap.kept();
        let looked = looked(&self.looks, move || one::answer(&kept, &id)).await;
        looked.unwrap_or_else(page::broken)
    }

    fn stream(&self, sought: Sought, place: Place) -> Reply {
        let (kept, follower) = match sought.until {
            Until::Now => (self.tap.kept(), None),
            Until::Forever => {
                let (kept, follower) = self.tap.follow();
                (kept, Some(follower))
            }
        };
        let (pieces, received) = mpsc::channel(PIECES);
        let (source, over) = oneshot::channel();
        let (looks, its) = (Arc::clone(&self.looks), Arc::clone(&place));
        tokio::spawn(async move {
            let first = recent(kept, &sought, &looks, &pieces).await;
            stream::run(first, follower, &sought.sieve, pieces).await;
            drop((source, its));
        });
        Reply::stream(received, over, place)
    }
}

/// What is kept, as long as there is somebody to read it.
async fn recent(
    kept: Kept,
    sought: &Sought,
    looks: &Arc<Semaphore>,
    out: &mpsc::Sender<Bytes>,
) -> Bytes {
    if sought.recent == 0 {
        return Bytes::new();
    }
    let (most, sieve, reader) = (sought.recent, sought.sieve.clone(), out.clone());
    let look = looked(looks, move || {
        kept.latest(most, &sieve, || !reader.is_closed())
    });
    tokio::select! {
        () = out.closed() => Bytes::new(),
        found = look => found.unwrap_or_default().into(),
    }
}

/// Looks through the ring apart from the threads that serve, when it has its turn; `None` if that broke down.
async fn looked<T: Send + 'static>(
    looks: &Arc<Semaphore>,
    look: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let turn = Arc::clone(looks).acquire_owned().await.ok()?;
    apart(move || {
        let _turn = turn;
        look()
    })
    .await
}

fn lines(body: Reply) -> Response<Reply> {
    let mut answer = Response::new(body);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(NDJSON));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

fn too_many() -> Response<Reply> {
    let detail =
        format!("{STREAMS} streams of decisions are open, as many as there may be; close one");
    let mut answer = problem_with(
        StatusCode::SERVICE_UNAVAILABLE,
        &json!({ "detail": detail }),
    );
    answer
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from_static("10"));
    answer.map(Reply::from)
}
