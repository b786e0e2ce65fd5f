//! Fields that go with documents: what a request may ask for where its answer is to be read or changed, and what a changed
//! body takes with it.

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

/// Fields that say something of bytes that are no longer sent.
const BODY_DEPENDENT_FIELDS: [HeaderName; 7] = [
    CONTENT_LENGTH,
    CONTENT_ENCODING,
    CONTENT_MD5,
    DIGEST,
    CONTENT_DIGEST,
    REPR_DIGEST,
    ACCEPT_RANGES,
];

/// Makes a request one whose answer can be read: in no coding that cannot be undone, and as a whole. Of a part nobody could
/// say what rules on documents would.
pub(crate) fn prepare(headers: &mut HeaderMap, evaluation: &Evaluation) {
    if !evaluation.may_read_document() {
        return;
    }
    let accepted = supported_codings(headers);
    headers.insert(ACCEPT_ENCODING, accepted);
    headers.remove(RANGE);
    headers.remove(IF_RANGE);
}

/// What the client accepts of what can be undone.
fn supported_codings(headers: &HeaderMap) -> HeaderValue {
    let mut kept = String::new();
    for value in headers
        .get_all(ACCEPT_ENCODING)
        .iter()
        .filter_map(|value| value.to_str().ok())
    {
        for member in value.split(',').map(str::trim) {
            let name = member.split(';').next().unwrap_or_default().trim();
            let known = || SUPPORTED.split(", ").chain(["x-gzip", "identity"]);
            if known().any(|known| known.eq_ignore_ascii_case(name)) {
                kept.push_str(if kept.is_empty() { "" } else { ", " });
                kept.push_str(member);
            }
        }
    }
    HeaderValue::from_str(&kept)
        .ok()
        .filter(|value| !value.is_empty())
        .unwrap_or(HeaderValue::from_static("identity"))
}

/// Makes a head that of a changed body. `encoding` is that of the document, where its body was read: one in which ASCII
/// cannot be read is sent as UTF-8.
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
    let anew = changes.text == TextHandling::Strip;
    if anew || encoding.is_some_and(|encoding| !encoding.is_ascii_compatible()) {
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
    fn a_changed_body_takes_with_it_what_was_said_of_its_bytes() {
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
    fn only_codings_that_can_be_undone_are_asked_for() {
        for (asked, kept) in [
            ("gzip, deflate, br, zstd", "gzip, deflate"),
            ("br;q=1.0, GZIP;q=0.5, *;q=0.1", "GZIP;q=0.5"),
            ("br", "identity"),
            ("", "identity"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(asked));
            assert_eq!(supported_codings(&headers), kept, "{asked}");
        }
    }
}
