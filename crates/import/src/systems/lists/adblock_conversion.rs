//! Filters of adblock lists as lists and rules.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, json};

use crate::draft::{ConditionDraft, GroupDraft, RuleDraft, RuleItem};
use crate::expression::{Anchoring, Dialect, SourceExpression};
use crate::input::{ImportInput, SourceText};
use crate::reference::lists::EvaluatedList;
use crate::report::{AssumptionEffect, PartNeed, PartTarget};

use super::ListImport;
use super::adblock::AdblockFilter;
use super::adblock_file::{AdblockReader, missing};
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
    pages_only: bool,
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

impl ListImport {
    /// Adds filters. Those of several files are one set: an exception of one file holds for all.
    pub(super) fn add_filters(&mut self, name: &str, source: &SourceText, input: &ImportInput<'_>) {
        let filters = AdblockReader::new(&mut self.report, input).read(source);
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
        let mut assumptions: Vec<(&str, AssumptionEffect)> = Vec::new();
        if filter.embeds_only {
            let text = "the crawler says what it embeds (Sec-Fetch-Dest), and a resource of a page has the type and the party \
             that the filter names";
            assumptions.push((text, AssumptionEffect::Either));
        }
        if filter.pages_only {
            let text = "the crawler says what it embeds (Sec-Fetch-Dest)";
            assumptions.push((text, AssumptionEffect::RefusesMore));
        }
        if filter.is_conditional {
            let effect = match filter.is_exception {
                true => AssumptionEffect::RefusesLess,
                false => AssumptionEffect::RefusesMore,
            };
            assumptions.push(("the condition of its !#if or !#else holds", effect));
        }
        let Some((_, effect)) = assumptions.first().copied() else {
            self.report.converted(filter.part, id, PartNeed::Url);
            return;
        };
        let is_same = assumptions.iter().all(|(_, other)| *other == effect);
        let texts: Vec<&str> = assumptions.iter().map(|(text, _)| *text).collect();
        let target = PartTarget {
            name: id.to_owned(),
            need: PartNeed::Url,
        };
        let effect = if is_same {
            effect
        } else {
            AssumptionEffect::Either
        };
        self.report
            .assumed(filter.part, target, texts.join("; and that "), effect);
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
            if class.pages_only {
                let embeds = ConditionDraft::is("dest", ["embed"]);
                condition = ConditionDraft::all(vec![embeds.negated(), condition]);
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
        pages_only: filter.pages_only,
    }
}

impl FilterClass {
    fn suffix(self) -> &'static str {
        if self.pages_only {
            return match self.is_blocking_after_exceptions {
                true => "-pages",
                false => "-important-pages",
            };
        }
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
        if self.pages_only {
            return match self.is_blocking_after_exceptions {
                true => "filters with $document",
                false => "filters with $document and $important",
            };
        }
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
            (FilterItem::Substring(text), true) => {
                self.exact_globs.push(format!("*{}*", glob(&text)))
            }
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
    if let Some((assumption, _)) = translated.assumption {
        let why = format!("an expression that means the same only if {assumption}");
        return Err(RefusedFilter::Why(why));
    }
    let test = match &translated.condition {
        ConditionDraft::Test(test) => Some(test),
        ConditionDraft::Always
        | ConditionDraft::All(_)
        | ConditionDraft::Any(_)
        | ConditionDraft::Not(_) => None,
    };
    let Some((kind, [value])) = test.map(|test| (test.kind, test.values.as_slice())) else {
        let why = "an expression that no single one says here";
        return Err(RefusedFilter::Why(why.to_owned()));
    };
    Ok(match kind {
        Some("regex") => FilterItem::Regex(value.clone()),
        Some("contains") => FilterItem::Substring(value.clone()),
        Some("prefix") => FilterItem::Glob(format!("{}*", glob(value))),
        Some("suffix") => FilterItem::Glob(format!("*{}", glob(value))),
        Some("exact") => FilterItem::Glob(glob(value)),
        // A host or an extension.
        Some(_) | None => {
            let regex = expression.translate_for_replacement();
            let regex = regex.map_err(RefusedFilter::Why)?;
            let plain = regex.strip_prefix("(?i)").unwrap_or(&regex);
            FilterItem::Regex(plain.to_owned())
        }
    })
}

/// Writes a text as a glob.
fn glob(text: &str) -> String {
    text.replace('*', "\\*")
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
