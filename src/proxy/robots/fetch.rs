//! A fetch of a robots.txt file: the request, up to five redirects, and the body, all within one
//! time limit.

use std::sync::Arc;
use std::time::Duration;

use http::header::{
    ACCEPT, ACCEPT_ENCODING, AGE, CACHE_CONTROL, CONTENT_TYPE, DATE, ETAG, EXPIRES, HeaderMap,
    HeaderName, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED, LOCATION, USER_AGENT,
};
use http::{Method, Response, StatusCode, Version, response};

use crate::clock::Clock;
use crate::fleet::owners::{HostOwners, OwnershipWatch};
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
use crate::proxy::parents::ParentFaultScope;
use crate::proxy::upstream::{UpstreamClient, UpstreamError, UpstreamRequest};
use crate::robots::fetch_outcome::{FailurePersistence, RobotsFetchOutcome};
use crate::robots::freshness::CacheFields;
use crate::robots::state::{RobotsBodyType, RobotsFetchResult, RobotsValidators};
use crate::urls::target::UrlTarget;

use super::body::read_body;

/// The share of the remaining time for which a fetch waits for its host's turn. The rest is for the
/// response, so that a fetch without a turn is not taken for one that timed out.
const ADMISSION_SHARE: (u32, u32) = (3, 4);
/// The maximum number of redirects (RFC 9309 section 2.3.1.2).
const MAX_REDIRECTS: usize = 5;
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Fetches robots.txt files.
#[derive(Debug)]
pub struct RobotsFetcher {
    /// The resolver of addresses.
    pub address_vetter: Arc<AddressVetter>,
    /// The client for origins.
    pub upstream: Arc<UpstreamClient>,
    /// This process's name in `Via`.
    pub via: ViaName,
    /// The time limit of a whole fetch, including the wait for the host's turn.
    pub timeout: Duration,
    /// The clock that measures the time limit.
    pub clock: Clock,
    /// The owners of hosts, if this is a node of a fleet.
    pub owners: Option<HostOwners>,
}

/// The result of a fetch.
#[derive(Debug)]
pub struct RobotsFetch {
    /// The outcome, failures included.
    pub outcome: RobotsFetchOutcome,
    /// The last URL that was requested.
    pub url: Option<UrlTarget>,
    /// The head of the last response.
    pub head: Option<response::Parts>,
    /// The decoded text, up to the size limit.
    pub body: Vec<u8>,
    /// The details of a TLS failure with the first host.
    pub fault: Option<&'static UpstreamFault>,
    persistence: FailurePersistence,
    redirect: FetchRedirect,
}

/// `Yes` if the last response was redirected to. Its validators are not stored then, because the
/// next fetch begins with the first URL again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FetchRedirect {
    No,
    Yes,
}

impl RobotsFetch {
    pub(super) fn failed(outcome: RobotsFetchOutcome) -> Self {
        Self {
            outcome,
            url: None,
            head: None,
            body: vec![],
            fault: None,
            persistence: outcome.persistence(),
            redirect: FetchRedirect::No,
        }
    }

    /// Returns the result in the form that [`RobotsFetchResult`] defines.
    pub fn fetched(&self) -> RobotsFetchResult<'_> {
        let html = self
            .header(CONTENT_TYPE)
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
                cache_control: self.header(CACHE_CONTROL),
                expires: self.header(EXPIRES),
                date: self.header(DATE),
                age: self.header(AGE),
            },
            validators: match self.redirect {
                FetchRedirect::No => RobotsValidators {
                    etag: self.header(ETAG),
                    last_modified: self.header(LAST_MODIFIED),
                },
                FetchRedirect::Yes => RobotsValidators::default(),
            },
            fault: self.fault,
            persistence: self.persistence,
        }
    }

    fn header(&self, name: HeaderName) -> Option<&str> {
        self.head.as_ref()?.headers.get(name)?.to_str().ok()
    }
}

impl RobotsFetcher {
    /// Fetches the robots.txt of the target's host, conditionally if validators are known. Failures
    /// are outcomes too.
    pub async fn fetch(
        &self,
        target: &UrlTarget,
        request: &RobotsFetchRequest,
        validators: RobotsValidators<'_>,
    ) -> RobotsFetch {
        let Ok(first) = UrlTarget::parse(&format!("{}robots.txt", target.base())) else {
            return RobotsFetch::failed(RobotsFetchOutcome::UnsupportedRedirect);
        };
        let mut at = first.clone();
        let fetch = self.follow_redirects(&mut at, request, validators);
        let fetch = match tokio::time::timeout(self.timeout, fetch).await {
            Ok(Ok(fetch)) => fetch,
            Ok(Err(FetchFailure {
                outcome,
                fault,
                persistence,
            })) => RobotsFetch {
                fault,
                persistence,
                ..RobotsFetch::failed(outcome)
            },
            Err(_) => RobotsFetch::failed(RobotsFetchOutcome::Timeout),
        };
        if at.base() == first.base() {
            return fetch;
        }
        // The failure is that of another server.
        RobotsFetch {
            outcome: fetch.outcome.after_redirect(),
            fault: None,
            ..fetch
        }
    }

    /// Follows redirects; `target` is then the last URL. Each hop may use http or https; the
    /// exemption from certificate verification covers only the first host.
    async fn follow_redirects(
        &self,
        target: &mut UrlTarget,
        request: &RobotsFetchRequest,
        validators: RobotsValidators<'_>,
    ) -> Result<RobotsFetch, FetchFailure> {
        let began = self.clock.now();
        let first = target.clone();
        let mut redirect = FetchRedirect::No;
        for _ in 0..=MAX_REDIRECTS {
            let verify = if target.base() == first.base() {
                request.verify
            } else {
                CertificateVerification::On
            };
            let validators = match redirect {
                FetchRedirect::No => validators,
                FetchRedirect::Yes => RobotsValidators::default(),
            };
            let call = UpstreamRequest {
                method: Method::GET,
                headers: self.request_headers(target, request, validators),
                body: RequestUpload::Empty,
                uri: None,
                ownership: self.ownership(target, &first)?,
            };
            let remaining = self
                .timeout
                .saturating_sub(self.clock.now().saturating_duration_since(began));
            let max_wait = remaining * ADMISSION_SHARE.0 / ADMISSION_SHARE.1;
            let permit = request
                .acquire_permit(target, verify, &*self.address_vetter, max_wait)
                .await;
            let result = match permit {
                Ok(permit) => self.send_request(permit, call).await,
                Err(error) => Err(HopError::NotSent(error)),
            };
            let response = result.map_err(FetchFailure::from)?;
            let Some(location) = redirect_location(&response) else {
                return Ok(RobotsFetch {
                    redirect,
                    ..read_response(target.clone(), response, validators).await
                });
            };
            redirect = FetchRedirect::Yes;
            *target = redirect_target(target, location)?;
        }
        Err(RobotsFetchOutcome::TooManyRedirects.into())
    }

    /// Returns the ownership of the host, if this is a node of a fleet. A redirect may lead to the host of another
    /// node: that request is paced by this node alone.
    fn ownership(
        &self,
        target: &UrlTarget,
        first: &UrlTarget,
    ) -> Result<Option<Box<OwnershipWatch>>, FetchFailure> {
        let Some(owners) = &self.owners else {
            return Ok(None);
        };
        match owners.own(target.host()) {
            Ok(ownership) => Ok(Some(Box::new(OwnershipWatch::new(ownership)))),
            Err(_) if target.host() == first.host() => {
                let error = UpstreamError::OwnerLost(RequestUpload::Empty);
                Err(HopError::Upstream(error).into())
            }
            Err(_) => Ok(None),
        }
    }

    async fn send_request(
        &self,
        permit: Permit<UrlTarget, VettedAddresses>,
        call: UpstreamRequest,
    ) -> Result<Response<Box<ResponseDownload>>, HopError> {
        let permit = Box::new(permit);
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
        validators: RobotsValidators<'_>,
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
            (IF_NONE_MATCH, validators.etag),
            (IF_MODIFIED_SINCE, validators.last_modified),
        ] {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(value).ok()) {
                fields.insert(name, value);
            }
        }
        header_filter::filter_request(&mut fields, target.authority(), Version::HTTP_11, &self.via);
        fields
    }
}

/// The reason why a hop had no response.
enum HopError {
    NotSent(RobotsPermitError),
    Upstream(UpstreamError),
    Framing,
}

/// The outcome of a fetch without a response.
struct FetchFailure {
    outcome: RobotsFetchOutcome,
    fault: Option<&'static UpstreamFault>,
    persistence: FailurePersistence,
}

impl From<RobotsFetchOutcome> for FetchFailure {
    fn from(outcome: RobotsFetchOutcome) -> Self {
        Self {
            outcome,
            fault: None,
            persistence: outcome.persistence(),
        }
    }
}

impl From<HopError> for FetchFailure {
    fn from(error: HopError) -> Self {
        let tls = match &error {
            HopError::Upstream(UpstreamError::Tls(error)) => Some(*error),
            HopError::Upstream(_) | HopError::NotSent(_) | HopError::Framing => None,
        };
        let outcome = hop_outcome(error);
        Self {
            outcome,
            fault: tls.map(|error| error.fault()),
            persistence: tls.map_or(outcome.persistence(), |error| error.persistence()),
        }
    }
}

fn hop_outcome(error: HopError) -> RobotsFetchOutcome {
    match error {
        HopError::NotSent(RobotsPermitError::WaitTooLong) => RobotsFetchOutcome::NotAdmitted,
        HopError::NotSent(RobotsPermitError::Destination(error)) => match error {
            DestinationError::Prohibited(_)
            | DestinationError::OwnListener(_)
            | DestinationError::LoopbackName
            | DestinationError::PortDenied(_) => RobotsFetchOutcome::ProhibitedRedirect,
            DestinationError::LocalName
            | DestinationError::NoSuchName(_)
            | DestinationError::LookupFailed(_)
            | DestinationError::LookupTimeout(_) => RobotsFetchOutcome::Dns,
            DestinationError::ConnectionRefused(_) => RobotsFetchOutcome::Refused,
            DestinationError::UnknownParent | DestinationError::NoLocalAddress => {
                RobotsFetchOutcome::NotAdmitted
            }
        },
        HopError::Upstream(error) => match error {
            UpstreamError::BackingOff(_)
            | UpstreamError::OwnerLost(_)
            | UpstreamError::LeaseEnded => RobotsFetchOutcome::NotAdmitted,
            // A failed parent says nothing about the host.
            UpstreamError::Parent(error) => match error.scope {
                ParentFaultScope::Parent => RobotsFetchOutcome::NotAdmitted,
                ParentFaultScope::Origin => RobotsFetchOutcome::Broken,
            },
            UpstreamError::Dial(DialError::Refused) => RobotsFetchOutcome::Refused,
            UpstreamError::Tls(_) => RobotsFetchOutcome::Tls,
            UpstreamError::Dial(DialError::Timeout) | UpstreamError::Timeout => {
                RobotsFetchOutcome::Timeout
            }
            UpstreamError::Dial(DialError::Unreachable | DialError::Other)
            | UpstreamError::Closed
            | UpstreamError::Upload(_)
            | UpstreamError::Protocol(_)
            | UpstreamError::Http2(_)
            | UpstreamError::HeadTooLarge
            | UpstreamError::TooManyInterim => RobotsFetchOutcome::Broken,
        },
        HopError::Framing => RobotsFetchOutcome::Broken,
    }
}

/// Returns the location that a response redirects to. A redirect without a location is an ordinary
/// response.
fn redirect_location(response: &Response<Box<ResponseDownload>>) -> Option<&HeaderValue> {
    let is_redirect = matches!(
        response.status(),
        StatusCode::MOVED_PERMANENTLY
            | StatusCode::FOUND
            | StatusCode::SEE_OTHER
            | StatusCode::TEMPORARY_REDIRECT
            | StatusCode::PERMANENT_REDIRECT
    );
    response.headers().get(LOCATION).filter(|_| is_redirect)
}

/// Returns the URL of a redirect, if this proxy can request it.
fn redirect_target(
    from: &UrlTarget,
    location: &HeaderValue,
) -> Result<UrlTarget, RobotsFetchOutcome> {
    let location = std::str::from_utf8(location.as_bytes())
        .map_err(|_| RobotsFetchOutcome::UnsupportedRedirect)?;
    let base =
        url::Url::parse(from.as_str()).map_err(|_| RobotsFetchOutcome::UnsupportedRedirect)?;
    let mut url = base
        .join(location)
        .map_err(|_| RobotsFetchOutcome::UnsupportedRedirect)?;
    url.set_fragment(None);
    UrlTarget::parse(url.as_str()).map_err(|_| RobotsFetchOutcome::UnsupportedRedirect)
}

/// Reads the response. The body is read only if it is a file; any other is dropped with its
/// connection.
async fn read_response(
    url: UrlTarget,
    answer: Response<Box<ResponseDownload>>,
    validators: RobotsValidators<'_>,
) -> RobotsFetch {
    let (head, download) = answer.into_parts();
    let outcome = match head.status {
        StatusCode::NOT_MODIFIED if validators != RobotsValidators::default() => {
            RobotsFetchOutcome::Unchanged
        }
        status => RobotsFetchOutcome::from_status(status.as_u16()),
    };
    let (outcome, body) = if outcome == RobotsFetchOutcome::File {
        match read_body(download, &head.headers).await {
            Ok(body) => (outcome, body),
            Err(outcome) => (outcome, vec![]),
        }
    } else {
        (outcome, vec![])
    };
    RobotsFetch {
        outcome,
        url: Some(url),
        head: Some(head),
        body,
        ..RobotsFetch::failed(outcome)
    }
}
