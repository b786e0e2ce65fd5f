//! Lists as their own programs apply them.

use fancy_regex::Regex;

use crate::reference::heritrix::{surt_prefix, to_surt};
use crate::reference::{SourceEvaluator, SourceRequest, SourceVerdict};
use crate::systems::heritrix::surts::SurtLine;
use crate::systems::lists::ListAction;
use crate::systems::lists::adblock::AdblockFilter;

/// A list with its items as they are written.
pub enum EvaluatedList {
    /// Domains with their subdomains.
    Domains(Vec<String>),
    Hosts(Vec<String>),
    Surts(Vec<String>),
    /// Expressions that are searched in the URL.
    Expressions {
        patterns: Vec<String>,
        ignore_case: bool,
    },
    Filters(Vec<AdblockFilter>),
}

/// Lists of which one refuses, or allows.
pub struct ListEvaluator {
    action: ListAction,
    lists: Vec<PreparedList>,
}

enum PreparedList {
    Plain(EvaluatedList),
    Expressions(Vec<Regex>),
}

impl ListEvaluator {
    /// Prepares the lists.
    pub fn new(action: ListAction, lists: Vec<EvaluatedList>) -> Self {
        let lists = lists.into_iter().map(|list| match &list {
            EvaluatedList::Expressions {
                patterns,
                ignore_case,
            } => {
                let flags = if *ignore_case { "(?i)" } else { "" };
                let regexes = patterns
                    .iter()
                    .map(|text| Regex::new(&format!("{flags}{text}")));
                PreparedList::Expressions(regexes.filter_map(Result::ok).collect())
            }
            EvaluatedList::Domains(_)
            | EvaluatedList::Hosts(_)
            | EvaluatedList::Surts(_)
            | EvaluatedList::Filters(_) => PreparedList::Plain(list),
        });
        Self {
            action,
            lists: lists.collect(),
        }
    }
}

impl SourceEvaluator for ListEvaluator {
    fn decide(&self, request: &SourceRequest<'_>) -> SourceVerdict {
        let fits = self.lists.iter().any(|list| list.fits(request));
        match (self.action, fits) {
            (ListAction::Forbid, true) | (ListAction::Allow, false) => SourceVerdict::Refuse,
            (ListAction::Forbid, false) | (ListAction::Allow, true) => SourceVerdict::Allow,
        }
    }
}

impl PreparedList {
    fn fits(&self, request: &SourceRequest<'_>) -> bool {
        let host = host_of(request.url);
        match self {
            Self::Plain(EvaluatedList::Domains(domains)) => {
                domains.iter().any(|domain| is_below(host, domain))
            }
            Self::Plain(EvaluatedList::Hosts(hosts)) => hosts.iter().any(|known| known == host),
            Self::Plain(EvaluatedList::Surts(lines)) => {
                let surt = to_surt(request.url);
                let mut lines = lines.iter().filter_map(|line| SurtLine::read(line));
                lines.any(|line| surt.starts_with(&surt_prefix(line)))
            }
            Self::Plain(EvaluatedList::Filters(filters)) => is_blocked(filters, request),
            Self::Plain(EvaluatedList::Expressions { .. }) => false,
            Self::Expressions(regexes) => regexes
                .iter()
                .any(|regex| regex.is_match(request.url).unwrap_or(false)),
        }
    }
}

fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    authority.split(':').next().unwrap_or_default()
}

fn is_below(host: &str, domain: &str) -> bool {
    let rest = host.strip_suffix(domain);
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// Blocks what a filter fits and no exception, or an important filter.
fn is_blocked(filters: &[AdblockFilter], request: &SourceRequest<'_>) -> bool {
    let is_embed = request.text("dest") == Some("embed");
    let lower = request.url.to_ascii_lowercase();
    let (mut is_blocked, mut is_excepted) = (false, false);
    for filter in filters {
        if filter.embeds_only && !is_embed {
            continue;
        }
        if filter.is_exception && is_excepted
            || is_blocked && !filter.is_exception && !filter.is_important
        {
            continue;
        }
        if !filter_fits(filter, request.url, &lower) {
            continue;
        }
        match (filter.is_important, filter.is_exception) {
            (true, false) => return true,
            (_, true) => is_excepted = true,
            (false, false) => is_blocked = true,
        }
    }
    is_blocked && !is_excepted
}

fn filter_fits(filter: &AdblockFilter, url: &str, lower: &str) -> bool {
    let text = filter.pattern.as_str();
    let is_expression = text.len() > 2 && text.starts_with('/') && text.ends_with('/');
    if is_expression {
        let inner = text.get(1..text.len() - 1).unwrap_or_default();
        let flags = if filter.match_case { "" } else { "(?i)" };
        let regex = Regex::new(&format!("{flags}{inner}"));
        return regex.is_ok_and(|regex| regex.is_match(url).unwrap_or(false));
    }
    let pattern = if filter.match_case {
        text.to_owned()
    } else {
        text.to_ascii_lowercase()
    };
    let url = if filter.match_case { url } else { lower };
    let (pattern, at_end) = match pattern.strip_suffix('|') {
        Some(pattern) => (pattern, true),
        None => (pattern.as_str(), false),
    };
    if let Some(rest) = pattern.strip_prefix("||") {
        let begin = url.find("://").map_or(0, |at| at + 3);
        let host = host_of(url);
        let dots = host.match_indices('.').map(|(at, _)| begin + at + 1);
        let mut starts = std::iter::once(begin).chain(dots);
        return starts.any(|start| fits_at(rest, url, start, at_end));
    }
    match pattern.strip_prefix('|') {
        Some(rest) => fits_at(rest, url, 0, at_end),
        None => fits_at(&format!("*{pattern}"), url, 0, at_end),
    }
}

/// Compares a pattern with the text from a place. The last star that was seen is tried again with more.
fn fits_at(pattern: &str, text: &str, start: usize, at_end: bool) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut at, mut from) = (0, start);
    let mut star = None;
    loop {
        let byte = text.get(from);
        match pattern.get(at) {
            None if !at_end || from >= text.len() => return true,
            None => {}
            Some(b'*') => {
                star = Some((at + 1, from));
                at += 1;
                continue;
            }
            Some(b'^') => {
                let is_separator = byte.is_some_and(|byte| {
                    !byte.is_ascii_alphanumeric() && !matches!(byte, b'_' | b'-' | b'.' | b'%')
                });
                if is_separator || byte.is_none() {
                    at += 1;
                    from += usize::from(byte.is_some());
                    continue;
                }
            }
            Some(expected) if Some(expected) == byte => {
                at += 1;
                from += 1;
                continue;
            }
            Some(_) => {}
        }
        match star {
            Some((after, begin)) if begin < text.len() => {
                (at, from) = (after, begin + 1);
                star = Some((after, begin + 1));
            }
            Some(_) | None => return false,
        }
    }
}
