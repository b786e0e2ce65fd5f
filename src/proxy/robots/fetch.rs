//! One fetch of a robots.txt: the request, up to five redirects, and the body, all within one time.

use std::sync::Arc;
use std::time::Duration;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, AGE, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, DATE, ETAG,
    EXPIRES, HeaderMap, HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED,
    LOCATION, USER_AGENT,
};
use http::{Method, Response, StatusCode, Version, response};

use crate::clock::Clock;
use crate::gate::destination::Unreachable;
use crate::gate::permit::Permit;
use crate::gate::robots::{Errand, NotSent};
use crate::proxy::body::{Download, Upload};
use crate::proxy::clean::{self, ViaName};
use crate::proxy::destination::{Vetted, Vetting};
use crate::proxy::dial::DialError;
use crate::proxy::upstream::{Call, Upstream, UpstreamError};
use crate::robots::ending::Ending;
use crate::robots::freshness::CacheFields;
use crate::robots::standing::{Fetched, Form, Validators};
use crate::vocab::fault::Fault;
use crate::vocab::media_type::essence;
use crate::vocab::target::UrlTarget;
use crate::vocab::verify::Verify;

use super::body::{Coding, read};

/// Of the time that a fetch has left, the part for which it waits for a turn: the rest is for the answer, and what had no
/// turn is not taken for what came too late.
const FOR_A_TURN: (u32, u32) = (3, 4);
/// RFC 9309 section 2.3.1.2.
const REDIRECTS: usize = 5;
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Fetches robots.txt.
#[derive(Debug)]
pub struct Fetcher {
    /// Addresses.
    pub vetting: Arc<Vetting>,
    /// Origins.
    pub upstream: Arc<Upstream>,
    /// This process in `Via`.
    pub via: ViaName,
    /// The time of a whole fetch, its wait for the host's turn included.
    pub time: Duration,
    /// When a request begins.
    pub clock: Clock,
}

/// What a fetch brought.
#[derive(Debug)]
pub struct Fetch {
    /// How it ended.
    pub ending: Ending,
    /// The URL that was asked last.
    pub url: Option<UrlTarget>,
    /// The head of the last answer.
    pub head: Option<response::Parts>,
    /// The text, decoded, no longer than is read of one.
    pub body: Vec<u8>,
    /// What exactly failed, where TLS with the host itself did.
    pub fault: Option<&'static Fault>,
    moved: Moved,
}

/// Whether the last answer came from where a redirect led: the next fetch asks the first URL again, which knows nothing of
/// that answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    No,
    Yes,
}

impl Fetch {
    fn failed(ending: Ending) -> Self {
        Self {
            ending,
            url: None,
            head: None,
            body: vec![],
            fault: None,
            moved: Moved::No,
        }
    }

    /// As the table of outcomes wants it.
    pub fn fetched(&self) -> Fetched<'_> {
        let field = |name: HeaderName| self.head.as_ref()?.headers.get(name)?.to_str().ok();
        let html = field(CONTENT_TYPE)
            .is_some_and(|value| matches!(&*essence(value), "text/html" | "application/xhtml+xml"));
        Fetched {
            ending: self.ending,
            status: self.head.as_ref().map(|head| head.status.as_u16()),
            body: &self.body,
            form: if html { Form::Html } else { Form::Other },
            cache: CacheFields {
                cache_control: field(CACHE_CONTROL),
                expires: field(EXPIRES),
                date: field(DATE),
                age: field(AGE),
            },
            validators: match self.moved {
                Moved::No => Validators {
                    etag: field(ETAG),
                    last_modified: field(LAST_MODIFIED),
                },
                Moved::Yes => Validators::default(),
            },
            fault: self.fault,
        }
    }
}

impl Fetcher {
    /// Fetches the robots.txt of the target's host, unless it is still the one that these validators are of. Every outcome
    /// is one.
    pub async fn fetch(&self, target: &UrlTarget, errand: &Errand, known: Validators<'_>) -> Fetch {
        let Ok(first) = UrlTarget::parse(&format!("{}robots.txt", target.base())) else {
            return Fetch::failed(Ending::Elsewhere);
        };
        match tokio::time::timeout(self.time, self.follow(first, errand, known)).await {
            Ok(Ok(fetch)) => fetch,
            Ok(Err(Failed { ending, fault })) => Fetch {
                fault,
                ..Fetch::failed(ending)
            },
            Err(_) => Fetch::failed(Ending::Timeout),
        }
    }

    /// Each hop may be in the clear or over TLS; only the host that is asked first may have been excused from proof.
    async fn follow(
        &self,
        first: UrlTarget,
        errand: &Errand,
        known: Validators<'_>,
    ) -> Result<Fetch, Failed> {
        let (mut target, began) = (first.clone(), self.clock.now());
        for hop in 0..=REDIRECTS {
            let verify = if target.base() == first.base() {
                errand.verify
            } else {
                Verify::On
            };
            let known = if hop == 0 {
                known
            } else {
                Validators::default()
            };
            let fields = self.fields(&target, errand, known);
            let call = Call {
                method: Method::GET,
                headers: fields,
                body: Upload::Empty,
                uri: None,
            };
            let left = self
                .time
                .saturating_sub(self.clock.now().saturating_duration_since(began));
            let patience = left * FOR_A_TURN.0 / FOR_A_TURN.1;
            let permit = errand
                .permit(&target, verify, &*self.vetting, patience)
                .await;
            let answer = match permit {
                Ok(permit) => self.ask(permit, call).await,
                Err(not_sent) => Err(Stopped::NotSent(not_sent)),
            };
            let answer = answer.map_err(|stopped| on_the_way(stopped, hop))?;
            let Some(place) = redirect(&answer) else {
                let moved = if hop == 0 { Moved::No } else { Moved::Yes };
                return Ok(Fetch {
                    moved,
                    ..answered(target, answer, known).await
                });
            };
            target = next(&target, place)?;
        }
        Err(Ending::Redirects.into())
    }

    async fn ask(
        &self,
        permit: Permit<Vetted>,
        call: Call,
    ) -> Result<Response<Box<Download>>, Stopped> {
        let sent = self.upstream.send(permit, call, self.clock.now()).await;
        let mut response = sent.map_err(Stopped::Upstream)?.response;
        let framed = clean::settle_framing(response.headers_mut());
        if framed.is_err() || response.status().is_informational() {
            return Err(Stopped::Framing);
        }
        Ok(response)
    }

    fn fields(&self, target: &UrlTarget, errand: &Errand, known: Validators<'_>) -> HeaderMap {
        let mut fields = HeaderMap::new();
        let agent = HeaderValue::from_str(&format!("{} crawlgate/{VERSION}", errand.agent));
        fields.insert(
            USER_AGENT,
            agent.unwrap_or(HeaderValue::from_static("crawlgate")),
        );
        fields.insert(ACCEPT, HeaderValue::from_static("text/plain,*/*;q=0.5"));
        fields.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        for (name, value) in [
            (IF_NONE_MATCH, known.etag),
            (IF_MODIFIED_SINCE, known.last_modified),
        ] {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                fields.insert(name, value);
            }
        }
        clean::request(&mut fields, target.authority(), Version::HTTP_11, &self.via);
        fields
    }
}

/// Why a hop brought no answer.
enum Stopped {
    NotSent(NotSent),
    Upstream(UpstreamError),
    Framing,
}

/// How a fetch ends without an answer.
struct Failed {
    ending: Ending,
    fault: Option<&'static Fault>,
}

impl From<Ending> for Failed {
    fn from(ending: Ending) -> Self {
        Self {
            ending,
            fault: None,
        }
    }
}

/// What that means: behind a redirect, an address that must not be dialled is the redirect's doing, and a name that
/// does not exist makes it lead nowhere.
fn on_the_way(stopped: Stopped, hop: usize) -> Failed {
    let fault = match &stopped {
        Stopped::Upstream(UpstreamError::Tls(error)) if hop == 0 => Some(error.fault()),
        Stopped::Upstream(_) | Stopped::NotSent(_) | Stopped::Framing => None,
    };
    Failed {
        ending: ending_of(stopped, hop),
        fault,
    }
}

fn ending_of(stopped: Stopped, hop: usize) -> Ending {
    match stopped {
        Stopped::NotSent(NotSent::Held) => Ending::Held,
        Stopped::NotSent(NotSent::Unreachable(why)) => match why {
            Unreachable::Prohibited(_) | Unreachable::PortDenied => Ending::Prohibited,
            Unreachable::NoSuchName(_) if hop > 0 => Ending::Elsewhere,
            Unreachable::NoSuchName(_)
            | Unreachable::LookupFailed(_)
            | Unreachable::LookupTimeout(_) => Ending::Dns,
            Unreachable::Refusing(_) => Ending::Refused,
        },
        Stopped::Upstream(error) => match error {
            UpstreamError::Resting(_) => Ending::Held,
            UpstreamError::Dial(DialError::Refused) => Ending::Refused,
            UpstreamError::Tls(_) => Ending::Tls,
            UpstreamError::Dial(DialError::Timeout) | UpstreamError::Timeout => Ending::Timeout,
            UpstreamError::Dial(DialError::Unreachable | DialError::Other)
            | UpstreamError::Closed
            | UpstreamError::Upload(_)
            | UpstreamError::Protocol(_)
            | UpstreamError::HeadTooLarge => Ending::Broken,
        },
        Stopped::Framing => Ending::Broken,
    }
}

/// Where an answer sends who asks; a redirect without a place is an answer.
fn redirect(answer: &Response<Box<Download>>) -> Option<&HeaderValue> {
    let moved = matches!(
        answer.status(),
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    answer.headers().get(LOCATION).filter(|_| moved)
}

/// The URL that a redirect leads to, if this proxy can ask it.
fn next(from: &UrlTarget, place: &HeaderValue) -> Result<UrlTarget, Ending> {
    let place = std::str::from_utf8(place.as_bytes()).map_err(|_| Ending::Elsewhere)?;
    let base = url::Url::parse(from.as_str()).map_err(|_| Ending::Elsewhere)?;
    let mut url = base.join(place).map_err(|_| Ending::Elsewhere)?;
    url.set_fragment(None);
    UrlTarget::parse(url.as_str()).map_err(|_| Ending::Elsewhere)
}

/// Only a file's body is read; the rest of any other is given up with its connection.
async fn answered(url: UrlTarget, answer: Response<Box<Download>>, known: Validators<'_>) -> Fetch {
    let (head, download) = answer.into_parts();
    let ending = match head.status {
        StatusCode::NOT_MODIFIED if known != Validators::default() => Ending::Unchanged,
        status => Ending::of_status(status.as_u16()),
    };
    let (ending, body) = match (ending, coding(&head.headers)) {
        (Ending::File, Some(coding)) => match read(download, coding).await {
            Ok(body) => (Ending::File, body),
            Err(ending) => (ending, vec![]),
        },
        (Ending::File, None) => (Ending::Coding, vec![]),
        (other, _) => (other, vec![]),
    };
    Fetch {
        ending,
        url: Some(url),
        head: Some(head),
        body,
        ..Fetch::failed(ending)
    }
}

fn coding(headers: &HeaderMap) -> Option<Coding> {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    let Some(coding) = codings.next() else {
        return Some(Coding::Identity);
    };
    if codings.next().is_some() {
        return None;
    }
    let coding = coding.as_bytes().trim_ascii();
    let is = |name: &[u8]| coding.eq_ignore_ascii_case(name);
    if coding.is_empty() || is(b"identity") {
        return Some(Coding::Identity);
    }
    (is(b"gzip") || is(b"x-gzip")).then_some(Coding::Gzip)
}
