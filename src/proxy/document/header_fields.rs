//! Header fields that concern documents: the request fields that make a response readable, and the
//! response fields that depend on the body.

use encoding_rs::Encoding;
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, ETAG,
    HeaderMap, HeaderName, HeaderValue, IF_RANGE, RANGE,
};

use crate::pipeline::document_rewrite::{DocumentRewrite, TextHandling};
use crate::pipeline::evaluation::Evaluation;

use super::coding::SUPPORTED;

const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
const DIGEST: HeaderName = HeaderName::from_static("digest");
const CONTENT_DIGEST: HeaderName = HeaderName::from_static("content-digest");
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// Fields that describe the bytes of the original body.
const BODY_DEPENDENT_FIELDS: [HeaderName; 7] = [
    CONTENT_LENGTH,
    CONTENT_ENCODING,
    CONTENT_MD5,
    DIGEST,
    CONTENT_DIGEST,
    REPR_DIGEST,
    ACCEPT_RANGES,
];

/// Adjusts a request so that the proxy can read the response: only codings that it can decode, and
/// no range. Rules on documents cannot be evaluated on a part.
pub(crate) fn prepare(headers: &mut HeaderMap, evaluation: &Evaluation) {
    if !evaluation.may_read_document() {
        return;
    }
    let accepted = supported_codings(headers);
    headers.insert(ACCEPT_ENCODING, accepted);
    headers.remove(RANGE);
    headers.remove(IF_RANGE);
}

/// Returns the codings that both the client accepts and the proxy can decode.
fn supported_codings(headers: &HeaderMap) -> HeaderValue {
    let mut accepted = String::new();
    for value in headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
    {
        for member in value.split(',').map(str::trim) {
            let name = member.split(';').next().unwrap_or_default().trim();
            let is_supported = SUPPORTED
                .split(", ")
                .chain(["x-gzip", "identity"])
                .any(|known| known.eq_ignore_ascii_case(name));
            if is_supported {
                accepted.push_str(if accepted.is_empty() { "" } else { ", " });
                accepted.push_str(member);
            }
        }
    }
    HeaderValue::from_str(&accepted)
        .ok()
        .filter(|value| !value.is_empty())
        .unwrap_or(HeaderValue::from_static("identity"))
}

/// Adjusts a response head to a changed body. `encoding` is that of the document, if its body was
/// read: a document whose encoding is not ASCII-compatible is sent as UTF-8.
pub(super) fn adjust_response(
    headers: &mut HeaderMap,
    changes: DocumentRewrite,
    encoding: Option<&'static Encoding>,
) {
    for name in BODY_DEPENDENT_FIELDS {
        headers.remove(name);
    }
    if let Some(tag) = headers.get(ETAG)
        && !tag.as_bytes().starts_with(b"W/")
    {
        let weak = HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat());
        headers.remove(ETAG);
        headers.extend(weak.ok().map(|weak| (ETAG, weak)));
    }
    let is_generated = changes.text == TextHandling::Strip;
    if is_generated || encoding.is_some_and(|encoding| !encoding.is_ascii_compatible()) {
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("text/html; charset=utf-8"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::document_rewrite::LinkHandling;
    use crate::pipeline::header_effects::RobotsTag;

    #[test]
    fn a_changed_body_loses_the_fields_that_described_it() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("content-length", "5"),
            ("content-encoding", "gzip"),
            ("content-md5", "x"),
            ("accept-ranges", "bytes"),
            ("etag", "\"x\""),
            ("content-type", "text/html; charset=utf-16"),
        ] {
            headers.insert(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        let changes = DocumentRewrite {
            robots_meta: RobotsTag::NoFollow,
            links: LinkHandling::Strip,
            text: TextHandling::Keep,
        };
        adjust_response(&mut headers, changes, Some(encoding_rs::UTF_16LE));
        assert_eq!(headers.len(), 2, "{headers:?}");
        assert_eq!(
            (&headers["etag"], &headers["content-type"]),
            (
                &HeaderValue::from_static("W/\"x\""),
                &HeaderValue::from_static("text/html; charset=utf-8")
            )
        );
    }

    #[test]
    fn only_codings_that_can_be_decoded_are_requested() {
        for (requested, accepted) in [
            ("gzip, deflate, br, zstd", "gzip, deflate"),
            ("br;q=1.0, GZIP;q=0.5, *;q=0.1", "GZIP;q=0.5"),
            ("br", "identity"),
            ("", "identity"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(requested));
            assert_eq!(supported_codings(&headers), accepted, "{requested}");
        }
    }
}
