//! The family of content that a `Content-Type` names, for counting only.
//!
//! Rules on content types parse the value as browsers do; this reads only the essence, since a wrong guess affects
//! nothing but a count.

use super::labels::label_values;

label_values! {
    /// The family of a content type; the label `content_family`.
    pub enum ContentFamily {
        /// HTML and XHTML.
        Html = "html",
        /// Text that is in no other family.
        Text = "text",
        /// Style sheets.
        Css = "css",
        Script = "script",
        /// JSON and `+json`.
        Json = "json",
        /// XML, feeds and `+xml`.
        Xml = "xml",
        /// Images.
        Image = "image",
        Audio = "audio",
        Video = "video",
        Font = "font",
        Pdf = "pdf",
        /// Archives.
        Archive = "archive",
        /// Anything else.
        Other = "other",
        /// No `Content-Type`.
        None = "none",
    }
}

impl ContentFamily {
    /// Returns the family of a `Content-Type` value.
    pub fn from_content_type(value: Option<&[u8]>) -> Self {
        let Some(value) = value else {
            return Self::None;
        };
        let essence = value
            .split(|b| matches!(b, b';' | b','))
            .next()
            .unwrap_or_default()
            .trim_ascii();
        if essence.is_empty() {
            return Self::None;
        }
        let exact = EXACT
            .iter()
            .find(|(name, _)| essence.eq_ignore_ascii_case(name.as_bytes()));
        let found = exact.or_else(|| {
            SUFFIXES
                .iter()
                .find(|(end, _)| ends_with_ignore_case(essence, end))
        });
        let found = found.or_else(|| {
            PREFIXES
                .iter()
                .find(|(begin, _)| starts_with_ignore_case(essence, begin))
        });
        found.map_or(Self::Other, |(_, family)| *family)
    }
}

const EXACT: [(&str, ContentFamily); 22] = [
    ("text/html", ContentFamily::Html),
    ("application/xhtml+xml", ContentFamily::Html),
    ("text/css", ContentFamily::Css),
    ("text/javascript", ContentFamily::Script),
    ("application/javascript", ContentFamily::Script),
    ("application/x-javascript", ContentFamily::Script),
    ("application/ecmascript", ContentFamily::Script),
    ("application/json", ContentFamily::Json),
    ("application/x-ndjson", ContentFamily::Json),
    ("text/json", ContentFamily::Json),
    ("text/xml", ContentFamily::Xml),
    ("application/xml", ContentFamily::Xml),
    ("image/svg+xml", ContentFamily::Image),
    ("application/pdf", ContentFamily::Pdf),
    ("application/x-pdf", ContentFamily::Pdf),
    ("application/zip", ContentFamily::Archive),
    ("application/gzip", ContentFamily::Archive),
    ("application/x-gzip", ContentFamily::Archive),
    ("application/x-tar", ContentFamily::Archive),
    ("application/x-bzip2", ContentFamily::Archive),
    ("application/x-7z-compressed", ContentFamily::Archive),
    ("application/vnd.rar", ContentFamily::Archive),
];
const SUFFIXES: [(&str, ContentFamily); 2] =
    [("+json", ContentFamily::Json), ("+xml", ContentFamily::Xml)];
const PREFIXES: [(&str, ContentFamily); 6] = [
    ("image/", ContentFamily::Image),
    ("text/", ContentFamily::Text),
    ("video/", ContentFamily::Video),
    ("audio/", ContentFamily::Audio),
    ("font/", ContentFamily::Font),
    ("application/font-", ContentFamily::Font),
];

fn starts_with_ignore_case(text: &[u8], start: &str) -> bool {
    text.get(..start.len())
        .is_some_and(|s| s.eq_ignore_ascii_case(start.as_bytes()))
}

fn ends_with_ignore_case(text: &[u8], end: &str) -> bool {
    let from = text.len().checked_sub(end.len());
    from.and_then(|from| text.get(from..))
        .is_some_and(|s| s.eq_ignore_ascii_case(end.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_types_fall_into_families() {
        for (value, family) in [
            ("text/html", "html"),
            ("Text/HTML ; charset=utf-8", "html"),
            ("text/html, text/html", "html"),
            ("application/xhtml+xml", "html"),
            ("text/plain;charset=x", "text"),
            ("application/ld+json", "json"),
            ("application/atom+xml", "xml"),
            ("image/svg+xml", "image"),
            ("IMAGE/webp", "image"),
            ("application/pdf", "pdf"),
            ("application/octet-stream", "other"),
            ("\u{fffd}\"}\n# HELP", "other"),
            ("", "none"),
            (" ; charset=utf-8", "none"),
        ] {
            assert_eq!(
                ContentFamily::from_content_type(Some(value.as_bytes())).as_str(),
                family,
                "{value:?}"
            );
        }
        assert_eq!(ContentFamily::from_content_type(None), ContentFamily::None);
    }
}
