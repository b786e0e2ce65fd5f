//! The listener that serves the key directories (`identity.listen`), and nothing else.
//!
//! It speaks HTTP/1.1 without TLS, for a web server that has the operator's certificate. A connection carries one request.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HOST};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::clock::Clock;

use super::key_directory::{KeyDirectory, WELL_KNOWN_PATH};
use super::request_signer::RequestSigners;
use super::signing_key::Ed25519Key;

/// The validity of a directory's signatures: longer than a directory is served and cached.
const LIFETIME: Duration = Duration::from_secs(48 * 60 * 60);
/// The time for which a directory is served before it is signed again.
const RENEWAL: Duration = Duration::from_secs(60 * 60);
/// The most connections at once.
const MAX_CONNECTIONS: usize = 64;
/// The time limit for a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(3);
/// The time limit for a whole connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest head.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// The pause after a failed accept (out of file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the key directories of all crawlers.
#[derive(Debug)]
pub struct DirectoryServer {
    directories: Box<[ServedDirectory]>,
    clock: Clock,
}

/// A directory, signed within the last hour.
#[derive(Debug)]
struct ServedDirectory {
    authority: Box<str>,
    keys: Box<[Ed25519Key]>,
    current: Mutex<Option<(SystemTime, Arc<KeyDirectory>)>>,
}

impl DirectoryServer {
    /// Creates a server of the directories that these crawlers have.
    pub fn new(signers: &RequestSigners, clock: Clock) -> Self {
        let directories = signers.directories().into_iter();
        Self {
            directories: directories
                .map(|directory| ServedDirectory {
                    authority: directory.trim_start_matches("https://").into(),
                    keys: signers.directory_keys(directory).cloned().collect(),
                    current: Mutex::default(),
                })
                .collect(),
            clock,
        }
    }

    /// Serves for ever.
    pub async fn serve(self, listener: TcpListener) {
        let server = Arc::new(self);
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, _)) => {
                    let server = Arc::clone(&server);
                    tokio::spawn(async move {
                        server.serve_connection(stream).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "the listener of the key directory cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn serve_connection(&self, stream: TcpStream) {
        let service = service_fn(async |request: Request<Incoming>| {
            Ok::<_, Infallible>(self.answer(&request))
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIMEOUT)
            .max_buf_size(MAX_HEAD_BYTES)
            .keep_alive(false)
            .serve_connection(TokioIo::new(stream), service);
        // Errors are those of the client, or its disconnect: there is nothing to report.
        let _ = tokio::time::timeout(CONNECTION_TIMEOUT, serving).await;
    }

    fn answer<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if request.uri().path() != WELL_KNOWN_PATH {
            return plain(StatusCode::NOT_FOUND, "not found\n");
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "method not allowed\n");
            let allowed = http::HeaderValue::from_static("GET, HEAD");
            response.headers_mut().insert(ALLOW, allowed);
            return response;
        }
        let Some(served) = self.find(request) else {
            return plain(StatusCode::NOT_FOUND, "no directory of this host\n");
        };
        match served.current(self.clock.wall_time()) {
            Ok(directory) => to_response(&directory),
            Err(error) => {
                tracing::error!(%error, "the key directory cannot be signed");
                plain(StatusCode::INTERNAL_SERVER_ERROR, "cannot sign\n")
            }
        }
    }

    /// Returns the only directory, or that of the request's host.
    fn find<B>(&self, request: &Request<B>) -> Option<&ServedDirectory> {
        if let [only] = &*self.directories {
            return Some(only);
        }
        let from_host = request
            .headers()
            .get(HOST)
            .and_then(|host| host.to_str().ok());
        let host = request
            .uri()
            .authority()
            .map_or(from_host, |one| Some(one.as_str()))?;
        let host = host.strip_suffix(":443").unwrap_or(host);
        self.directories
            .iter()
            .find(|served| served.authority.eq_ignore_ascii_case(host))
    }
}

impl ServedDirectory {
    /// Returns the directory, and signs it if that was long ago.
    fn current(&self, now: SystemTime) -> Result<Arc<KeyDirectory>, rustls::Error> {
        let mut current = self.current.lock();
        if let Some((signed, directory)) = &*current
            && now.duration_since(*signed).is_ok_and(|age| age < RENEWAL)
        {
            return Ok(Arc::clone(directory));
        }
        let keys: Vec<&Ed25519Key> = self.keys.iter().collect();
        let directory = Arc::new(KeyDirectory::new(&keys, &self.authority, now, LIFETIME)?);
        *current = Some((now, Arc::clone(&directory)));
        Ok(directory)
    }
}

fn to_response(directory: &KeyDirectory) -> Response<Full<Bytes>> {
    let mut response = Response::builder();
    for (name, value) in &directory.fields {
        response = response.header(*name, value);
    }
    response
        .body(Full::from(directory.body.clone()))
        .unwrap_or_else(|_| plain(StatusCode::INTERNAL_SERVER_ERROR, "cannot sign\n"))
}

fn plain(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory is signed again after an hour, and after the clock was set back.
    #[test]
    fn signatures_are_renewed() {
        let folder = std::env::temp_dir().join(format!("crawlgate-keys-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("key.pem");
        let _ = std::fs::remove_file(&file);
        let key = Ed25519Key::create(&file).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        let served = ServedDirectory {
            authority: "bot.example.com".into(),
            keys: [key].into(),
            current: Mutex::default(),
        };
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let first = served.current(start).unwrap();
        let after = |seconds| {
            served
                .current(start + Duration::from_secs(seconds))
                .unwrap()
        };
        assert!(Arc::ptr_eq(&first, &after(3599)));
        let renewed = after(3600);
        assert_ne!(first.fields, renewed.fields);
        assert_eq!(first.body, renewed.body);
        assert_eq!(served.current(start).unwrap().fields, first.fields);
    }
}
