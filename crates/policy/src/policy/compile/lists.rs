//! Compiles lists: items are brought to canonical form and stored for the lookups of the list's
//! kind.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::policy::expression::table::ExpressionInterner;
use crate::policy::field::{Field, ValueType};
use crate::policy::host_pace::HostScope;
use crate::policy::list::texts::{self, PackedTexts};
use crate::policy::list::{ListItems, ListKind, ListPatterns, PolicyList};
use crate::policy::pattern::{CaseSensitivity, TextForm};
use crate::policy::source::list_file;
use crate::policy::source::tree::{LocatedText, SourceList, SourceListItems, TextTestKind};

use super::canonical::{self, InvalidValue};
use super::condition::text_comparison::{CompiledText, TextComparison, TextValues};
use super::condition::warnings::ValueWarning;
use super::condition::{parse_network, value_problem};
use super::regex::PatternError;
use super::surt;

/// The maximum number of invalid items of one list that are reported one by one.
const MAX_REPORTED: usize = 20;

/// The number of items of one list with warnings after which the rest is not checked: one that
/// matches nothing may take 0.1 ms.
const MAX_DOUBTFUL: usize = 1_000;

/// The lists of a policy by name.
pub(super) struct ListTable<'s> {
    sources: &'s [SourceList],
    /// The lists in the order of their sources, and then copies of them.
    all: Vec<PolicyList>,
    by_name: HashMap<Box<str>, (usize, Option<ListKind>)>,
    /// Lower-case copies of lists of values, for fields that ignore case: index of the list to
    /// index of the copy.
    lowercase_copies: HashMap<usize, usize>,
    /// The lists of patterns for each comparison.
    patterns: Vec<ComparedPatterns>,
    /// The comparisons of conditions whose items may match nothing.
    comparisons: Vec<(usize, TextComparison)>,
    used: Vec<bool>,
}

/// A list of patterns that is compiled for one comparison.
struct ComparedPatterns {
    /// The index of the list as written.
    list: usize,
    comparison: TextComparison,
    /// The index of the compiled list.
    compiled: usize,
}

impl<'s> ListTable<'s> {
    /// Compiles all lists and reports invalid items.
    pub(super) fn compile(
        sources: &'s [SourceList],
        expressions: &mut ExpressionInterner<'_>,
        problems: &mut Problems,
    ) -> Self {
        let mut lists = Self {
            sources,
            all: Vec::new(),
            by_name: HashMap::new(),
            lowercase_copies: HashMap::new(),
            patterns: Vec::new(),
            comparisons: Vec::new(),
            used: Vec::new(),
        };
        for source in sources {
            let index = lists.all.len();
            lists
                .by_name
                .entry(source.name.value.clone())
                .or_insert((index, source.kind));
            let kind = source.kind.unwrap_or(ListKind::Values);
            let items = match (source.kind, pattern_kind(kind)) {
                (None, _) => ListItems::empty(),
                (Some(_), None) => compile_items(kind, source, problems),
                (Some(_), Some(pattern)) => {
                    let comparison = usual_comparison(pattern);
                    let items = compile_patterns(source, &comparison, expressions, problems);
                    lists.patterns.push(ComparedPatterns {
                        list: index,
                        comparison,
                        compiled: index,
                    });
                    items
                }
            };
            lists.all.push(PolicyList {
                name: source.name.value.clone(),
                kind,
                items,
            });
            lists.used.push(false);
        }
        lists
    }

    /// Returns the index and kind of a list, and marks it as used. The kind is `None` if it could
    /// not be read.
    pub(super) fn find(&mut self, name: &str) -> Option<(usize, Option<ListKind>)> {
        let found = self.by_name.get(name).copied()?;
        if let Some(used) = self.used.get_mut(found.0) {
            *used = true;
        }
        Some(found)
    }

    /// Returns the items of a list of hosts or domains, and the hosts that each of them means.
    pub(super) fn hosts_of(&self, index: usize) -> Option<(HostScope, &PackedTexts)> {
        let list = self.all.get(index)?;
        let scope = if list.kind == ListKind::Hosts {
            HostScope::Exact
        } else if list.kind == ListKind::Domains {
            HostScope::Domain
        } else {
            return None;
        };
        if let ListItems::Set(set) = &list.items {
            Some((scope, set.texts()))
        } else {
            None
        }
    }

    /// Returns the problem of a list that does not exist.
    pub(super) fn unknown_list(&self, name: &LocatedText) -> Problem {
        let problem =
            Problem::error(&name.place, "no list with this name").with_found(&*name.value);
        let names: Vec<&str> = self.names().collect();
        if names.is_empty() {
            problem
        } else {
            problem.with_allowed_words(names)
        }
    }

    /// Returns the names of all lists, in the order of the policy.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|list| &*list.name)
    }

    /// Returns the index of a list whose items are lower case: a copy if some are not.
    pub(super) fn lowercase_copy(&mut self, index: usize) -> usize {
        let Some(list) = self
            .all
            .get(index)
            .filter(|list| list.kind == ListKind::Values)
        else {
            return index;
        };
        let ListItems::Set(items) = &list.items else {
            return index;
        };
        if !items
            .texts()
            .iter()
            .any(|item| item.bytes().any(|b| b.is_ascii_uppercase()))
        {
            return index;
        }
        if let Some(copy) = self.lowercase_copies.get(&index) {
            return *copy;
        }
        let mut lower = PackedTexts::default();
        // `push` cannot fail: the copies together are as long as the originals.
        let _ = items
            .texts()
            .iter()
            .all(|item| lower.push(&item.to_ascii_lowercase()));
        let copy = PolicyList {
            name: list.name.clone(),
            kind: list.kind,
            items: ListItems::from_texts(lower),
        };
        self.lowercase_copies.insert(index, self.all.len());
        self.all.push(copy);
        self.all.len() - 1
    }

    /// Returns the index of a list of patterns that are compared in this way: of a copy, unless the
    /// patterns are compared with whole URLs.
    pub(super) fn compared_patterns(
        &mut self,
        index: usize,
        comparison: TextComparison,
        expressions: &mut ExpressionInterner<'_>,
        problems: &mut Problems,
    ) -> usize {
        let kind = self.all.get(index).map(|list| list.kind);
        let Some((source, kind)) = self.sources.get(index).zip(kind) else {
            return index;
        };
        let known = self
            .patterns
            .iter()
            .find(|known| known.list == index && known.comparison == comparison);
        if let Some(known) = known {
            return known.compiled;
        }
        let compiled = self.all.len();
        self.all.push(PolicyList {
            name: source.name.value.clone(),
            kind,
            items: compile_patterns(source, &comparison, expressions, problems),
        });
        self.patterns.push(ComparedPatterns {
            list: index,
            comparison,
            compiled,
        });
        compiled
    }

    /// Records the comparison of a list with a field by a condition.
    pub(super) fn record_comparison(&mut self, index: usize, comparison: TextComparison) {
        let entry = (index, comparison);
        if !self.comparisons.contains(&entry) {
            self.comparisons.push(entry);
        }
    }

    /// Warns of items that match nothing, or not what was intended: of each list once for each
    /// reason.
    pub(super) fn report_doubtful_items(
        &self,
        expressions: &mut ExpressionInterner<'_>,
        problems: &mut Problems,
    ) {
        for (index, comparison) in &self.comparisons {
            let Some((source, kind)) = self
                .sources
                .get(*index)
                .and_then(|source| Some((source, source.kind?)))
            else {
                continue;
            };
            let mut all = ItemWarnings::default();
            for_each_located(&source.items, |text, locate| {
                if all.count >= MAX_DOUBTFUL {
                    return;
                }
                let compiled = match pattern_kind(kind) {
                    Some(_) => comparison.compile(text, expressions).ok(),
                    None => compile_item(kind, text).ok().map(CompiledText::from),
                };
                // Invalid items are errors.
                if let Some(compiled) = compiled {
                    all.add(comparison.warnings(text, Some(&compiled)), locate);
                }
            });
            all.report(&comparison.field_name(), problems);
        }
    }

    /// Advises to remove lists that no condition uses.
    pub(super) fn report_unused(&self, problems: &mut Problems) {
        let unused = self
            .sources
            .iter()
            .zip(&self.used)
            .filter(|(_, used)| !**used);
        for (list, _) in unused {
            let problem = Problem::advice(&list.name.place, "no condition uses this list");
            problems.push(problem.with_found(&*list.name.value));
        }
    }

    pub(super) fn into_lists(self) -> Box<[PolicyList]> {
        self.all.into()
    }
}

/// Returns the kind of test that compares the items of a list of patterns; `None` for other lists.
pub(super) fn pattern_kind(kind: ListKind) -> Option<TextTestKind> {
    match kind {
        ListKind::Substrings => Some(TextTestKind::Contains),
        ListKind::Globs => Some(TextTestKind::Glob),
        ListKind::Regexes => Some(TextTestKind::Regex),
        ListKind::Domains
        | ListKind::Hosts
        | ListKind::Urls
        | ListKind::UrlPrefixes
        | ListKind::Surts
        | ListKind::Addresses
        | ListKind::Values => None,
    }
}

/// Returns the kind of test that compares the items of a list with a field, if an item that is valid
/// may match nothing.
pub(super) fn doubtful_kind(kind: ListKind, field: &Field) -> Option<TextTestKind> {
    match (kind, field) {
        (ListKind::Substrings | ListKind::Globs | ListKind::Regexes, _) => pattern_kind(kind),
        (ListKind::Domains | ListKind::Hosts, Field::Host)
        | (ListKind::Urls | ListKind::Surts, Field::Url)
        | (ListKind::Addresses, _) => None,
        (ListKind::UrlPrefixes, Field::Url) => Some(TextTestKind::Prefix),
        (
            ListKind::Domains
            | ListKind::Hosts
            | ListKind::Urls
            | ListKind::UrlPrefixes
            | ListKind::Surts
            | ListKind::Values,
            _,
        ) => (field.value_type() == ValueType::Text).then_some(TextTestKind::Exact),
    }
}

/// Returns the comparison of patterns in conditions that name no field.
fn usual_comparison(kind: TextTestKind) -> TextComparison {
    TextComparison::new(
        &Field::Url,
        kind,
        CaseSensitivity::Sensitive,
        TextForm::Canonical,
    )
}

/// Compiles the items of a list of patterns, and reports invalid ones.
fn compile_patterns(
    source: &SourceList,
    comparison: &TextComparison,
    expressions: &mut ExpressionInterner<'_>,
    problems: &mut Problems,
) -> ListItems {
    let mut texts = allocate_texts(&source.items);
    let mut values = TextValues::new(comparison);
    let mut is_full = false;
    for_each_item(&source.items, problems, |text| {
        values.push(text, comparison.compile(text, expressions)?);
        is_full |= !texts.push(text);
        Ok(())
    });
    report_full(is_full, source, problems);
    let tests = values.into_tests().into_iter().map(|(test, _)| test);
    ListItems::Patterns(ListPatterns::new(texts, tests.collect()))
}

/// Compiles the items of a list of another kind, and reports invalid ones.
pub(super) fn compile_items(
    kind: ListKind,
    source: &SourceList,
    problems: &mut Problems,
) -> ListItems {
    if kind == ListKind::Addresses {
        let mut networks = Vec::new();
        for_each_item(&source.items, problems, |text| {
            let network = parse_network(text).ok_or_else(|| {
                InvalidValue::with_help("not a network", "written like 10.0.0.0/8")
            })?;
            networks.push(network);
            Ok(())
        });
        return ListItems::from_networks(networks);
    }
    let mut all = allocate_texts(&source.items);
    let mut is_full = false;
    for_each_item(&source.items, problems, |text| {
        is_full |= !all.push(&compile_item(kind, text)?);
        Ok(())
    });
    report_full(is_full, source, problems);
    match kind {
        ListKind::UrlPrefixes | ListKind::Surts => ListItems::from_prefixes(&all),
        ListKind::Domains
        | ListKind::Hosts
        | ListKind::Urls
        | ListKind::Substrings
        | ListKind::Globs
        | ListKind::Regexes
        | ListKind::Addresses
        | ListKind::Values => ListItems::from_texts(all),
    }
}

fn report_full(is_full: bool, source: &SourceList, problems: &mut Problems) {
    if is_full {
        let message = format!(
            "the items of the list take more than {} MiB",
            texts::MAX_BYTES >> 20
        );
        problems.push(
            Problem::error(&source.name.place, message).with_help("split them into several lists"),
        );
    }
}

/// Allocates storage for items that are hosts or longer, and mostly unchanged.
fn allocate_texts(items: &SourceListItems) -> PackedTexts {
    match items {
        SourceListItems::Inline(items) => PackedTexts::with_capacity(items.len(), 0),
        SourceListItems::File { text, .. } => {
            PackedTexts::with_capacity(text.len() / 16, text.len())
        }
    }
}

pub(super) fn compile_item(kind: ListKind, text: &str) -> Result<Cow<'_, str>, InvalidValue> {
    Ok(match kind {
        ListKind::Domains | ListKind::Hosts if canonical::is_plain_host(text) => text.into(),
        ListKind::Domains | ListKind::Hosts => canonical::whole_host(text)?.into(),
        ListKind::Urls => canonical::whole_url(text)?.text.into(),
        ListKind::UrlPrefixes => canonical::url_prefix(text).text.into(),
        ListKind::Surts => surt::surt_prefix(text)?.into(),
        ListKind::Substrings
        | ListKind::Globs
        | ListKind::Regexes
        | ListKind::Addresses
        | ListKind::Values => text.into(),
    })
}

/// Calls a function for each item. Only an invalid item gets a location, so that a million valid
/// ones cost nothing.
fn for_each_item(
    items: &SourceListItems,
    problems: &mut Problems,
    mut take: impl FnMut(&str) -> Result<(), PatternError>,
) {
    let mut invalid = InvalidItems {
        problems,
        count: 0,
        last: None,
    };
    for_each_located(items, |text, locate| {
        if let Err(error) = take(text) {
            invalid.record(locate(), error);
        }
    });
    invalid.report_remaining();
}

/// Calls a function for each item, and with it a function that locates the item.
fn for_each_located(items: &SourceListItems, mut take: impl FnMut(&str, &dyn Fn() -> LocatedText)) {
    match items {
        SourceListItems::Inline(items) => items
            .iter()
            .for_each(|text| take(&text.value, &|| text.clone())),
        SourceListItems::File { file, text } => list_file::items(text).for_each(|line| {
            take(line.text, &|| LocatedText {
                place: SourceLocation {
                    file: Arc::clone(file),
                    line: line.number,
                    column: u32::try_from(line.indent + 1).unwrap_or(u32::MAX),
                },
                value: line.text.into(),
            });
        }),
    }
}

/// The warnings about the items of one list.
#[derive(Default)]
struct ItemWarnings {
    /// With different messages.
    all: Vec<ItemWarning>,
    /// The number of items with warnings.
    count: usize,
}

/// A warning that applies to one or several items.
struct ItemWarning {
    warning: ValueWarning,
    first: LocatedText,
    count: usize,
}

impl ItemWarnings {
    fn add(&mut self, warnings: Vec<ValueWarning>, locate: &dyn Fn() -> LocatedText) {
        self.count += usize::from(!warnings.is_empty());
        for warning in warnings {
            let known = self
                .all
                .iter_mut()
                .find(|known| known.warning.message == warning.message);
            match known {
                Some(known) => known.count += 1,
                None => self.all.push(ItemWarning {
                    warning,
                    first: locate(),
                    count: 1,
                }),
            }
        }
    }

    /// Reports them for a list that is compared with a field.
    fn report(self, field: &str, problems: &mut Problems) {
        let at_least = if self.count < MAX_DOUBTFUL {
            ""
        } else {
            "at least "
        };
        for mut item in self.all {
            let items = match item.count {
                1 => String::new(),
                2 => format!(" (and {at_least}1 more item of this list)"),
                count => format!(" (and {at_least}{} more items of this list)", count - 1),
            };
            let compared = format!("{items}; the list is compared with `{field}`");
            item.warning.message.push_str(&compared);
            problems.push(item.warning.into_problem(&item.first));
        }
    }
}

/// The invalid items of one list: the first [`MAX_REPORTED`] are reported, the others counted.
struct InvalidItems<'p> {
    problems: &'p mut Problems,
    count: usize,
    last: Option<SourceLocation>,
}

impl InvalidItems<'_> {
    fn record(&mut self, text: LocatedText, error: PatternError) {
        self.count += 1;
        if self.count <= MAX_REPORTED {
            self.problems.push(Problem {
                scalar_offset: error.offset,
                ..value_problem(&text, error.error)
            });
        }
        self.last = Some(text.place);
    }

    fn report_remaining(self) {
        if let Some(last) = self.last.filter(|_| self.count > MAX_REPORTED) {
            let message = format!(
                "{} more items of this list are invalid",
                self.count - MAX_REPORTED
            );
            self.problems.push(Problem::error(&last, message));
        }
    }
}
