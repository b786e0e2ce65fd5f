//! The admin page at `/ui`: files that are embedded in the binary, and the headers that restrict what a browser does with
//! them.
//!
//! The page is in `ui/` and reaches the proxy through the API only. The responses do not depend on the state of the proxy,
//! and on nothing of the request but its path and `If-None-Match`.

use std::sync::LazyLock;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue,
    IF_NONE_MATCH, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use http_body_util::Full;
use sha2::{Digest, Sha256};

/// Allows only these files and the API, so that a text of a crawled site that is interpreted as markup can neither load
/// nor send anything.
const PAGE_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
     frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
);
/// URLs of the page contain filters, which are hosts and URLs of a crawl. They must not leak to other sites.
const NO_REFERRER: HeaderValue = HeaderValue::from_static("no-referrer");
/// `same-origin` isolates the page from windows of other origins.
const CROSS_ORIGIN_OPENER_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-opener-policy");
/// `same-origin` prevents other sites from embedding these files.
const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");

/// The bytes of the hash in an `ETag`: enough that no two versions of the page have the same one.
const ETAG_BYTES: usize = 8;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

/// One file of the page.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// The path under `/ui/`: `app.js`, `views/now.js`.
    pub name: &'static str,
    content_type: &'static str,
    content: &'static [u8],
    etag: &'static LazyLock<HeaderValue>,
}

/// The file of this name in `ui/`, with its `ETag`, which is computed at the first request.
macro_rules! asset {
    ($name:literal, $content_type:expr) => {{
        static TAG: LazyLock<HeaderValue> =
            LazyLock::new(|| etag(include_bytes!(concat!("ui/", $name))));
        Asset {
            name: $name,
            content_type: $content_type,
            content: include_bytes!(concat!("ui/", $name)),
            etag: &TAG,
        }
    }};
}

/// All files of the page.
pub const ASSETS: &[Asset] = &[
    Asset::PAGE,
    asset!("icon.svg", IMAGE),
    asset!("base.css", STYLE),
    asset!("views.css", STYLE),
    asset!("theme.js", SCRIPT),
    asset!("app.js", SCRIPT),
    asset!("api.js", SCRIPT),
    asset!("chart.js", SCRIPT),
    asset!("curl.js", SCRIPT),
    asset!("dom.js", SCRIPT),
    asset!("feed.js", SCRIPT),
    asset!("format.js", SCRIPT),
    asset!("sparkline.js", SCRIPT),
    asset!("stream.js", SCRIPT),
    asset!("table.js", SCRIPT),
    asset!("views/configuration.js", SCRIPT),
    asset!("views/crawlers.js", SCRIPT),
    asset!("views/decisions.js", SCRIPT),
    asset!("views/events.js", SCRIPT),
    asset!("views/explained.js", SCRIPT),
    asset!("views/fleet.js", SCRIPT),
    asset!("views/host.js", SCRIPT),
    asset!("views/hosts.js", SCRIPT),
    asset!("views/line.js", SCRIPT),
    asset!("views/now.js", SCRIPT),
    asset!("views/policy.js", SCRIPT),
    asset!("views/robots.js", SCRIPT),
    asset!("views/rollout.js", SCRIPT),
    asset!("views/rules.js", SCRIPT),
    asset!("views/shadow.js", SCRIPT),
    asset!("views/stops.js", SCRIPT),
    asset!("views/try.js", SCRIPT),
    asset!("views/urls.js", SCRIPT),
    asset!("views/verdict.js", SCRIPT),
    asset!("views/why.js", SCRIPT),
    asset!("vendor/uplot.js", SCRIPT),
    asset!("vendor/uplot.css", STYLE),
    asset!("vendor/LICENSE", TEXT),
];

impl Asset {
    /// The page itself.
    pub(super) const PAGE: Self = asset!("index.html", HTML);

    /// Returns the file of this name; the page itself for an empty one.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        if name.is_empty() {
            return Some(Self::PAGE);
        }
        ASSETS.iter().find(|asset| asset.name == name).copied()
    }

    /// Returns the file, or 304 if the client has this version (RFC 9110 section 13.1.2). A browser may store it, but must
    /// revalidate it each time, since a new version of the proxy brings a new page.
    pub(super) fn response(self, request_headers: &HeaderMap) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::from(Bytes::from_static(self.content)));
        if matches_etag(request_headers, self.etag) {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            *response.body_mut() = Full::default();
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(ETAG, (**self.etag).clone());
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        headers.insert(CONTENT_SECURITY_POLICY, PAGE_SECURITY_POLICY);
        headers.insert(REFERRER_POLICY, NO_REFERRER);
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(
            CROSS_ORIGIN_OPENER_POLICY,
            HeaderValue::from_static("same-origin"),
        );
        headers.insert(
            CROSS_ORIGIN_RESOURCE_POLICY,
            HeaderValue::from_static("same-origin"),
        );
        response
    }
}

fn etag(content: &[u8]) -> HeaderValue {
    let hash = Sha256::digest(content);
    let digits: String = hash
        .iter()
        .take(ETAG_BYTES)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    // Hex digits in quotes are always a valid field value.
    HeaderValue::try_from(format!("\"{digits}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// Returns `true` if `If-None-Match` lists this tag, by the weak comparison.
fn matches_etag(request_headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let Ok(etag) = etag.to_str() else {
        return false;
    };
    let values = request_headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut tags = values.flat_map(|value| value.split(',')).map(str::trim);
    tags.any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}
