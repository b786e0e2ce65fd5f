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
use crate::model::certificate_verification::CertificateVerification;
use crate::model::media_type::essence;
use crate::model::upstream_fault::UpstreamFault;
use crate::pipeline::destination::DestinationError;
use crate::pipeline::permit::Permit;
use crate::pipeline::robots_fetch::{RobotsFetchRequest, RobotsPermitError};
use crate::proxy::body::{RequestUpload, ResponseDownload};
use crate::proxy::destination::{AddressVetter, VettedAddresses};
use crate::proxy::dial::DialError;
use crate::proxy::header_filter::{self, ViaName};
use crate::proxy::upstream::{UpstreamClient, UpstreamError, UpstreamRequest};
use crate::robots::fetch_outcome::RobotsFetchOutcome;
use crate::robots::freshness::CacheFields;
use crate::robots::state::{RobotsBodyType, RobotsFetchResult, RobotsValidators};
use crate::urls::target::UrlTarget;

use super::body::{RobotsCoding, read_body};

/// Of the time that a fetch has left, the part for which it waits for a turn: the rest is for the answer, and what had no
/// turn is not taken for what came too late.
const ADMISSION_SHARE: (u32, u32) = (3, 4);
/// RFC 9309 section 2.3.1.2.
const MAX_REDIRECTS: usize = 5;
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Fetches robots.txt.
#[derive(Debug)]
pub struct RobotsFetcher {
    /// Addresses.
    pub address_vetter: Arc<AddressVetter>,
    /// Origins.
    pub upstream: Arc<UpstreamClient>,
    /// This process in `Via`.
    pub via: ViaName,
    /// The time of a whole fetch, its wait for the host's turn included.
    pub timeout: Duration,
    /// When a request begins.
    pub clock: Clock,
}

/// What a fetch brought.
#[derive(Debug)]
pub struct RobotsFetch {
    /// How it ended.
    pub outcome: RobotsFetchOutcome,
    /// The URL that was asked last.
    pub url: Option<UrlTarget>,
    /// The head of the last answer.
    pub head: Option<response::Parts>,
    /// The text, decoded, no longer than is read of one.
    pub body: Vec<u8>,
    /// What exactly failed, where TLS with the host itself did.
    pub fault: Option<&'static UpstreamFault>,
    redirect: FetchRedirect,
}

/// Whether the last answer came from where a redirect led: the next fetch asks the first URL again, which knows nothing of
/// that answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FetchRedirect {
    No,
    Yes,
}

impl RobotsFetch {
    fn failed(outcome: RobotsFetchOutcome) -> Self {
        Self {
            outcome,
            url: None,
            head: None,
            body: vec![],
            fault: None,
            redirect: FetchRedirect::No,
        }
    }

    /// As the table of outcomes wants it.
    pub fn fetched(&self) -> RobotsFetchResult<'_> {
        let field = |name: HeaderName| self.head.as_ref()?.headers.get(name)?.to_str().ok();
        let html = field(CONTENT_TYPE)
            .is_some_and(|value| matches!(&*essence(value), "text/html" | "application/xhtml+xml"));
        RobotsFetchResult {
            outcome: self.outcome,
            status: self.head.as_ref().map(|head| head.status.as_u16()),
            body: &self.body,
            body_type: if html {
                RobotsBodyType::Html
            } else {
                RobotsBodyType::Other
            },
            cache: CacheFields {
                cache_control: field(CACHE_CONTROL),
                expires: field(EXPIRES),
                date: field(DATE),
                age: field(AGE),
            },
            validators: match self.redirect {
                FetchRedirect::No => RobotsValidators {
                    etag: field(ETAG),
                    last_modified: field(LAST_MODIFIED),
                },
                FetchRedirect::Yes => RobotsValidators::default(),
            },
            fault: self.fault,
        }
    }
}

impl RobotsFetcher {
    /// Fetches the robots.txt of the target's host, unless it is still the one that these validators are of. Every outcome
    /// is one.
    pub async fn fetch(
        &self,
        target: &UrlTarget,
        request: &RobotsFetchRequest,
        known: RobotsValidators<'_>,
    ) -> RobotsFetch {
        let Ok(first) = UrlTarget::parse(&format!("{}robots.txt", target.base())) else {
            return RobotsFetch::failed(RobotsFetchOutcome::UnsupportedRedirect);
        };
        match tokio::time::timeout(self.timeout, self.follow_redirects(first, request, known)).await
        {
            Ok(Ok(fetch)) => fetch,
            Ok(Err(FetchFailure {
                outcome: ending,
                fault,
            })) => RobotsFetch {
                fault,
                ..RobotsFetch::failed(ending)
            },
            Err(_) => RobotsFetch::failed(RobotsFetchOutcome::Timeout),
        }
    }

    /// Each hop may be in the clear or over TLS; only the host that is asked first may have been excused from proof.
    async fn follow_redirects(
        &self,
        first: UrlTarget,
        request: &RobotsFetchRequest,
        known: RobotsValidators<'_>,
    ) -> Result<RobotsFetch, FetchFailure> {
        let (mut target, began) = (first.clone(), self.clock.now());
        for hop in 0..=MAX_REDIRECTS {
            let verify = if target.base() == first.base() {
                request.verify
            } else {
                CertificateVerification::On
            };
            let known = if hop == 0 {
                known
            } else {
                RobotsValidators::default()
            };
            let fields = self.request_headers(&target, request, known);
            let call = UpstreamRequest {
                method: Method::GET,
                headers: fields,
                body: RequestUpload::Empty,
                uri: None,
            };
            let left = self
                .timeout
                .saturating_sub(self.clock.now().saturating_duration_since(began));
            let patience = left * ADMISSION_SHARE.0 / ADMISSION_SHARE.1;
            let permit = request
                .acquire_permit(&target, verify, &*self.address_vetter, patience)
                .await;
            let answer = match permit {
                Ok(permit) => self.send_request(permit, call).await,
                Err(not_sent) => Err(HopError::NotSent(not_sent)),
            };
            let answer = answer.map_err(|stopped| hop_failure(stopped, hop))?;
            let Some(place) = redirect_location(&answer) else {
                let moved = if hop == 0 {
                    FetchRedirect::No
                } else {
                    FetchRedirect::Yes
                };
                return Ok(RobotsFetch {
                    redirect: moved,
                    ..read_response(target, answer, known).await
                });
            };
            target = redirect_target(&target, place)?;
        }
        Err(RobotsFetchOutcome::TooManyRedirects.into())
    }

    async fn send_request(
        &self,
        permit: Permit<UrlTarget, VettedAddresses>,
        call: UpstreamRequest,
    ) -> Result<Response<Box<ResponseDownload>>, HopError> {
        let sent = self.upstream.send(permit, call, self.clock.now()).await;
        let mut response = sent.map_err(HopError::Upstream)?.response;
        let framed = header_filter::normalize_framing(response.headers_mut());
        if framed.is_err() || response.status().is_informational() {
            return Err(HopError::Framing);
        }
        Ok(response)
    }

    fn request_headers(
        &self,
        target: &UrlTarget,
        request: &RobotsFetchRequest,
        known: RobotsValidators<'_>,
    ) -> HeaderMap {
        let mut fields = HeaderMap::new();
        let agent = HeaderValue::from_str(&format!("{} crawlgate/{VERSION}", request.agent));
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
        header_filter::filter_request(&mut fields, target.authority(), Version::HTTP_11, &self.via);
        fields
    }
}

/// Why a hop brought no answer.
enum HopError {
    NotSent(RobotsPermitError),
    Upstream(UpstreamError),
    Framing,
}

/// How a fetch ends without an answer.
struct FetchFailure {
    outcome: RobotsFetchOutcome,
    fault: Option<&'static UpstreamFault>,
}

impl From<RobotsFetchOutcome> for FetchFailure {
    fn from(ending: RobotsFetchOutcome) -> Self {
        Self {
            outcome: ending,
            fault: None,
        }
    }
}

/// What that means: behind a redirect, an address that must not be dialled is the redirect's doing, and a name that
/// does not exist makes it lead nowhere.
fn hop_failure(error: HopError, hop: usize) -> FetchFailure {
    let fault = match &error {
        HopError::Upstream(UpstreamError::Tls(error)) if hop == 0 => Some(error.fault()),
        HopError::Upstream(_) | HopError::NotSent(_) | HopError::Framing => None,
    };
    FetchFailure {
        outcome: hop_outcome(error, hop),
        fault,
    }
}

fn hop_outcome(error: HopError, hop: usize) -> RobotsFetchOutcome {
    match error {
        HopError::NotSent(RobotsPermitError::WaitTooLong) => RobotsFetchOutcome::NotAdmitted,
        HopError::NotSent(RobotsPermitError::Destination(why)) => match why {
            DestinationError::Prohibited(_) | DestinationError::PortDenied => {
                RobotsFetchOutcome::ProhibitedRedirect
            }
            DestinationError::NoSuchName(_) if hop > 0 => RobotsFetchOutcome::UnsupportedRedirect,
            DestinationError::NoSuchName(_)
            | DestinationError::LookupFailed(_)
            | DestinationError::LookupTimeout(_) => RobotsFetchOutcome::Dns,
            DestinationError::ConnectionRefused(_) => RobotsFetchOutcome::Refused,
        },
        HopError::Upstream(error) => match error {
            UpstreamError::BackingOff(_) => RobotsFetchOutcome::NotAdmitted,
            UpstreamError::Dial(DialError::Refused) => RobotsFetchOutcome::Refused,
            UpstreamError::Tls(_) => RobotsFetchOutcome::Tls,
            UpstreamError::Dial(DialError::Timeout) | UpstreamError::Timeout => {
                RobotsFetchOutcome::Timeout
            }
            UpstreamError::Dial(DialError::Unreachable | DialError::Other)
            | UpstreamError::Closed
            | UpstreamError::Upload(_)
            | UpstreamError::Protocol(_)
            | UpstreamError::HeadTooLarge => RobotsFetchOutcome::Broken,
        },
        HopError::Framing => RobotsFetchOutcome::Broken,
    }
}

/// Where an answer sends who asks; a redirect without a place is an answer.
fn redirect_location(answer: &Response<Box<ResponseDownload>>) -> Option<&HeaderValue> {
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
fn redirect_target(from: &UrlTarget, place: &HeaderValue) -> Result<UrlTarget, RobotsFetchOutcome> {
    let place = std::str::from_utf8(place.as_bytes())
        .map_err(|_| RobotsFetchOutcome::UnsupportedRedirect)?;
    let base =
        url::Url::parse(from.as_str()).map_err(|_| RobotsFetchOutcome::UnsupportedRedirect)?;
    let mut url = base
        .join(place)
        .map_err(|_| RobotsFetchOutcome::UnsupportedRedirect)?;
    url.set_fragment(None);
    UrlTarget::parse(url.as_str()).map_err(|_| RobotsFetchOutcome::UnsupportedRedirect)
}

/// Only a file's body is read; the rest of any other is given up with its connection.
async fn read_response(
    url: UrlTarget,
    answer: Response<Box<ResponseDownload>>,
    known: RobotsValidators<'_>,
) -> RobotsFetch {
    let (head, download) = answer.into_parts();
    let ending = match head.status {
        StatusCode::NOT_MODIFIED if known != RobotsValidators::default() => {
            RobotsFetchOutcome::Unchanged
        }
        status => RobotsFetchOutcome::from_status(status.as_u16()),
    };
    let (ending, body) = match (ending, parse_coding(&head.headers)) {
        (RobotsFetchOutcome::File, Some(coding)) => match read_body(download, coding).await {
            Ok(body) => (RobotsFetchOutcome::File, body),
            Err(ending) => (ending, vec![]),
        },
        (RobotsFetchOutcome::File, None) => (RobotsFetchOutcome::UnsupportedCoding, vec![]),
        (other, _) => (other, vec![]),
    };
    RobotsFetch {
        outcome: ending,
        url: Some(url),
        head: Some(head),
        body,
        ..RobotsFetch::failed(ending)
    }
}

fn parse_coding(headers: &HeaderMap) -> Option<RobotsCoding> {
    let mut codings = headers.get_all(CONTENT_ENCODING).iter();
    let Some(coding) = codings.next() else {
        return Some(RobotsCoding::Identity);
    };
    if codings.next().is_some() {
        return None;
    }
    let coding = coding.as_bytes().trim_ascii();
    let is = |name: &[u8]| coding.eq_ignore_ascii_case(name);
    if coding.is_empty() || is(b"identity") {
        return Some(RobotsCoding::Identity);
    }
    (is(b"gzip") || is(b"x-gzip")).then_some(RobotsCoding::Gzip)
}
