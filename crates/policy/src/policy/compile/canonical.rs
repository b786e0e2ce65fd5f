//! Values of conditions and items of lists, converted to the canonical form of the fields
//! (docs/policy/reference.md, "Canonical form").

use crate::policy::field::Field;
use crate::policy::pattern::{CaseSensitivity, TextForm};
use crate::policy::source::tree::TextTestKind;
use crate::urls::target::{UrlTarget, canonical_host, normalize_text};

use super::escape::{EscapedText, UrlRegion};

/// The reason why a value is invalid, and the fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InvalidValue {
    pub(super) message: String,
    pub(super) help: Option<String>,
}

impl InvalidValue {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: None,
        }
    }

    pub(super) fn with_help(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: Some(help.into()),
        }
    }
}

/// Converts a value of a text test, other than a regular expression or a glob, to canonical form.
pub(super) fn value(
    field: &Field,
    kind: TextTestKind,
    case: CaseSensitivity,
    form: TextForm,
    text: &str,
) -> Result<EscapedText, InvalidValue> {
    let mut escaped = match (field, kind) {
        (Field::Host, _) => plain_text(host(kind, text)?),
        (Field::Authority, _) => plain_text(authority(kind, text)?),
        (Field::Url, TextTestKind::Exact) => whole_url(text)?,
        (Field::Url, TextTestKind::Prefix) => url_prefix(text),
        (Field::Path, TextTestKind::Ext) => extension(text)?,
        (Field::Path, TextTestKind::Under) => directory(text)?,
        (Field::Path | Field::PathAndQuery, TextTestKind::Exact) if text.starts_with('/') => {
            path(text)
        }
        _ => escape_by_region(field, kind, text),
    };
    if form == TextForm::Normalized {
        escaped = plain_text(normalize_text(&escaped.text).into_owned());
    }
    if field.ignores_case() {
        escaped.text.make_ascii_lowercase();
    }
    // If case is ignored, the text covers every form of an escape, unless the character may also be
    // unescaped.
    let only_case = escaped
        .pattern
        .as_ref()
        .is_some_and(|pattern| !pattern.contains("(?:"));
    if case == CaseSensitivity::Insensitive && only_case {
        escaped.pattern = None;
    }
    Ok(escaped)
}

fn plain_text(text: String) -> EscapedText {
    EscapedText {
        text,
        pattern: None,
    }
}

/// Returns the URL region of a field; `None` for fields that are not part of a URL and contain no
/// escapes.
pub(super) fn url_region(field: &Field) -> Option<UrlRegion> {
    match field {
        Field::Path | Field::RelPath => Some(UrlRegion::Path),
        Field::Query => Some(UrlRegion::Query),
        Field::Url | Field::PathAndQuery | Field::RelPathAndQuery | Field::AuthorityPathQuery => {
            Some(UrlRegion::Either)
        }
        Field::Scheme
        | Field::Host
        | Field::Port
        | Field::Authority
        | Field::Param(_)
        | Field::Method
        | Field::Crawler
        | Field::Referer
        | Field::Dest
        | Field::Depth
        | Field::Address
        | Field::ContentType
        | Field::Status
        | Field::Size
        | Field::Header(_)
        | Field::Usage(_)
        | Field::License
        | Field::Title
        | Field::BodyPrefix
        | Field::MetaRobots
        | Field::Canonical => None,
    }
}

/// Escapes the value of a field without a special form. The text before a `?` is path if the value
/// is compared from the beginning of the field; the text after it is always query.
fn escape_by_region(field: &Field, kind: TextTestKind, text: &str) -> EscapedText {
    let Some(region) = url_region(field) else {
        return plain_text(text.into());
    };
    let from_the_start = matches!(kind, TextTestKind::Exact | TextTestKind::Prefix);
    let mut escaped = EscapedText::default();
    if region != UrlRegion::Either {
        escaped.push_escaped(region, text);
        return escaped;
    }
    let (head, query) = text
        .split_once('?')
        .map_or((text, None), |(head, query)| (head, Some(query)));
    escaped.push_escaped(
        if from_the_start {
            UrlRegion::Path
        } else {
            UrlRegion::Either
        },
        head,
    );
    if let Some(query) = query {
        escaped.push("?");
        escaped.push_escaped(UrlRegion::Query, query);
    }
    escaped
}

/// Converts a host, or a part of one.
fn host(kind: TextTestKind, text: &str) -> Result<String, InvalidValue> {
    if !matches!(kind, TextTestKind::Exact | TextTestKind::Domain) {
        return host_part(text);
    }
    whole_host(text)
}

/// Converts a whole host: `FOO.com.` becomes `foo.com`.
pub(super) fn whole_host(text: &str) -> Result<String, InvalidValue> {
    if is_plain_host(text) {
        return Ok(text.to_owned());
    }
    if text.contains('*') {
        let instead = "write `domain: example.com` for a host and all below it, or `host: { glob: \"*.example.com\" }`";
        return Err(InvalidValue::with_help(
            "`*` is not a wildcard here",
            instead,
        ));
    }
    if let Some(rest) = text.strip_prefix('.') {
        let instead = format!("write {rest}; `domain` also matches all hosts below it");
        return Err(InvalidValue::with_help(
            "a host must not begin with a dot",
            instead,
        ));
    }
    if text.contains("://") {
        return Err(InvalidValue::with_help(
            "a URL, not a host",
            "write the host alone, or use `site` or `url_prefix`",
        ));
    }
    let port = text.rsplit_once(':').map(|(_, port)| port);
    if port.is_some_and(|port| port.bytes().all(|b| b.is_ascii_digit())) && !text.contains("::") {
        return Err(InvalidValue::with_help(
            "a host must not include a port",
            "write the host alone, or use `authority`",
        ));
    }
    canonical_host(text).map_err(|error| InvalidValue::new(format!("not a host: {error}")))
}

/// Returns `true` for lower-case host names that no parser would change: most items of big lists.
pub(super) fn is_plain_host(text: &str) -> bool {
    // An IPv4 address in any notation ends in a label that begins with a digit.
    let last = text.rsplit('.').next().unwrap_or(text);
    last.bytes().next().is_some_and(|b| b.is_ascii_lowercase())
        && text.split('.').all(is_plain_label)
}

fn is_plain_label(label: &str) -> bool {
    !label.is_empty()
        && !label.contains("--")
        && label
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn host_part(text: &str) -> Result<String, InvalidValue> {
    if text.is_ascii() {
        return Ok(text.to_ascii_lowercase());
    }
    let name = text.trim_matches('.');
    let cannot = "a part of a host with non-ASCII letters must consist of whole labels";
    let ascii = canonical_host(name)
        .map_err(|_| InvalidValue::with_help(cannot, "write them as `xn--…`"))?;
    Ok(text.replace(name, &ascii))
}

/// Converts host and port; the port keeps its spelling.
fn authority(kind: TextTestKind, text: &str) -> Result<String, InvalidValue> {
    if kind != TextTestKind::Exact {
        return host_part(text);
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let host = whole_host(host)?;
    let Some(port) = port else { return Ok(host) };
    if port.parse::<u16>().is_err() {
        return Err(InvalidValue::new("not a port"));
    }
    Ok(format!("{host}:{port}"))
}

/// Converts a whole URL: `http://h` becomes `http://h/`.
pub(super) fn whole_url(text: &str) -> Result<EscapedText, InvalidValue> {
    let Some((front, rest)) = split_authority(text) else {
        return Err(not_a_url(text));
    };
    if rest.contains('#') {
        let instead = "remove the `#` and everything after it; for a literal `#` write %23";
        return Err(InvalidValue::with_help(
            "URLs are matched without their fragment",
            instead,
        ));
    }
    let front = UrlTarget::parse(&format!("{front}/"))
        .map_err(|error| InvalidValue::new(format!("not a URL: {error}")))?;
    let mut escaped = EscapedText::default();
    escaped.push(front.base().trim_end_matches('/'));
    escaped.push(if rest.starts_with('/') { "" } else { "/" });
    push_path_and_query(&mut escaped, rest);
    let whole = UrlTarget::parse(&escaped.text)
        .map_err(|error| InvalidValue::new(format!("not a URL: {error}")))?;
    if whole.as_str() == escaped.text {
        Ok(escaped)
    } else {
        Ok(plain_text(whole.as_str().to_owned()))
    }
}

fn not_a_url(text: &str) -> InvalidValue {
    let instead = if text.starts_with('/') {
        "write `path: …`"
    } else {
        "write it with `http://` or `https://`"
    };
    InvalidValue::with_help("not a URL", instead)
}

/// Splits a URL after its authority.
fn split_authority(url: &str) -> Option<(&str, &str)> {
    let authority = url.find("://")? + 3;
    let length = url.get(authority..)?.find(['/', '?']);
    url.split_at_checked(length.map_or(url.len(), |length| authority + length))
}

pub(super) fn push_path_and_query(escaped: &mut EscapedText, text: &str) {
    let (path, query) = text
        .split_once('?')
        .map_or((text, None), |(path, query)| (path, Some(query)));
    escaped.push_escaped(UrlRegion::Path, path);
    if let Some(query) = query {
        escaped.push("?");
        escaped.push_escaped(UrlRegion::Query, query);
    }
}

/// Converts the beginning of a URL. The host is converted only if something follows it, since it
/// may be incomplete; the rest is escaped and otherwise unchanged.
pub(super) fn url_prefix(text: &str) -> EscapedText {
    let mut escaped = EscapedText::default();
    let Some((front, rest)) = split_authority(text) else {
        escaped.push(text);
        return escaped;
    };
    let whole = if rest.is_empty() {
        None
    } else {
        UrlTarget::parse(&format!("{front}/")).ok()
    };
    match whole {
        Some(url) => escaped.push(url.base().trim_end_matches('/')),
        None => escaped.push(&front.to_lowercase()),
    }
    if rest.starts_with('?') {
        escaped.push("/");
    }
    push_path_and_query(&mut escaped, rest);
    escaped
}

/// Returns the prefixes of a site's URLs: with and without `www.` if the site has no path.
pub(super) fn site_prefixes(text: &str) -> Result<Vec<EscapedText>, InvalidValue> {
    let url = whole_url(text)?;
    let target = UrlTarget::parse(&url.text)
        .map_err(|error| InvalidValue::new(format!("not a URL: {error}")))?;
    if target.path_and_query() != "/" {
        return Ok(vec![url]);
    }
    let scheme = target.scheme().as_str();
    let authority = target.authority();
    let twin = match authority.strip_prefix("www.") {
        Some(bare) => format!("{scheme}://{bare}/"),
        None => format!("{scheme}://www.{authority}/"),
    };
    // An address has no `www.` variant.
    if target.ip().is_some() {
        Ok(vec![url])
    } else {
        Ok(vec![url, plain_text(twin)])
    }
}

/// Converts a complete path: dot segments are resolved.
fn path(text: &str) -> EscapedText {
    let mut escaped = EscapedText::default();
    push_path_and_query(&mut escaped, text);
    match UrlTarget::parse(&format!("http://h{}", escaped.text)) {
        Ok(url) if url.path_and_query() != escaped.text => {
            plain_text(url.path_and_query().to_owned())
        }
        Ok(_) | Err(_) => escaped,
    }
}

/// Converts a file name extension: the leading dot is optional.
fn extension(text: &str) -> Result<EscapedText, InvalidValue> {
    let bare = text.strip_prefix('.').unwrap_or(text);
    let bare = bare.strip_prefix("*.").unwrap_or(bare);
    if bare.is_empty() || bare.contains(['/', '?', '*']) {
        return Err(InvalidValue::with_help(
            "not a file name extension",
            "written like gif, tar.gz",
        ));
    }
    let mut escaped = EscapedText::default();
    escaped.push_escaped(UrlRegion::Path, &bare.to_ascii_lowercase());
    // Extensions are compared without regard to case, including escapes.
    Ok(plain_text(escaped.text))
}

/// Converts a directory: a final slash is removed.
fn directory(text: &str) -> Result<EscapedText, InvalidValue> {
    if !text.starts_with('/') {
        let instead = format!("write /{text}");
        return Err(InvalidValue::with_help(
            "a directory must begin with `/`",
            instead,
        ));
    }
    let mut escaped = EscapedText::default();
    escaped.push_escaped(UrlRegion::Path, text.strip_suffix('/').unwrap_or(text));
    Ok(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(field: &Field, kind: TextTestKind, text: &str) -> EscapedText {
        value(
            field,
            kind,
            CaseSensitivity::Sensitive,
            TextForm::Canonical,
            text,
        )
        .unwrap()
    }

    #[test]
    fn values_are_canonicalized_like_their_fields() {
        use TextTestKind::{Contains, Domain, Exact, Ext, Prefix, Suffix, Under};
        for (field, kind, text, expected) in [
            (Field::Host, Exact, "FOO.com.", "foo.com"),
            (Field::Host, Exact, "bücher.de", "xn--bcher-kva.de"),
            (Field::Host, Exact, "0x7f.1", "127.0.0.1"),
            (Field::Host, Domain, "Foo.COM", "foo.com"),
            (Field::Host, Suffix, ".Bücher.de", ".xn--bcher-kva.de"),
            (Field::Authority, Exact, "H.com:8080", "h.com:8080"),
            (Field::Url, Exact, "http://h", "http://h/"),
            (Field::Url, Exact, "HTTP://H:80?a", "http://h/?a"),
            (Field::Url, Exact, "http://h/a/../b", "http://h/b"),
            (
                Field::Url,
                Exact,
                "http://h/a b?c d",
                "http://h/a%20b?c%20d",
            ),
            (Field::Url, Prefix, "HTTP://H.com:80/A", "http://h.com/A"),
            (Field::Url, Prefix, "http://H.co", "http://h.co"),
            (Field::Path, Exact, "/a/./b", "/a/b"),
            (Field::Path, Under, "/old/", "/old"),
            (Field::Path, Under, "/", ""),
            (Field::Path, Ext, ".GIF", "gif"),
            (Field::Path, Contains, "a b", "a%20b"),
            (Field::Query, Contains, "a b{", "a%20b{"),
            (Field::ContentType, Exact, "Text/HTML", "text/html"),
            (Field::Param("x".into()), Exact, "a b<", "a b<"),
        ] {
            let found = canonical(&field, kind, text);
            assert_eq!(
                (found.text.as_str(), found.pattern),
                (expected, None),
                "{text}"
            );
        }
    }

    #[test]
    fn letters_in_escapes_make_a_pattern() {
        let found = canonical(&Field::Path, TextTestKind::Prefix, "/é");
        assert_eq!(found.pattern.as_deref(), Some("/%[Cc]3%[Aa]9"));
        let found = value(
            &Field::Path,
            TextTestKind::Prefix,
            CaseSensitivity::Insensitive,
            TextForm::Canonical,
            "/é",
        )
        .unwrap();
        assert_eq!(found.pattern, None);
        let found = value(
            &Field::Path,
            TextTestKind::Prefix,
            CaseSensitivity::Sensitive,
            TextForm::Normalized,
            "/é%7e",
        )
        .unwrap();
        assert_eq!((found.text.as_str(), found.pattern), ("/%C3%A9~", None));
    }

    #[test]
    fn www_variants_exist_only_without_a_path() {
        for (site, expected) in [
            ("http://H", &["http://h/", "http://www.h/"][..]),
            (
                "https://www.h:444/",
                &["https://www.h:444/", "https://h:444/"],
            ),
            ("http://h/p", &["http://h/p"]),
            ("http://10.0.0.1", &["http://10.0.0.1/"]),
        ] {
            let prefixes = site_prefixes(site).unwrap();
            let texts: Vec<String> = prefixes.into_iter().map(|prefix| prefix.text).collect();
            assert_eq!(texts, expected);
        }
    }
}
