//! The admin page at `/ui`: files that are part of the program, and how a browser may use them.
//!
//! The page itself is in `ui/`; it knows this proxy through the API only. Nothing here reads a file or names a
//! request: every answer is the same for everyone whom the guard lets in.

use std::sync::LazyLock;

use bytes::Bytes;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue,
    IF_NONE_MATCH, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use http::{Response, StatusCode};
use http_body_util::Full;
use sha2::{Digest, Sha256};

/// Nothing but our own files, and the API: a text of a crawled site that became markup could load and send nothing.
const PAGE_SECURITY_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
     frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
);
/// URLs of the page hold filters: hosts and URLs of a crawl. They are told to nobody.
const NO_REFERRER: HeaderValue = HeaderValue::from_static("no-referrer");
/// Windows that the page did not open, and that did not open it, share nothing with it.
const CROSS_ORIGIN_OPENER_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-opener-policy");
/// No other site embeds these files.
const CROSS_ORIGIN_RESOURCE_POLICY: HeaderName =
    HeaderName::from_static("cross-origin-resource-policy");

/// Hex digits of the hash in an `ETag`: two versions of the page never meet in one browser with the same ones.
const ETAG_BYTES: usize = 8;

/// Types by ending.
const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

/// One file of the page.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// Its path under `/ui/`: `app.js`, `views/now.js`.
    pub name: &'static str,
    content_type: &'static str,
    content: &'static [u8],
    tag: &'static LazyLock<HeaderValue>,
}

/// Each file with its hash, which is computed when it is first asked for.
macro_rules! assets {
    ($($name:literal $content_type:ident),* $(,)?) => {
        /// All files of the page; the first is the page itself.
        pub const ASSETS: &[Asset] = &[$({
            static TAG: LazyLock<HeaderValue> = LazyLock::new(|| tag(include_bytes!(concat!("ui/", $name))));
            Asset {
                name: $name,
                content_type: $content_type,
                content: include_bytes!(concat!("ui/", $name)),
                tag: &TAG,
            }
        }),*];
    };
}

assets! {
    "index.html" HTML,
    "icon.svg" IMAGE,
    "base.css" STYLE,
    "views.css" STYLE,
    "theme.js" SCRIPT,
    "app.js" SCRIPT,
    "api.js" SCRIPT,
    "chart.js" SCRIPT,
    "dom.js" SCRIPT,
    "feed.js" SCRIPT,
    "format.js" SCRIPT,
    "stream.js" SCRIPT,
    "table.js" SCRIPT,
    "views/decisions.js" SCRIPT,
    "views/explained.js" SCRIPT,
    "views/host.js" SCRIPT,
    "views/hosts.js" SCRIPT,
    "views/line.js" SCRIPT,
    "views/now.js" SCRIPT,
    "views/policy.js" SCRIPT,
    "views/robots.js" SCRIPT,
    "views/rules.js" SCRIPT,
    "views/stops.js" SCRIPT,
    "views/try.js" SCRIPT,
    "views/urls.js" SCRIPT,
    "views/verdict.js" SCRIPT,
    "views/why.js" SCRIPT,
    "vendor/uplot.js" SCRIPT,
    "vendor/uplot.css" STYLE,
    "vendor/LICENSE" TEXT,
}

impl Asset {
    /// The file at a path: the page at `/ui` and `/ui/`, the others at `/ui/NAME`.
    pub(super) fn from_path(path: &str) -> Option<Self> {
        let name = match path.strip_prefix("/ui")? {
            "" | "/" => "index.html",
            other => other.strip_prefix('/')?,
        };
        ASSETS.iter().find(|asset| asset.name == name).copied()
    }

    /// The file, or 304 if the client says that it has this very one (RFC 9110 section 13.1.2). It may be kept, but is
    /// asked for each time: a new version of the proxy brings a new page.
    pub(super) fn response(self, request_headers: &HeaderMap) -> Response<Full<Bytes>> {
        let mut answer = Response::new(Full::from(Bytes::from_static(self.content)));
        if matches_etag(request_headers, self.tag) {
            *answer.status_mut() = StatusCode::NOT_MODIFIED;
            *answer.body_mut() = Full::default();
        }
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert(ETAG, (**self.tag).clone());
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
        answer
    }
}

fn tag(content: &[u8]) -> HeaderValue {
    let hash = Sha256::digest(content);
    let digits: String = hash
        .iter()
        .take(ETAG_BYTES)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    // Digits in quotes are a field value.
    HeaderValue::try_from(format!("\"{digits}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// Whether `If-None-Match` names this tag; the comparison is the weak one.
fn matches_etag(request_headers: &HeaderMap, tag: &HeaderValue) -> bool {
    let Ok(tag) = tag.to_str() else { return false };
    let values = request_headers
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut tags = values.flat_map(|value| value.split(',')).map(str::trim);
    tags.any(|given| given == "*" || given.strip_prefix("W/").unwrap_or(given) == tag)
}
