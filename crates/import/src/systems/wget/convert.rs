//! Conversion: pages to start from, and links that all filters accept.

use serde_json::json;

use crate::draft::{ConditionDraft, PolicyDraft, RuleDraft};
use crate::expression::{Anchoring, Dialect, SourceExpression};
use crate::report::{AssumptionEffect, MissingPart, PartNeed, PartTarget, Report};
use crate::systems::wget::{WgetCommand, WgetSource};

/// The extensions of pages that wget fetches for their links whatever `-A` says.
const HTML: &str = r"\.([^/]?html|htm)$";

pub(super) fn convert(source: &WgetSource, policy: &mut PolicyDraft, report: &mut Report) {
    policy.options.set("disposition", "disallow");
    for command in &source.commands {
        if report.is_set(command.part) {
            continue;
        }
        convert_option(command, source, policy, report);
    }
    let level = source
        .value("reclevel")
        .or_else(|| source.is_on("mirror").then_some("inf"));
    match level.map(str::parse::<u64>) {
        Some(Ok(0) | Err(_)) => {}
        Some(Ok(level)) => policy.options.set("max_depth", level),
        None if source.is_recursive() => {
            let note = Some("wget's default".to_owned());
            policy.options.set_with_note("max_depth", 5, note);
        }
        None => {}
    }
    let starts: Vec<String> = source
        .starts
        .iter()
        .filter_map(|start| canonical(&start.url))
        .collect();
    for start in &source.starts {
        let Some(part) = start.part else { continue };
        match canonical(&start.url) {
            Some(_) => report.converted(part, "start", PartNeed::Url),
            None => report.unrelated(part, "no URL of http or https"),
        }
    }
    if !starts.is_empty() {
        let mut start =
            RuleDraft::when("start", ConditionDraft::is("url", starts.clone()), "allow");
        start.included_in = source.is_recursive().then_some("links");
        policy.rules.push(start.into());
    }
    if !source.is_recursive() {
        return;
    }
    let mut parts = Vec::new();
    parts.extend(scope(source, &starts, report));
    parts.extend(hosts(source, "domains", report));
    parts.extend(hosts(source, "excludedomains", report).map(ConditionDraft::negated));
    parts.extend(directories(source, "includedirectories", report));
    parts.extend(directories(source, "excludedirectories", report).map(ConditionDraft::negated));
    parts.extend(expression(source, "acceptregex", report));
    parts.extend(expression(source, "rejectregex", report).map(ConditionDraft::negated));
    if source.is_on("httpsonly") {
        parts.push(ConditionDraft::is("scheme", ["https"]));
    }
    let names = names(source, report);
    if let Some(names) = &names {
        if may_refuse_pages(source) {
            policy.rules.push(pages_for_links(&parts).into());
        }
        parts.push(names.clone());
    }
    let mut links = RuleDraft::when("links", all_of(parts), "allow");
    if let crate::draft::RuleDraftBody::Group(group) = &mut links.body
        && names.is_some()
    {
        // What `pages-for-links` set does not hold for what is kept.
        group.then = Some("download");
    }
    policy.rules.push(links.into());
}

/// Creates the rule for pages that are fetched for their links only.
fn pages_for_links(scope: &[ConditionDraft]) -> RuleDraft {
    let mut parts = scope.to_vec();
    parts.push(ConditionDraft::test("path", "regex", [HTML]).ignoring_case(true));
    let about = "pages are fetched for their links, whatever their names are".to_owned();
    let rule = RuleDraft::when("pages-for-links", all_of(parts), "exclude-but-scan");
    rule.with_about(Some(about))
}

/// Returns `true` if `-A` or `-R` can refuse the name of a page.
fn may_refuse_pages(source: &WgetSource) -> bool {
    let rejects = source.items("reject").into_iter().any(|item| {
        let item = item.to_lowercase();
        let is_end = |end: &str| item.ends_with(end) || end.ends_with(&item);
        is_pattern(&item) || is_end("html") || is_end("htm")
    });
    rejects || !source.items("accept").is_empty()
}

fn all_of(parts: Vec<ConditionDraft>) -> ConditionDraft {
    if parts.is_empty() {
        ConditionDraft::Always
    } else {
        ConditionDraft::all(parts)
    }
}

/// Returns the URL with a path and without a fragment.
fn canonical(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.to_ascii_lowercase();
    if !matches!(scheme.as_str(), "http" | "https") {
        return None;
    }
    let rest = rest.split('#').next().unwrap_or(rest);
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at_checked(end)?;
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let slash = if path.starts_with('/') { "" } else { "/" };
    Some(format!(
        "{scheme}://{}{slash}{path}",
        host.to_ascii_lowercase()
    ))
}

/// Returns the host, and the directory with a slash at its end.
fn host_and_directory(url: &str) -> Option<(&str, &str)> {
    let (_, rest) = url.split_once("://")?;
    let (authority, path) = rest.split_at_checked(rest.find('/')?)?;
    let path = path.split('?').next().unwrap_or(path);
    let directory = path.get(..=path.rfind('/')?)?;
    Some((authority.split(':').next().unwrap_or(authority), directory))
}

/// Returns the condition that `-H` and `-np` leave: the hosts, and the directories, of the start pages.
fn scope(source: &WgetSource, starts: &[String], report: &mut Report) -> Option<ConditionDraft> {
    let spans = source.is_on("spanhosts");
    let below = source.is_on("noparent");
    if spans && !below {
        return None;
    }
    let places: Vec<(&str, &str)> = starts
        .iter()
        .filter_map(|url| host_and_directory(url))
        .collect();
    if places.is_empty() {
        let commands = source.commands.iter();
        for command in commands
            .filter(|command| matches!(command.name.as_str(), "recursive" | "mirror" | "noparent"))
        {
            report.not_converted(
                command.part,
                "it is about the pages to start from, which are not known",
                MissingPart::KeepsOut,
                Some("give them with --seeds"),
            );
        }
        return Some(ConditionDraft::Always.negated());
    }
    if !below {
        let mut hosts: Vec<&str> = places.iter().map(|(host, _)| *host).collect();
        hosts.sort_unstable();
        hosts.dedup();
        return Some(ConditionDraft::is("host", hosts));
    }
    let conditions = places.iter().map(|(host, directory)| {
        let host = ConditionDraft::is("host", [*host]);
        let is_root = *directory == "/";
        match (spans, is_root) {
            (false, true) => host,
            (true, true) => ConditionDraft::Always,
            (false, false) => {
                ConditionDraft::all(vec![host, ConditionDraft::is("path", [*directory])])
            }
            (true, false) => ConditionDraft::any(vec![
                host.negated(),
                ConditionDraft::is("path", [*directory]),
            ]),
        }
    });
    Some(ConditionDraft::any(conditions.collect()))
}

/// Returns a condition on hosts. A name that begins with a dot fits names below it only.
fn hosts(source: &WgetSource, name: &str, report: &mut Report) -> Option<ConditionDraft> {
    let items = source.items(name);
    done(source, name, report, PartNeed::Host);
    let (below, domains): (Vec<&str>, Vec<&str>) =
        items.into_iter().partition(|item| item.starts_with('.'));
    let mut parts = Vec::new();
    if !domains.is_empty() {
        parts.push(ConditionDraft::is("domain", domains));
    }
    if !below.is_empty() {
        parts.push(ConditionDraft::test("host", "suffix", below));
    }
    (!parts.is_empty()).then(|| ConditionDraft::any(parts))
}

/// Reports the commands of a name as part of the rule `links`.
fn done(source: &WgetSource, name: &str, report: &mut Report, need: PartNeed) {
    for command in source
        .commands
        .iter()
        .filter(|command| command.name == name)
    {
        report.converted(command.part, "links", need);
    }
}

/// Returns a condition on the directory of the path: the directory with those below, or a pattern for all of it.
fn directories(source: &WgetSource, name: &str, report: &mut Report) -> Option<ConditionDraft> {
    let items = source.items(name);
    done(source, name, report, PartNeed::Url);
    let mut below = Vec::new();
    let mut patterns = Vec::new();
    for item in items {
        let item = item.trim_start_matches('/');
        if is_pattern(item) {
            patterns.push(format!("^/{}/[^/]*$", pattern_to_regex(item)));
        } else if item.is_empty() {
            return Some(ConditionDraft::Always);
        } else {
            below.push(format!("/{}/", item.trim_end_matches('/')));
        }
    }
    let ignore_case = source.is_on("ignorecase");
    let mut parts = Vec::new();
    if !below.is_empty() {
        parts.push(ConditionDraft::test("path", "prefix", below).ignoring_case(ignore_case));
    }
    if !patterns.is_empty() {
        parts.push(ConditionDraft::test("path", "regex", patterns).ignoring_case(ignore_case));
    }
    (!parts.is_empty()).then(|| ConditionDraft::any(parts))
}

fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', ']'])
}

/// Writes a pattern of `fnmatch` as an expression in which `*` and `?` do not cross slashes. A backslash makes the
/// next character literal; one at the end fits nothing.
fn pattern_to_regex(pattern: &str) -> String {
    let mut regex = String::new();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '*' => regex.push_str("[^/]*"),
            '?' => regex.push_str("[^/]"),
            '[' => push_bracket(&mut regex, &mut chars),
            '\\' => match chars.next() {
                Some(literal) => push_literal(&mut regex, literal),
                None => regex.push_str(r"[^\s\S]"),
            },
            c => push_literal(&mut regex, c),
        }
    }
    regex
}

fn push_literal(regex: &mut String, c: char) {
    if c.is_ascii_punctuation() && !matches!(c, '/' | '_' | '-') {
        regex.push('\\');
    }
    regex.push(c);
}

/// Writes a bracket from after its `[`. A `]` at its beginning is literal, and classes such as `[:digit:]` stay.
fn push_bracket(regex: &mut String, chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    regex.push('[');
    if chars.next_if(|c| matches!(c, '!' | '^')).is_some() {
        regex.push_str("^/");
    }
    let mut is_first = true;
    while let Some(c) = chars.next() {
        match c {
            ']' if !is_first => break,
            '-' => regex.push('-'),
            '[' if chars.next_if_eq(&':').is_some() => {
                regex.push_str("[:");
                while let Some(c) = chars.next_if(char::is_ascii_lowercase) {
                    regex.push(c);
                }
                while chars.next_if(|c| matches!(c, ':')).is_some() {}
                chars.next_if_eq(&']');
                regex.push_str(":]");
            }
            '\\' => {
                if let Some(literal) = chars.next() {
                    push_bracket_literal(regex, literal);
                }
            }
            c => push_bracket_literal(regex, c),
        }
        is_first = false;
    }
    regex.push(']');
}

fn push_bracket_literal(regex: &mut String, c: char) {
    if !c.is_alphanumeric() {
        regex.push('\\');
    }
    regex.push(c);
}

fn expression(source: &WgetSource, name: &str, report: &mut Report) -> Option<ConditionDraft> {
    let command = source
        .commands
        .iter()
        .rev()
        .find(|command| command.name == name)?;
    let pcre = source.value("regextype") == Some("pcre");
    let expression = SourceExpression {
        text: &command.value,
        dialect: if pcre { Dialect::Pcre } else { Dialect::Posix },
        anchoring: Anchoring::Search,
        ignore_case: source.is_on("ignorecase"),
    };
    for other in source
        .commands
        .iter()
        .filter(|other| other.name == name && other.part != command.part)
    {
        report.dead(other.part, "a later one replaces it");
    }
    match expression.translate("url") {
        Ok(translated) => {
            match translated.assumption {
                Some((assumption, effect)) => {
                    let target = PartTarget {
                        name: "links".to_owned(),
                        need: PartNeed::Url,
                    };
                    report.assumed(command.part, target, assumption, effect);
                }
                None => report.converted(command.part, "links", PartNeed::Url),
            }
            Some(translated.condition)
        }
        Err(why) => {
            // Without the expression more links would be followed, whichever of the two it is.
            report.not_converted(command.part, why, MissingPart::LetsThrough, None);
            None
        }
    }
}

/// Returns the condition of `-A` and `-R` on the name of the file. A URL that ends in a slash has none.
fn names(source: &WgetSource, report: &mut Report) -> Option<ConditionDraft> {
    let accept = name_condition(source, "accept");
    let reject = name_condition(source, "reject");
    for command in source
        .commands
        .iter()
        .filter(|command| matches!(command.name.as_str(), "accept" | "reject"))
    {
        if !may_refuse_pages(source) {
            report.converted(command.part, "links", PartNeed::Url);
            continue;
        }
        let target = PartTarget {
            name: "pages-for-links".to_owned(),
            need: PartNeed::Response,
        };
        let assumption = "pages are fetched for their links at the last level, too";
        report.assumed(
            command.part,
            target,
            assumption,
            AssumptionEffect::RefusesLess,
        );
    }
    let fits = match (accept, reject) {
        (None, None) => return None,
        (Some(accept), None) => accept,
        (None, Some(reject)) => reject.negated(),
        (Some(accept), Some(reject)) => ConditionDraft::all(vec![accept, reject.negated()]),
    };
    Some(ConditionDraft::any(vec![
        ConditionDraft::test("path", "suffix", ["/"]),
        fits,
    ]))
}

fn name_condition(source: &WgetSource, name: &str) -> Option<ConditionDraft> {
    let items = source.items(name);
    let ignore_case = source.is_on("ignorecase");
    let (patterns, suffixes): (Vec<&str>, Vec<&str>) =
        items.into_iter().partition(|item| is_pattern(item));
    let mut parts = Vec::new();
    if !suffixes.is_empty() {
        parts.push(ConditionDraft::test("path", "suffix", suffixes).ignoring_case(ignore_case));
    }
    if !patterns.is_empty() {
        let patterns = patterns
            .iter()
            .map(|pattern| format!("/{}$", pattern_to_regex(pattern)));
        parts.push(ConditionDraft::test("path", "regex", patterns).ignoring_case(ignore_case));
    }
    (!parts.is_empty()).then(|| ConditionDraft::any(parts))
}

fn convert_option(
    command: &WgetCommand,
    source: &WgetSource,
    policy: &mut PolicyDraft,
    report: &mut Report,
) {
    let part = command.part;
    let value = command.value.as_str();
    match command.name.as_str() {
        "recursive" | "mirror" | "spanhosts" | "ignorecase" | "httpsonly" => {
            report.converted(part, "links", PartNeed::Url);
        }
        "noparent" => {
            let target = PartTarget {
                name: "disposition".to_owned(),
                need: PartNeed::Url,
            };
            let assumption = "a host has one port (wget does not apply it to other ports)";
            report.assumed(part, target, assumption, AssumptionEffect::RefusesMore);
        }
        "domains" | "excludedomains" | "includedirectories" | "excludedirectories"
        | "acceptregex" | "rejectregex" | "accept" | "reject"
            if !source.is_recursive() =>
        {
            report.unrelated(part, "links are not followed without -r");
        }
        "domains" | "excludedomains" | "includedirectories" | "excludedirectories"
        | "acceptregex" | "rejectregex" | "accept" | "reject" => {}
        "regextype" => report.unrelated(part, "the syntax of the expressions"),
        "reclevel" => {
            let target = PartTarget {
                name: "max_depth".to_owned(),
                need: PartNeed::Ledger,
            };
            let assumption = "the depth is known by the Referer that wget sends";
            report.assumed(part, target, assumption, AssumptionEffect::RefusesLess);
        }
        "wait" => match seconds(value) {
            Some(wait) => {
                policy.options.set("politeness.delay", wait);
                if !source.is_on("randomwait") {
                    policy.options.set("politeness.jitter", "none");
                }
                report.converted(part, "politeness.delay", PartNeed::Host);
            }
            None => unknown(part, report),
        },
        "randomwait" => {
            policy.options.set("politeness.jitter", "1.0..1.5");
            let target = PartTarget {
                name: "politeness.jitter".to_owned(),
                need: PartNeed::Host,
            };
            let assumption = "the wait may only be lengthened (wget also waits for half of it)";
            report.assumed(part, target, assumption, AssumptionEffect::Either);
        }
        "limitrate" => match rate(value) {
            Some(rate) => {
                policy
                    .options
                    .set("politeness.bytes_per_second", json!(rate));
                report.converted(part, "politeness.bytes_per_second", PartNeed::Host);
            }
            None => unknown(part, report),
        },
        "robots" => {
            policy
                .options
                .set("robots.obey", !matches!(value, "off" | "no" | "0"));
            report.converted(part, "robots.obey", PartNeed::Host);
        }
        "followftp" => report.unrelated(part, "FTP does not go through the proxy"),
        name => match not_convertible(name) {
            Some((why, failure, instead)) => {
                report.not_converted(part, why, failure, Some(instead));
            }
            None => report.unrelated(
                part,
                "none of a policy's business: files, output or connections",
            ),
        },
    }
}

/// Returns the reason why a command cannot be converted, which way that fails, and what to do instead.
fn not_convertible(name: &str) -> Option<(&'static str, MissingPart, &'static str)> {
    Some(match name {
        "quota" => (
            "a quota of the whole download",
            MissingPart::LetsThrough,
            "`budget.bytes` limits a day",
        ),
        "relativeonly" => (
            "how a link is written is not known",
            MissingPart::LetsThrough,
            "a condition on `host`",
        ),
        "followtags" | "ignoretags" => (
            "which element a link is in is not known",
            MissingPart::LetsThrough,
            "an expression that fits the links",
        ),
        "pagerequisites" => (
            "what pages of the last level need lies one level deeper",
            MissingPart::KeepsOut,
            "a greater max_depth",
        ),
        "config" => (
            "the file has more commands",
            MissingPart::LetsThrough,
            "import it beside the command: `crawlgate import wget FETCH WGETRC`",
        ),
        _ => return None,
    })
}

fn unknown(part: crate::report::PartId, report: &mut Report) {
    report.not_converted(
        part,
        "its value is not known",
        MissingPart::OtherSetting,
        None,
    );
}

/// Reads `2`, `0.5`, `1m`, `2h`, `1d`.
fn seconds(value: &str) -> Option<String> {
    let (number, factor) = match value.chars().next_back()? {
        's' => (value.strip_suffix('s')?, 1.0),
        'm' => (value.strip_suffix('m')?, 60.0),
        'h' => (value.strip_suffix('h')?, 3600.0),
        'd' => (value.strip_suffix('d')?, 86400.0),
        _ => (value, 1.0),
    };
    let seconds = number.parse::<f64>().ok()? * factor;
    let is_possible = (0.0..1e7).contains(&seconds);
    let text = if seconds.fract() == 0.0 {
        format!("{seconds}s")
    } else {
        format!("{}ms", (seconds * 1000.0).ceil())
    };
    is_possible.then_some(text)
}

/// Reads `20k`, `1m`, `1000`.
fn rate(value: &str) -> Option<String> {
    let (number, factor) = match value.chars().next_back()?.to_ascii_lowercase() {
        'k' => (value.get(..value.len() - 1)?, 1024.0),
        'm' => (value.get(..value.len() - 1)?, 1024.0 * 1024.0),
        _ => (value, 1.0),
    };
    let bytes = number.parse::<f64>().ok()? * factor;
    if !(1.0..1e12).contains(&bytes) {
        return None;
    }
    let bytes = bytes.trunc() as u64;
    Some(
        match (bytes.is_multiple_of(1 << 20), bytes.is_multiple_of(1 << 10)) {
            (true, _) => format!("{}MiB", bytes >> 20),
            (false, true) => format!("{}KiB", bytes >> 10),
            (false, false) => format!("{bytes}B"),
        },
    )
}
