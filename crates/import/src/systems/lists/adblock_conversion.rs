//! Filters of adblock lists as lists and rules.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, json};

use crate::draft::{ConditionDraft, GroupDraft, RuleDraft, RuleItem, TestDraft};
use crate::expression::{Anchoring, Dialect, SourceExpression};
use crate::input::{Place, SourceText};
use crate::reference::lists::EvaluatedList;
use crate::report::{AssumptionEffect, MissingPart, PartNeed, PartTarget};

use super::ListImport;
use super::adblock::{AdblockFilter, FilterLine, read_line};
use super::expressions::escape;
use super::format::{is_domain, is_host_name};

/// The separator `^` in an expression: any character but letters, digits and `_-.%`, or the end.
const SEPARATOR: &str = "(?:[^0-9A-Za-z_.%-]|$)";

/// The maximum length of a filter.
const MAX_PATTERN: usize = 2_000;
/// The maximum number of `*` and `^` in a filter.
const MAX_WILDCARDS: usize = 50;

/// The rule that a filter belongs to, in the order in which rules are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct FilterClass {
    is_blocking_after_exceptions: bool,
    is_exception: bool,
    embeds_only: bool,
}

/// The items of a rule, by the lists that they are in.
#[derive(Default)]
struct ClassItems {
    domains: Vec<String>,
    substrings: Vec<String>,
    globs: Vec<String>,
    regexes: Vec<String>,
    /// Those that are compared with regard to case.
    exact_globs: Vec<String>,
    exact_regexes: Vec<String>,
    samples: Vec<String>,
}

/// A filter as an item of a list.
#[derive(Debug)]
enum FilterItem {
    Domain(String),
    Substring(String),
    Glob(String),
    Regex(String),
}

/// Lines of a kind that are counted and not listed.
struct CountedLines {
    place: Place,
    lines: u32,
}

impl ListImport {
    /// Adds filters. Those of several files are one set: an exception of one file holds for all.
    pub(super) fn add_filters(&mut self, name: &str, source: &SourceText) {
        let mut counted: BTreeMap<&'static str, CountedLines> = BTreeMap::new();
        let mut count = |reason: &'static str, place: Place| {
            let entry = counted
                .entry(reason)
                .or_insert(CountedLines { place, lines: 0 });
            entry.lines += 1;
        };
        let mut filters = Vec::new();
        let mut cancelled = HashSet::new();
        for (place, line) in source.lines() {
            match read_line(line) {
                FilterLine::Comment => {}
                FilterLine::Cosmetic => count(
                    "elements, scripts and styles of pages (cosmetic filters)",
                    place,
                ),
                FilterLine::Unseen(reason) => count(reason, place),
                FilterLine::Unsupported {
                    is_exception,
                    reason,
                } => {
                    let part = self.report.add(place, line.trim());
                    let failure = missing(is_exception);
                    self.report.not_converted(
                        part,
                        reason,
                        failure,
                        Some("a rule with `referer` or `dest`"),
                    );
                }
                FilterLine::Network { options, .. } if options.is_bad => {
                    let part = self.report.add(place, line.trim());
                    self.report.unrelated(part, "it cancels another filter");
                    cancelled.insert(
                        line.trim()
                            .replace(",badfilter", "")
                            .replace("$badfilter", ""),
                    );
                }
                FilterLine::Network {
                    pattern,
                    is_exception,
                    options,
                } => {
                    let part = self.report.add(place, line.trim());
                    let filter = AdblockFilter {
                        part,
                        pattern: pattern.to_owned(),
                        is_exception,
                        is_important: options.is_important,
                        embeds_only: options.embeds_only,
                        match_case: options.match_case,
                    };
                    filters.push((filter, line.trim().to_owned()));
                }
            }
        }
        for (reason, counted) in counted {
            let text = format!("{} lines: {reason}", counted.lines);
            let part = self.report.add_lines(counted.place, text, counted.lines);
            self.report.unrelated(
                part,
                format!("not about which URLs are requested: {reason}"),
            );
        }
        filters.retain(|(filter, text)| {
            let is_cancelled = cancelled.contains(text);
            if is_cancelled {
                self.report
                    .dead(filter.part, "another filter cancels it ($badfilter)");
            }
            !is_cancelled
        });
        let filters = filters.into_iter().map(|(filter, _)| filter).collect();
        self.filters.push((name.to_owned(), filters));
    }

    /// Converts the filters of all files.
    pub(super) fn convert_filters(&mut self) {
        let files = std::mem::take(&mut self.filters);
        let Some((name, _)) = files.first() else {
            return;
        };
        let name = name.clone();
        let filters: Vec<AdblockFilter> =
            files.into_iter().flat_map(|(_, filters)| filters).collect();
        let mut classes: BTreeMap<FilterClass, ClassItems> = BTreeMap::new();
        let mut known = HashSet::new();
        let mut kept = Vec::new();
        for filter in filters {
            let class = class_of(&filter);
            if !known.insert((class, filter.match_case, filter.pattern.clone())) {
                self.report
                    .dead(filter.part, "another line has this filter");
                continue;
            }
            match item_of(&filter) {
                Ok(item) => {
                    let id = format!("{name}{}", class.suffix());
                    self.set_converted(&filter, &id);
                    classes.entry(class).or_default().add(item, &filter);
                    kept.push(filter);
                }
                Err(RefusedFilter::Dead(why)) => self.report.dead(filter.part, why),
                Err(RefusedFilter::Why(why)) => {
                    self.report
                        .not_converted(filter.part, why, missing(filter.is_exception), None);
                }
            }
        }
        self.sources.push(EvaluatedList::Filters(kept));
        self.policy.notes.push(
            "A blocker in a browser never refuses the page that is opened: here filters without a type refuse pages too."
                .to_owned(),
        );
        self.add_classes(&name, classes);
    }

    fn set_converted(&mut self, filter: &AdblockFilter, id: &str) {
        if !filter.embeds_only {
            self.report.converted(filter.part, id, PartNeed::Url);
            return;
        }
        let target = PartTarget {
            name: id.to_owned(),
            need: PartNeed::Url,
        };
        let assumption = "the crawler says what it embeds (Sec-Fetch-Dest), and a resource of a page has the type and the party \
             that the filter names";
        self.report
            .assumed(filter.part, target, assumption, AssumptionEffect::Either);
    }

    fn add_classes(&mut self, name: &str, classes: BTreeMap<FilterClass, ClassItems>) {
        let has_exceptions = classes.keys().any(|class| class.is_exception);
        let mut rules: Vec<RuleItem> = Vec::new();
        for (class, items) in classes {
            let suffix = class.suffix();
            for url in &items.samples {
                let mut facts = Map::new();
                if class.embeds_only {
                    facts.insert("dest".to_owned(), json!("embed"));
                }
                self.policy.examples.push((url.clone(), facts));
            }
            let mut condition = self.class_condition(&format!("{name}{suffix}"), items);
            if class.embeds_only {
                condition =
                    ConditionDraft::all(vec![ConditionDraft::is("dest", ["embed"]), condition]);
            }
            let id = self.ids.next(&format!("{name}{suffix}"));
            let rule = match (has_exceptions, class.is_exception) {
                (_, true) => RuleDraft::when(id, condition, "allow"),
                (true, false) => RuleDraft::when(id, condition, "disallow"),
                (false, false) => RuleDraft::forbid(id, condition),
            };
            rules.push(rule.with_about(Some(class.about().to_owned())).into());
        }
        if !has_exceptions {
            self.policy.rules.extend(rules);
            return;
        }
        let group = GroupDraft {
            first: true,
            rules,
            ..GroupDraft::default()
        };
        let id = self.ids.next(&format!("{name}-filters"));
        self.policy.rules.push(RuleDraft::group(id, group).into());
    }

    fn class_condition(&mut self, name: &str, items: ClassItems) -> ConditionDraft {
        let mut parts = Vec::new();
        if !items.domains.is_empty() {
            let list = self.add_list(&format!("{name}-domains"), "domains", items.domains);
            parts.push(ConditionDraft::is("in", [list]));
        }
        let patterns = [
            ("substrings", "substrings", items.substrings, true),
            ("globs", "globs", items.globs, true),
            ("regexes", "regexes", items.regexes, true),
            ("globs-by-case", "globs", items.exact_globs, false),
            ("regexes-by-case", "regexes", items.exact_regexes, false),
        ];
        for (suffix, kind, values, ignores_case) in patterns {
            if values.is_empty() {
                continue;
            }
            let list = self.add_list(&format!("{name}-{suffix}"), kind, values);
            let test = ConditionDraft::test("url", "in", [list]);
            parts.push(test.ignoring_case(ignores_case));
        }
        ConditionDraft::any(parts)
    }
}

fn class_of(filter: &AdblockFilter) -> FilterClass {
    FilterClass {
        is_blocking_after_exceptions: !filter.is_exception && !filter.is_important,
        is_exception: filter.is_exception,
        embeds_only: filter.embeds_only,
    }
}

impl FilterClass {
    fn suffix(self) -> &'static str {
        match (
            self.is_exception,
            self.is_blocking_after_exceptions,
            self.embeds_only,
        ) {
            (true, _, false) => "-exceptions",
            (true, _, true) => "-exceptions-embeds",
            (false, false, false) => "-important",
            (false, false, true) => "-important-embeds",
            (false, true, false) => "",
            (false, true, true) => "-embeds",
        }
    }

    fn about(self) -> &'static str {
        match (
            self.is_exception,
            self.is_blocking_after_exceptions,
            self.embeds_only,
        ) {
            (true, _, false) => "filters with @@",
            (true, _, true) => "filters with @@ for resources of pages: with a type or third-party",
            (false, false, false) => "filters with $important",
            (false, false, true) => "filters with $important for resources of pages",
            (false, true, false) => "filters without a type",
            (false, true, true) => "filters for resources of pages: with a type or third-party",
        }
    }
}

/// The maximum number of examples of a rule.
const MAX_SAMPLES: usize = 3;

impl ClassItems {
    fn add(&mut self, item: FilterItem, filter: &AdblockFilter) {
        if self.samples.len() < MAX_SAMPLES {
            self.samples.extend(sample(&filter.pattern));
        }
        match (item, filter.match_case) {
            (FilterItem::Domain(domain), _) => self.domains.push(domain),
            (FilterItem::Substring(text), false) => self.substrings.push(text),
            (FilterItem::Substring(text), true) => self.exact_globs.push(format!("*{text}*")),
            (FilterItem::Glob(glob), false) => self.globs.push(glob),
            (FilterItem::Glob(glob), true) => self.exact_globs.push(glob),
            (FilterItem::Regex(regex), false) => self.regexes.push(regex),
            (FilterItem::Regex(regex), true) => self.exact_regexes.push(regex),
        }
    }
}

/// The reason why a filter is no item.
enum RefusedFilter {
    Dead(&'static str),
    Why(String),
}

fn item_of(filter: &AdblockFilter) -> Result<FilterItem, RefusedFilter> {
    let pattern = filter.pattern.as_str();
    if pattern.len() > MAX_PATTERN || pattern.matches(['*', '^']).count() > MAX_WILDCARDS {
        return Err(RefusedFilter::Why("too long".to_owned()));
    }
    if let Some(expression) = expression_of(pattern) {
        return expression_item(expression, !filter.match_case);
    }
    if pattern.contains([' ', '\t', '#']) {
        return Err(RefusedFilter::Dead(
            "no URL that is requested has a space or a #",
        ));
    }
    let (pattern, is_host) = match pattern.strip_prefix("||") {
        Some(rest) => (rest, true),
        None => (pattern, false),
    };
    let (body, at_end) = match pattern.strip_suffix('|') {
        Some(body) => (body, true),
        None => (pattern.trim_end_matches('*'), false),
    };
    if is_host {
        return host_item(body, at_end);
    }
    let (body, at_start) = match body.strip_prefix('|') {
        Some(body) => (body, true),
        None => (body.trim_start_matches('*'), false),
    };
    if body.is_empty() {
        return Err(RefusedFilter::Why("it fits every URL".to_owned()));
    }
    if !body.is_ascii() {
        return Err(RefusedFilter::Why("letters beyond ASCII".to_owned()));
    }
    let literal = body.split('*').next().unwrap_or_default();
    let is_http = literal.len() < 4 && "http".starts_with(literal) || literal.starts_with("http");
    if at_start && !is_http {
        return Err(RefusedFilter::Dead(
            "only URLs of http and https are requested",
        ));
    }
    // A glob that begins with `*` takes longer to load than an expression.
    if body.contains(['^', '\\']) || body.contains('*') && !at_start {
        let start = if at_start { "^" } else { "" };
        return Ok(FilterItem::Regex(format!(
            "{start}{}",
            body_regex(body, at_end)
        )));
    }
    if !at_start && !at_end {
        return Ok(FilterItem::Substring(body.to_owned()));
    }
    let open = |is_open: bool| if is_open { "*" } else { "" };
    Ok(FilterItem::Glob(format!(
        "{}{body}{}",
        open(!at_start),
        open(!at_end)
    )))
}

/// Returns the expression of a filter that is one: `/…/`.
fn expression_of(pattern: &str) -> Option<&str> {
    let inner = pattern.strip_prefix('/')?.strip_suffix('/')?;
    (!inner.is_empty()).then_some(inner)
}

fn expression_item(text: &str, ignore_case: bool) -> Result<FilterItem, RefusedFilter> {
    let expression = SourceExpression {
        text,
        dialect: Dialect::JavaScript,
        anchoring: Anchoring::Search,
        ignore_case,
    };
    let translated = expression.translate("url").map_err(RefusedFilter::Why)?;
    let ConditionDraft::Test(TestDraft {
        kind: Some("regex"),
        values,
        ..
    }) = translated.condition
    else {
        return Err(RefusedFilter::Why(
            "an expression that is no single one here".to_owned(),
        ));
    };
    match values.as_slice() {
        [value] if !value.contains([' ', '\t', '#']) && translated.assumption.is_none() => {
            Ok(FilterItem::Regex(value.clone()))
        }
        _ => Err(RefusedFilter::Why(
            "an expression that a list cannot hold".to_owned(),
        )),
    }
}

/// Converts what follows `||`: the beginning of a host or of a label.
fn host_item(body: &str, at_end: bool) -> Result<FilterItem, RefusedFilter> {
    let body = body.trim_start_matches('*');
    if body.is_empty() {
        return Err(RefusedFilter::Why("it fits every URL".to_owned()));
    }
    let domain = body
        .strip_suffix('^')
        .filter(|domain| !at_end && is_domain(domain) && domain.contains('.'));
    let is_number = domain.is_some_and(|domain| {
        domain
            .rsplit('.')
            .next()
            .is_some_and(|label| label.bytes().all(|byte| byte.is_ascii_digit()))
    });
    if let Some(domain) =
        domain.filter(|domain| !is_number && !domain.starts_with('.') && is_host_name(domain))
    {
        return Ok(FilterItem::Domain(domain.to_lowercase()));
    }
    if !body.is_ascii() {
        return Err(RefusedFilter::Why("letters beyond ASCII".to_owned()));
    }
    let regex = body_regex(body, at_end);
    Ok(FilterItem::Regex(format!("^https?://(?:[^/]+\\.)?{regex}")))
}

fn body_regex(body: &str, at_end: bool) -> String {
    let mut regex = String::new();
    let mut literal = String::new();
    for c in body.chars() {
        let special = match c {
            '*' => ".*",
            '^' => SEPARATOR,
            _ => {
                literal.push(c);
                continue;
            }
        };
        regex.push_str(&escape(&literal));
        literal.clear();
        regex.push_str(special);
    }
    regex.push_str(&escape(&literal));
    if at_end {
        regex.push('$');
    }
    regex
}

/// Returns a URL that a filter fits.
fn sample(pattern: &str) -> Option<String> {
    if expression_of(pattern).is_some() {
        return None;
    }
    let text = pattern.replace('*', "x").replace('^', "/");
    if let Some(host) = text.strip_prefix("||") {
        return Some(format!("http://{}", host.trim_end_matches('|')));
    }
    let body = text.trim_end_matches('|');
    match body.strip_prefix('|') {
        Some(start) => Some(start.to_owned()),
        None => Some(format!(
            "http://host.example/{}",
            body.trim_start_matches('/')
        ))
        .map(|url| {
            if body.starts_with("//") {
                url.replacen("example/", "example//", 1)
            } else {
                url
            }
        }),
    }
}

fn missing(is_exception: bool) -> MissingPart {
    if is_exception {
        MissingPart::KeepsOut
    } else {
        MissingPart::LetsThrough
    }
}
