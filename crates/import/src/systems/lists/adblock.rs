//! Filters of Adblock Plus and uBlock Origin, as they are read.

use crate::report::PartId;

/// A network filter that a proxy can apply.
#[derive(Clone, Debug)]
pub struct AdblockFilter {
    pub part: PartId,
    /// The filter without options: `||example.com^`, `/ads/*`.
    pub pattern: String,
    /// `@@`: what it fits is not blocked.
    pub is_exception: bool,
    /// It blocks in spite of exceptions.
    pub is_important: bool,
    /// It is for resources of pages only, of some type or of other sites.
    pub embeds_only: bool,
    pub match_case: bool,
}

/// A line of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FilterLine<'a> {
    Comment,
    /// It changes what a page shows, not what is requested.
    Cosmetic,
    Network {
        pattern: &'a str,
        is_exception: bool,
        options: FilterOptions,
    },
    /// A network filter that is not converted.
    Unsupported {
        is_exception: bool,
        reason: &'static str,
    },
    /// A network filter about what no proxy sees.
    Unseen(&'static str),
}

/// Options that matter to a proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FilterOptions {
    pub is_important: bool,
    pub embeds_only: bool,
    pub match_case: bool,
    pub is_bad: bool,
}

/// The outcome of reading an option.
enum FilterOptionOutcome {
    Known,
    Type,
    Unsupported(&'static str),
    Unseen(&'static str),
    /// A type that no proxy sees: the filter may have others.
    UnseenType,
}

/// Reads a line of a list.
pub(super) fn read_line(line: &str) -> FilterLine<'_> {
    let line = line.trim();
    if line.is_empty() || line.starts_with(['!', '[']) || line == "#" || line.starts_with("# ") {
        return FilterLine::Comment;
    }
    if is_cosmetic(line) {
        return FilterLine::Cosmetic;
    }
    let (text, is_exception) = match line.strip_prefix("@@") {
        Some(text) => (text, true),
        None => (line, false),
    };
    let (pattern, options) = split_options(text);
    read_network(pattern, options, is_exception)
}

/// Returns `true` for filters of elements, scripts and styles.
fn is_cosmetic(line: &str) -> bool {
    let Some(at) = line.find('#') else {
        return line.contains("$$") || line.contains("$@$");
    };
    let rest = line.get(at..).unwrap_or_default();
    let markers = [
        "##", "#@#", "#?#", "#@?#", "#$#", "#@$#", "#$?#", "#%#", "#@%#", "#+js",
    ];
    markers.iter().any(|marker| rest.starts_with(marker))
}

/// Splits a filter at the `$` before its options.
fn split_options(text: &str) -> (&str, Option<&str>) {
    let is_regex = text.starts_with('/') && text.len() > 1 && text.ends_with('/');
    if is_regex {
        return (text, None);
    }
    let Some(dollar) = text.rfind('$') else {
        return (text, None);
    };
    let options = text.get(dollar + 1..).unwrap_or_default();
    let is_option =
        |c: char| c.is_ascii_alphanumeric() || "~_-,=|.*:/<>()'\" ".contains(c) || !c.is_ascii();
    let begins = options.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '~');
    if begins && options.chars().all(is_option) {
        (text.get(..dollar).unwrap_or_default(), Some(options))
    } else {
        (text, None)
    }
}

fn read_network<'a>(pattern: &'a str, options: Option<&str>, is_exception: bool) -> FilterLine<'a> {
    let mut known = FilterOptions::default();
    let (mut has_types, mut has_unseen_types) = (false, false);
    for option in options.unwrap_or_default().split(',') {
        match read_option(option.trim(), &mut known, is_exception) {
            FilterOptionOutcome::Known => {}
            FilterOptionOutcome::Type => has_types = true,
            FilterOptionOutcome::UnseenType => has_unseen_types = true,
            FilterOptionOutcome::Unseen(reason) => return FilterLine::Unseen(reason),
            FilterOptionOutcome::Unsupported(reason) => {
                return FilterLine::Unsupported {
                    is_exception,
                    reason,
                };
            }
        }
    }
    if has_unseen_types && !has_types {
        return FilterLine::Unseen("types of requests that no proxy sees");
    }
    known.embeds_only |= has_types;
    FilterLine::Network {
        pattern,
        is_exception,
        options: known,
    }
}

fn read_option(option: &str, known: &mut FilterOptions, is_exception: bool) -> FilterOptionOutcome {
    let (name, has_value) = match option.split_once('=') {
        Some((name, _)) => (name, true),
        None => (option, false),
    };
    match name {
        "" | "all" => {}
        "third-party" | "3p" | "~first-party" | "~1p" | "strict3p" => known.embeds_only = true,
        "important" => known.is_important = true,
        "match-case" => known.match_case = true,
        "badfilter" => known.is_bad = true,
        "script" | "image" | "stylesheet" | "css" | "xmlhttprequest" | "xhr" | "font" | "media"
        | "object" | "object-subrequest" | "subdocument" | "frame" | "ping" | "beacon"
        | "other" | "background" => {
            return FilterOptionOutcome::Type;
        }
        "popup" | "popunder" | "websocket" | "webrtc" | "inline-script" | "inline-font" => {
            return FilterOptionOutcome::UnseenType;
        }
        "document" | "doc" if !is_exception => {}
        "document" | "doc" => {
            return FilterOptionOutcome::Unsupported(
                "an exception for everything that a page requests",
            );
        }
        "generichide" | "ghide" | "elemhide" | "ehide" | "specifichide" | "shide"
        | "genericblock" | "jsinject" | "content" | "extension" | "stealth" | "urlblock" => {
            return FilterOptionOutcome::Unseen("what a page shows");
        }
        "csp" | "permissions" | "replace" | "uritransform" | "cookie" | "hls" | "jsonprune"
        | "xmlprune" => {
            return FilterOptionOutcome::Unseen("changes of responses");
        }
        "domain" | "from" if has_value => {
            return FilterOptionOutcome::Unsupported("only for requests from some pages (domain=)");
        }
        "redirect" | "redirect-rule" | "rewrite" | "mp4" | "empty" => {
            return FilterOptionOutcome::Unsupported("another answer in place of the resource");
        }
        "removeparam" | "queryprune" => {
            return FilterOptionOutcome::Unsupported("parameters are removed from the URL");
        }
        "first-party" | "1p" | "~third-party" | "~3p" | "strict1p" => {
            return FilterOptionOutcome::Unsupported("only for requests of a site to itself");
        }
        name if name.starts_with('~') => return FilterOptionOutcome::Type,
        _ => {
            return FilterOptionOutcome::Unsupported(
                "an option that is not known to this importer",
            );
        }
    }
    FilterOptionOutcome::Known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_sorted_by_what_a_proxy_can_do() {
        assert_eq!(read_line("! comment"), FilterLine::Comment);
        assert_eq!(read_line("example.com##.ad"), FilterLine::Cosmetic);
        assert_eq!(read_line("example.com#@#.ad"), FilterLine::Cosmetic);
        let FilterLine::Network {
            pattern,
            is_exception,
            options,
        } = read_line("@@||a.example^$script,third-party")
        else {
            panic!("not a network filter");
        };
        assert_eq!(
            (pattern, is_exception, options.embeds_only),
            ("||a.example^", true, true)
        );
        assert!(matches!(
            read_line("||a.example^$popup"),
            FilterLine::Unseen(_)
        ));
        assert!(matches!(
            read_line("/ad.$domain=a.example"),
            FilterLine::Unsupported {
                is_exception: false,
                ..
            }
        ));
        assert!(matches!(
            read_line("/ads$/"),
            FilterLine::Network {
                pattern: "/ads$/",
                ..
            }
        ));
    }
}
