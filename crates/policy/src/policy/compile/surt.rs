//! The beginnings of SURTs in conditions and lists, in the forms that Heritrix reads.
//!
//! A formal SURT (`http://(com,example,)/path`, or without scheme and parenthesis) is a prefix as it
//! is. A host or a URL is converted to the prefix that it implies: `example.com` to `com,example,`,
//! which includes its subdomains, and `http://example.com/a/b` to `com,example,)/a/`. Both may follow
//! a `+`, which begins such lines in a file of Heritrix. Schemes do not matter.

use crate::policy::pattern::to_surt;
use crate::urls::target::{UrlTarget, canonical_host};

use super::canonical::{InvalidValue, push_path_and_query};
use super::escape::EscapedText;

const EXAMPLES: &str = "written like com,example, or com,example,)/path, or as a URL";

/// Converts the beginning of a SURT to the form of [`to_surt`].
pub(super) fn surt_prefix(text: &str) -> Result<String, InvalidValue> {
    let text = without_directive(text)?;
    if is_formal(text) {
        formal_prefix(text)
    } else {
        implied_prefix(text)
    }
}

/// Returns the host of a value as it is written: labels in either order, possibly with a port.
pub(super) fn written_host(text: &str) -> &str {
    let text = text.strip_prefix('+').map_or(text, str::trim_start);
    let bare = text.split_once("://").map_or(text, |(_, rest)| rest);
    bare.split([')', '/', '?']).next().unwrap_or(bare)
}

/// Returns `true` if a value is a URL whose last path segment is not part of the prefix.
pub(super) fn drops_last_segment(text: &str) -> bool {
    let Ok(text) = without_directive(text) else {
        return false;
    };
    let bare = text.split_once("://").map_or(text, |(_, rest)| rest);
    !is_formal(text) && bare.contains('/') && !bare.ends_with('/')
}

fn without_directive(text: &str) -> Result<&str, InvalidValue> {
    if text.starts_with('-') {
        return Err(InvalidValue::with_help(
            "`-` begins a prefix to reject in a seed file of Heritrix, and has no meaning here",
            "put these prefixes into a list of their own, without the `-`",
        ));
    }
    let bare = text.strip_prefix('+').map_or(text, str::trim_start);
    if bare.is_empty() {
        return Err(InvalidValue::with_help("not a SURT", EXAMPLES));
    }
    Ok(bare)
}

/// Returns `true` if the labels of the host are in reverse order.
fn is_formal(text: &str) -> bool {
    let bare = text.split_once("://").map_or(text, |(_, rest)| rest);
    let host = bare.split(['/', '?']).next().unwrap_or(bare);
    host.contains(['(', ')', ','])
}

fn formal_prefix(text: &str) -> Result<String, InvalidValue> {
    let bare = match text.split_once("://") {
        Some((scheme, rest)) => {
            check_scheme(scheme)?;
            rest
        }
        None => text,
    };
    let bare = bare.strip_prefix('(').unwrap_or(bare);
    let (host, path) = bare
        .split_once(')')
        .map_or((bare, None), |(host, path)| (host, Some(path)));
    let mut escaped = EscapedText::default();
    escaped.push(&formal_host(host, path.is_some())?);
    if let Some(path) = path {
        if !path.is_empty() && !path.starts_with('/') {
            return Err(matches_nothing("a path begins with `/` after the `)`", ""));
        }
        escaped.push(")");
        push_path_and_query(&mut escaped, path);
    }
    Ok(escaped.text)
}

/// Converts the host of a formal SURT. Of one that is not closed by a `)` the last label may be
/// incomplete.
fn formal_host(host: &str, closed: bool) -> Result<String, InvalidValue> {
    let (names, port) = match host.rsplit_once(':') {
        Some((names, port)) if !port.ends_with(']') => (names, Some(port)),
        _ => (host, None),
    };
    if port.is_some_and(|port| !port.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err(matches_nothing("not a port", ""));
    }
    let is_complete = closed || port.is_some();
    let canonical = if is_address(names) {
        canonical_host(names).map_err(|error| matches_nothing(&error.to_string(), ""))?
    } else if !is_complete && is_start_of_address(names) {
        names.to_owned()
    } else {
        formal_name(names, is_complete)?
    };
    Ok(match port {
        Some(port) => format!("{canonical}:{port}"),
        None => canonical,
    })
}

/// An address keeps its order in a SURT.
fn is_address(host: &str) -> bool {
    host.starts_with('[') || host.parse::<std::net::Ipv4Addr>().is_ok()
}

fn is_start_of_address(host: &str) -> bool {
    host.bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.')
}

fn formal_name(names: &str, is_complete: bool) -> Result<String, InvalidValue> {
    if is_complete && !names.ends_with(',') {
        let help = format!("write {names},)");
        return Err(matches_nothing(
            "each label of a host, also the last one, ends in a comma",
            &help,
        ));
    }
    let top = names.split_once(',').map_or("", |(top, _)| top);
    if !top.is_empty() && is_start_of_address(top) {
        let help = "write an address as it is: (192.0.2.7)/";
        return Err(matches_nothing("no domain ends in a number", help));
    }
    if names.is_ascii() {
        let lower = names.to_ascii_lowercase();
        let labels = lower.strip_suffix(',').unwrap_or(&lower);
        return if labels.split(',').all(is_label) {
            Ok(lower)
        } else {
            Err(matches_nothing("not the labels of a host", EXAMPLES))
        };
    }
    let Some(labels) = names.strip_suffix(',') else {
        return Err(InvalidValue::with_help(
            "a part of a host with non-ASCII letters must consist of whole labels",
            format!("write {names},"),
        ));
    };
    let host: Vec<&str> = labels.rsplit(',').collect();
    let host = canonical_host(&host.join("."))
        .map_err(|error| matches_nothing(&error.to_string(), EXAMPLES))?;
    Ok(host.rsplit('.').flat_map(|label| [label, ","]).collect())
}

fn is_label(label: &str) -> bool {
    !label.is_empty()
        && label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// Returns the prefix that a host or a URL implies: a host with its subdomains, a URL up to the last
/// slash.
fn implied_prefix(text: &str) -> Result<String, InvalidValue> {
    let bare = match text.split_once("://") {
        Some((scheme, rest)) => {
            check_scheme(scheme)?;
            rest
        }
        None => text,
    };
    let bare = bare.split_once('#').map_or(bare, |(before, _)| before);
    let mut escaped = EscapedText::default();
    let host_end = bare.find(['/', '?']).unwrap_or(bare.len());
    let (host, rest) = bare.split_at_checked(host_end).unwrap_or((bare, ""));
    escaped.push("http://");
    escaped.push(host);
    push_path_and_query(&mut escaped, rest);
    let url = UrlTarget::parse(&escaped.text)
        .map_err(|error| InvalidValue::with_help(format!("not a SURT: {error}"), EXAMPLES))?;
    let surt = to_surt(url.as_str()).unwrap_or_default();
    let end = if rest.is_empty() {
        surt.find(')')
    } else {
        surt.rfind('/').map(|slash| slash + 1)
    };
    Ok(end
        .and_then(|end| surt.get(..end))
        .unwrap_or(&surt)
        .to_owned())
}

fn check_scheme(scheme: &str) -> Result<(), InvalidValue> {
    let is_known = ["http", "https"]
        .into_iter()
        .any(|known| scheme.eq_ignore_ascii_case(known));
    if is_known {
        Ok(())
    } else {
        Err(matches_nothing("only http and https are supported", ""))
    }
}

/// Returns the error of a value that no URL matches.
fn matches_nothing(why: &str, help: &str) -> InvalidValue {
    let message = format!("matches nothing: {why}");
    if help.is_empty() {
        InvalidValue::new(message)
    } else {
        InvalidValue::with_help(message, help)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_heritrix_is_read() {
        for (text, expected) in [
            ("com,example,)/a b", "com,example,)/a%20b"),
            ("http://(COM,Example,)/A", "com,example,)/A"),
            ("com,example", "com,example"),
            ("+http://(uk,", "uk,"),
            ("http://(co", "co"),
            ("+uk", "uk,"),
            ("+ www.Example.com", "com,example,www,"),
            ("http://www.example.edu", "edu,example,www,"),
            ("http://www.example.edu/", "edu,example,www,)/"),
            ("http://www.example.edu/a/b", "edu,example,www,)/a/"),
            (
                "https://www.example.edu/a/?x=/b/c#d",
                "edu,example,www,)/a/?x=/b/",
            ),
            ("www.example.edu?x", "edu,example,www,)/"),
            ("example.com:8080", "com,example,:8080"),
            ("com,example,:8080)/", "com,example,:8080)/"),
            ("http://(192.0.2.7)/a", "192.0.2.7)/a"),
            ("http://(192.0.2.", "192.0.2."),
            ("192.0.2.7/", "192.0.2.7)/"),
            ("http://[::1]/", "[::1])/"),
            ("de,bücher,", "de,xn--bcher-kva,"),
            ("bücher.de/ü/", "de,xn--bcher-kva,)/%C3%BC/"),
        ] {
            assert_eq!(surt_prefix(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_can_match_nothing_is_an_error() {
        for (text, message, help) in [
            ("com,example)/path", "ends in a comma", "com,example,)"),
            ("http://(com,example)/", "ends in a comma", "com,example,)"),
            ("com,,example,", "labels of a host", "written like"),
            ("com,exa mple,", "labels of a host", "written like"),
            ("7,2,0,192,)/", "ends in a number", "192.0.2.7"),
            ("com,example,)x", "begins with `/`", ""),
            ("com,example,:x)/", "not a port", ""),
            ("ftp://(com,", "only http and https", ""),
            ("ftp://example.com/", "only http and https", ""),
            ("-http://(com,", "prefix to reject", "a list of their own"),
            ("+", "not a SURT", "written like"),
            ("exa mple.com", "not a SURT", "written like"),
            ("de,büch", "whole labels", "de,büch,"),
        ] {
            let error = surt_prefix(text).unwrap_err();
            assert!(error.message.contains(message), "{text}: {error:?}");
            assert!(error.help.unwrap_or_default().contains(help), "{text}");
        }
    }

    #[test]
    fn only_a_url_loses_its_last_segment() {
        for (text, expected) in [
            ("http://h/a", true),
            ("h/a?b", true),
            ("h/", false),
            ("h/a/", false),
            ("h", false),
            ("http://h", false),
            ("com,h,)/a", false),
        ] {
            assert_eq!(drops_last_segment(text), expected, "{text}");
        }
    }
}
