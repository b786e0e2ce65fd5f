//! wget: `download_child` accepts a link if no check refuses it.

use fancy_regex::{Regex, RegexBuilder};

use crate::reference::{SourceEvaluator, SourceRequest, SourceVerdict};
use crate::report::Report;
use crate::systems::wget::WgetSource;

/// Evaluates the checks of `download_child`, in its order.
pub struct WgetEvaluator {
    source: WgetSource,
    accept: Option<Option<Regex>>,
    reject: Option<Option<Regex>>,
    starts: Vec<Location>,
}

/// The parts of a URL.
#[derive(Clone, Debug)]
struct Location {
    scheme: String,
    host: String,
    port: u16,
    directory: String,
    file: String,
    whole: String,
}

impl WgetEvaluator {
    /// Compiles the commands that were converted.
    pub fn new(source: &WgetSource, report: &Report) -> Self {
        let mut kept = source.clone();
        kept.commands
            .retain(|command| report.is_converted(command.part) || command.name == "regextype");
        let compile = |name: &str| {
            kept.value(name).map(|text| {
                let mut builder = RegexBuilder::new(text);
                builder.case_insensitive(kept.is_on("ignorecase"));
                builder.build().ok()
            })
        };
        let starts = source
            .starts
            .iter()
            .filter_map(|start| Location::parse(&start.url));
        Self {
            accept: compile("acceptregex"),
            reject: compile("rejectregex"),
            starts: starts.collect(),
            source: kept,
        }
    }

    fn follows(&self, link: &Location, start: &Location) -> Option<bool> {
        let source = &self.source;
        if source.is_on("httpsonly") && link.scheme != "https" {
            return Some(false);
        }
        let same_host = link.host == start.host;
        let same_port = link.scheme != start.scheme || link.port == start.port;
        if source.is_on("noparent")
            && same_host
            && same_port
            && !is_below(&start.directory, &link.directory, false)
        {
            return Some(false);
        }
        let domains = source.items("domains");
        if !domains.is_empty() && !ends_in(&link.host, &domains) {
            return Some(false);
        }
        if ends_in(&link.host, &source.items("excludedomains")) {
            return Some(false);
        }
        let fits_directory = |items: &[&str]| {
            items.iter().any(|item| {
                let item = item.trim_start_matches('/').trim_end_matches('/');
                if item.contains(['*', '?', '[', ']']) {
                    self.wildcard(item, &link.directory)
                } else {
                    is_below(item, &link.directory, source.is_on("ignorecase"))
                }
            })
        };
        let included = source.items("includedirectories");
        if !included.is_empty() && !fits_directory(&included) {
            return Some(false);
        }
        if fits_directory(&source.items("excludedirectories")) {
            return Some(false);
        }
        if let Some(accept) = &self.accept
            && !accept.as_ref()?.is_match(&link.whole).ok()?
        {
            return Some(false);
        }
        if let Some(reject) = &self.reject
            && reject.as_ref()?.is_match(&link.whole).ok()?
        {
            return Some(false);
        }
        if !source.is_on("spanhosts") && !same_host {
            return Some(false);
        }
        Some(link.file.is_empty() || is_html(&link.file) || self.is_acceptable(&link.file))
    }

    fn is_acceptable(&self, file: &str) -> bool {
        let (accept, reject) = (self.source.items("accept"), self.source.items("reject"));
        let fits = |items: &[&str]| {
            items.iter().any(|item| {
                if item.contains(['*', '?', '[', ']']) {
                    self.wildcard(item, file)
                } else if self.source.is_on("ignorecase") {
                    file.to_lowercase().ends_with(&item.to_lowercase())
                } else {
                    file.ends_with(item)
                }
            })
        };
        (accept.is_empty() || fits(&accept)) && !fits(&reject)
    }

    fn wildcard(&self, pattern: &str, text: &str) -> bool {
        let (pattern, text) = if self.source.is_on("ignorecase") {
            (pattern.to_lowercase(), text.to_lowercase())
        } else {
            (pattern.to_owned(), text.to_owned())
        };
        let pattern: Vec<char> = pattern.chars().collect();
        let text: Vec<char> = text.chars().collect();
        fnmatch(&pattern, &text)
    }
}

/// `fnmatch` with FNM_PATHNAME, by the set of places in the pattern.
fn fnmatch(pattern: &[char], text: &[char]) -> bool {
    let mut places = vec![false; pattern.len() + 1];
    let open = |places: &mut Vec<bool>| {
        for (index, c) in pattern.iter().enumerate() {
            if *c == '*'
                && places.get(index) == Some(&true)
                && let Some(next) = places.get_mut(index + 1)
            {
                *next = true;
            }
        }
    };
    if let Some(first) = places.first_mut() {
        *first = true;
    }
    open(&mut places);
    for c in text {
        let mut next = vec![false; pattern.len() + 1];
        for (index, _) in places.iter().enumerate().filter(|(_, is_here)| **is_here) {
            let (fits, to) = match pattern.get(index) {
                None => (false, index),
                Some('*') => (*c != '/', index),
                Some('?') => (*c != '/', index + 1),
                Some('[') => bracket(pattern, index, *c),
                // A backslash makes the next one literal.
                Some('\\') => (pattern.get(index + 1) == Some(c), index + 2),
                Some(expected) => (expected == c, index + 1),
            };
            if fits && let Some(place) = next.get_mut(to) {
                *place = true;
            }
        }
        open(&mut next);
        places = next;
    }
    places.last() == Some(&true)
}

/// Compares a character with a bracket; returns the place after it.
fn bracket(pattern: &[char], open: usize, c: char) -> (bool, usize) {
    let mut at = open + 1;
    let negated = matches!(pattern.get(at), Some('!' | '^'));
    at += usize::from(negated);
    let first = at;
    let mut fits = false;
    while let Some(item) = pattern.get(at) {
        if *item == ']' && at > first {
            break;
        }
        if *item == '[' && pattern.get(at + 1) == Some(&':') {
            let rest = pattern.get(at + 2..).unwrap_or_default();
            let length = rest.iter().position(|c| *c == ':').unwrap_or(rest.len());
            let name: String = rest.iter().take(length).collect();
            fits |= is_in_class(&name, c);
            at += length + 4;
            continue;
        }
        let (low, after) = literal(pattern, at);
        at = after;
        let is_range = pattern.get(at) == Some(&'-') && pattern.get(at + 1) != Some(&']');
        if is_range && pattern.get(at + 1).is_some() {
            let (high, after) = literal(pattern, at + 1);
            at = after;
            fits |= low <= Some(c) && Some(c) <= high;
        } else {
            fits |= low == Some(c);
        }
    }
    (c != '/' && fits != negated, at + 1)
}

/// Returns the character of a bracket at a place, without its backslash, and the place after it.
fn literal(pattern: &[char], at: usize) -> (Option<char>, usize) {
    match pattern.get(at) {
        Some('\\') => (pattern.get(at + 1).copied(), at + 2),
        other => (other.copied(), at + 1),
    }
}

/// `isalpha` and its like.
fn is_in_class(name: &str, c: char) -> bool {
    match name {
        "alnum" => c.is_ascii_alphanumeric(),
        "alpha" => c.is_ascii_alphabetic(),
        "digit" => c.is_ascii_digit(),
        "lower" => c.is_ascii_lowercase(),
        "upper" => c.is_ascii_uppercase(),
        "punct" => c.is_ascii_punctuation(),
        "xdigit" => c.is_ascii_hexdigit(),
        "space" => c.is_ascii_whitespace(),
        _ => false,
    }
}

/// `sufmatch`: the name or one below it; with a leading dot, one below it.
fn ends_in(host: &str, domains: &[&str]) -> bool {
    domains.iter().any(|domain| {
        let domain = domain.to_lowercase();
        host == domain
            || match domain.starts_with('.') {
                true => host.ends_with(&domain),
                false => host.ends_with(&format!(".{domain}")),
            }
    })
}

/// `subdir_p`.
fn is_below(parent: &str, directory: &str, ignore_case: bool) -> bool {
    let (parent, directory) = if ignore_case {
        (parent.to_lowercase(), directory.to_lowercase())
    } else {
        (parent.to_owned(), directory.to_owned())
    };
    parent.is_empty() || directory == parent || directory.starts_with(&format!("{parent}/"))
}

/// `has_html_suffix_p`.
fn is_html(file: &str) -> bool {
    let Some((_, extension)) = file.rsplit_once('.') else {
        return false;
    };
    let extension = extension.to_lowercase();
    let mut chars = extension.chars();
    chars.next();
    matches!(extension.as_str(), "html" | "htm") || chars.as_str() == "html"
}

impl Location {
    fn parse(url: &str) -> Option<Self> {
        let url = url.split('#').next().unwrap_or(url);
        let (scheme, rest) = url.split_once("://")?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(end)?;
        let authority = authority
            .rsplit_once('@')
            .map_or(authority, |(_, host)| host);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().ok()?),
            None => (authority, if scheme == "https" { 443 } else { 80 }),
        };
        let slash = if path.starts_with('/') { "" } else { "/" };
        let whole = format!("{scheme}://{authority}{slash}{path}");
        let path = path.split('?').next().unwrap_or(path);
        let (directory, file) = path.rsplit_once('/').unwrap_or(("", path));
        Some(Self {
            scheme: scheme.to_lowercase(),
            host: host.to_lowercase(),
            port,
            directory: directory.trim_start_matches('/').to_owned(),
            file: file.to_owned(),
            whole,
        })
    }
}

impl SourceEvaluator for WgetEvaluator {
    fn decide(&self, request: &SourceRequest<'_>) -> SourceVerdict {
        let Some(link) = Location::parse(request.url) else {
            return SourceVerdict::Unknown;
        };
        if self.starts.iter().any(|start| start.whole == link.whole) {
            return SourceVerdict::Allow;
        }
        if !self.source.is_recursive() || self.starts.is_empty() && !self.source.is_on("spanhosts")
        {
            return SourceVerdict::Refuse;
        }
        if self.starts.is_empty() || request.facts.contains_key("content_type") {
            return SourceVerdict::Unknown;
        }
        let answers: Vec<Option<bool>> = self
            .starts
            .iter()
            .map(|start| self.follows(&link, start))
            .collect();
        if answers.contains(&Some(true)) {
            SourceVerdict::Allow
        } else if answers.contains(&None) {
            SourceVerdict::Unknown
        } else {
            SourceVerdict::Refuse
        }
    }
}
