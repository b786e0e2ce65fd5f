//! The parser. No other file uses the YAML crate, and only the parser of simple texts the one below it.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::{DuplicateKeyPolicy, Options};
use serde_saphyr::{Error, Location, MessageFormatter, Spanned, UserMessageFormatter};

use super::mistake::syntax_problem;
use super::node::{MappingEntry, MappingKey, Node, YamlValue};
use super::simple::parse_simple;
use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::model::number::saturating_u32;

/// The largest accepted text, in bytes. Large data belongs in list files.
pub(super) const MAX_BYTES: usize = 128 << 20;
/// The maximum number of keys and values in a text: enough for about a million rules.
pub const MAX_NODES: usize = 12_000_000;
/// The maximum nesting depth. Conditions and rules nest, and code that reads the tree is recursive.
pub(super) const MAX_DEPTH: usize = 64;
/// The stack of the parser thread, in bytes. [`MAX_DEPTH`] levels take an eighth of it in an
/// unoptimised build.
const STACK_SIZE: usize = 16 << 20;
/// The maximum number of values that have an anchor (`&name`).
const MAX_ANCHORED_EVENTS: usize = 1_000_000;
/// The maximum number of values that aliases (`*name`) may repeat in total: they take memory that the text does not.
const MAX_ALIAS_EVENTS: usize = 200_000;

/// Parses one document.
///
/// Returns `None` if no tree can be built. A duplicate key is reported and its first value is used,
/// so that the rest of the text can be checked as well.
pub fn parse(file: &Arc<str>, text: impl Into<Arc<str>>, problems: &mut Problems) -> Option<Node> {
    let text: &Arc<str> = &text.into();
    problems.add_text(file, Arc::clone(text));
    if let Some(place) = first_line_beyond(file, text, MAX_BYTES) {
        let message = format!("the file is larger than {} MiB", MAX_BYTES >> 20);
        problems.push(Problem::error(&place, message).with_help(BIG_DATA_HELP));
        return None;
    }
    let parsed =
        run_on_large_stack(|| parse_tolerating_duplicates(file, text)).unwrap_or_else(|error| {
            let message = format!("cannot start a thread to parse the file: {error}");
            YamlParseResult {
                tree: None,
                problems: vec![Problem::error(&SourceLocation::for_file(file), message)],
            }
        });
    parsed
        .problems
        .into_iter()
        .for_each(|problem| problems.push(problem));
    parsed.tree
}

/// Returns the line in which a text exceeds this number of bytes.
fn first_line_beyond(file: &Arc<str>, text: &str, limit: usize) -> Option<SourceLocation> {
    let accepted = text
        .as_bytes()
        .get(..limit)
        .filter(|_| text.len() > limit)?;
    let breaks = memchr::memchr_iter(b'\n', accepted).count();
    Some(SourceLocation {
        line: u32::try_from(breaks).unwrap_or(u32::MAX).saturating_add(1),
        ..SourceLocation::for_file(file)
    })
}

struct YamlParseResult {
    tree: Option<Node>,
    problems: Vec<Problem>,
}

/// Parses strictly; if there are duplicate keys, reports the first and parses again with the first
/// value of each.
fn parse_tolerating_duplicates(file: &Arc<str>, text: &str) -> YamlParseResult {
    let mut problems = Vec::new();
    let tree = match parse_raw(text, DuplicateKeyPolicy::Error) {
        Err(error) if is_duplicate(&error) => {
            problems.push(problem_from_error(file, text, &error));
            parse_raw(text, DuplicateKeyPolicy::FirstWins)
        }
        other => other,
    };
    let mut builder = NodeBuilder::new(file, text);
    let tree = tree
        .map_err(|error| problems.push(problem_from_error(file, text, &error)))
        .map(|tree| builder.build_node(tree))
        .ok();
    YamlParseResult { tree, problems }
}

/// Calls a function in a new thread with a large stack: the parser recurses with large frames, and
/// the caller may be a worker thread with little stack left.
fn run_on_large_stack<T: Send>(call: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    std::thread::scope(|scope| {
        let thread = large_stack_thread().spawn_scoped(scope, call)?;
        thread
            .join()
            .map_err(|_| std::io::Error::other("the parser panicked"))
    })
}

/// Calls a function that parses a part of a text, on a large stack. `None` if that fails.
pub(super) fn on_large_stack<T: Send>(call: impl FnOnce() -> Option<T> + Send) -> Option<T> {
    run_on_large_stack(call).ok().flatten()
}

/// Calls a function that parses, on a large stack, and beside it one that reads what is parsed. `None` if
/// either fails.
pub fn parse_beside(
    parse: impl FnOnce() -> Option<()> + Send,
    read: impl FnOnce() -> Option<()>,
) -> Option<()> {
    std::thread::scope(|scope| {
        let parser = large_stack_thread().spawn_scoped(scope, parse).ok()?;
        let read = read();
        let parsed = parser.join().ok().flatten();
        read.and(parsed)
    })
}

fn large_stack_thread() -> std::thread::Builder {
    std::thread::Builder::new()
        .name("yaml".into())
        .stack_size(STACK_SIZE)
}

/// Parses a text; `None` if it is not YAML, or has duplicate keys.
pub(super) fn parse_strictly(text: &str) -> Option<RawNode> {
    parse_raw(text, DuplicateKeyPolicy::Error).ok()
}

/// Parses a part of a text; `None` if it is not YAML by itself, or has duplicate keys, or what may
/// depend on other parts.
pub(super) fn parse_without_anchors(text: &str) -> Option<RawNode> {
    parse_simple(text).or_else(|| parse_any_without_anchors(text))
}

pub(super) fn parse_any_without_anchors(text: &str) -> Option<RawNode> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: MAX_NODES,
            max_events: 3 * MAX_NODES,
            max_depth: MAX_DEPTH,
            max_documents: 1,
            max_anchors: 0,
            max_aliases: 0,
            max_merge_keys: 0,
            max_total_scalar_bytes: MAX_BYTES,
        },
        duplicate_keys: DuplicateKeyPolicy::Error,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).ok()
}

const BIG_DATA_HELP: &str =
    "move large data into list files (`lists: { name: { kind: domains, file: … } }`)";

fn parse_raw(text: &str, duplicates: DuplicateKeyPolicy) -> Result<RawNode, Error> {
    serde_saphyr::from_str_with_options(text, parser_options(duplicates, MAX_NODES))
}

fn parser_options(duplicates: DuplicateKeyPolicy, node_limit: usize) -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: node_limit,
            max_events: 3 * node_limit,
            max_depth: MAX_DEPTH,
            max_documents: 1,
            max_recorded_anchor_events: MAX_ANCHORED_EVENTS,
            max_total_scalar_bytes: MAX_BYTES,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_ALIAS_EVENTS },
        duplicate_keys: duplicates,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

/// The tree as the YAML crate produces it. It is as small as possible, since it exists beside the
/// final tree for a moment.
pub(super) struct RawNode {
    pub(super) line: u32,
    pub(super) column: u32,
    /// The first byte and the number of bytes in the text.
    pub(super) span: Option<(u32, u32)>,
    pub(super) value: RawValue,
}

pub(super) enum RawValue {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Box<str>),
    Sequence(Box<[RawNode]>),
    Mapping(Box<[(RawKey, RawNode)]>),
}

pub(super) struct RawKey {
    pub(super) line: u32,
    pub(super) column: u32,
    pub(super) text: Box<str>,
}

impl<'de> Deserialize<'de> for RawNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, defined, .. } = Spanned::<RawValue>::deserialize(deserializer)?;
        let span = defined.span();
        let range = span.byte_offset().zip(span.byte_len());
        Ok(Self {
            line: saturating_u32(defined.line()),
            column: saturating_u32(defined.column()),
            span: range
                .and_then(|(from, length)| Some((from.try_into().ok()?, length.try_into().ok()?))),
            value,
        })
    }
}

impl<'de> Deserialize<'de> for RawKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { value, defined, .. } = Spanned::<String>::deserialize(deserializer)?;
        Ok(Self {
            line: saturating_u32(defined.line()),
            column: saturating_u32(defined.column()),
            text: value.into(),
        })
    }
}

impl<'de> Deserialize<'de> for RawValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawValueVisitor)
    }
}

struct RawValueVisitor;

impl<'de> Visitor<'de> for RawValueVisitor {
    type Value = RawValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<RawValue, E> {
        Ok(RawValue::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<RawValue, E> {
        Ok(RawValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<RawValue, E> {
        Ok(RawValue::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<RawValue, E> {
        // A number above every limit in use; as a float it is still reported as a number that is
        // out of range.
        Ok(i64::try_from(value).map_or(RawValue::Float(value as f64), RawValue::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<RawValue, E> {
        Ok(RawValue::Float(value))
    }

    fn visit_str<E>(self, text: &str) -> Result<RawValue, E> {
        Ok(RawValue::Text(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RawValue, A::Error> {
        let mut all = Vec::new();
        while let Some(item) = items.next_element()? {
            all.push(item);
        }
        Ok(RawValue::Sequence(all.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<RawValue, A::Error> {
        let mut all = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            all.push(entry);
        }
        Ok(RawValue::Mapping(all.into()))
    }
}

/// Converts the tree; has the file for locations, and the text for the spelling of numbers.
pub(super) struct NodeBuilder<'a> {
    file: &'a Arc<str>,
    text: &'a str,
    /// The keys so far. Few of them differ.
    keys: HashSet<Arc<str>>,
    line_shift: LineShift,
    count: usize,
}

/// The lines of a part of a text that is parsed by itself.
#[derive(Clone, Copy, Default)]
pub(super) struct LineShift {
    /// A line of the part.
    pub(super) from: u32,
    /// Its line in the whole text.
    pub(super) to: u32,
}

impl<'a> NodeBuilder<'a> {
    pub(super) fn new(file: &'a Arc<str>, text: &'a str) -> Self {
        Self {
            file,
            text,
            keys: HashSet::new(),
            line_shift: LineShift::default(),
            count: 0,
        }
    }

    /// Changes the lines of the nodes that follow.
    pub(super) fn shift_lines(&mut self, shift: LineShift) {
        self.line_shift = shift;
    }

    /// The number of keys and values so far.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn build_node(&mut self, raw: RawNode) -> Node {
        self.count += 1;
        let place = self.place(raw.line, raw.column);
        let value = match raw.value {
            RawValue::Null => YamlValue::Null,
            RawValue::Bool(value) => YamlValue::Bool(value),
            RawValue::Int(number) => {
                let spelling = self.spelling(raw.span);
                YamlValue::Int(number, spelling.unwrap_or(&number.to_string()).into())
            }
            RawValue::Float(number) => {
                let spelling = self.spelling(raw.span);
                YamlValue::Float(number, spelling.unwrap_or(&number.to_string()).into())
            }
            RawValue::Text(text) => YamlValue::Text(text),
            RawValue::Sequence(items) => YamlValue::Sequence(
                items
                    .into_vec()
                    .into_iter()
                    .map(|item| self.build_node(item))
                    .collect(),
            ),
            RawValue::Mapping(entries) => YamlValue::Mapping(
                entries
                    .into_vec()
                    .into_iter()
                    .map(|(key, value)| self.build_entry(key, value))
                    .collect(),
            ),
        };
        Node { place, value }
    }

    fn build_entry(&mut self, key: RawKey, value: RawNode) -> MappingEntry {
        self.count += 1;
        let key = MappingKey {
            place: self.place(key.line, key.column),
            text: self.shared_key(key.text),
        };
        MappingEntry {
            key,
            value: self.build_node(value),
        }
    }

    fn shared_key(&mut self, key: Box<str>) -> Arc<str> {
        if let Some(known) = self.keys.get(&*key) {
            return Arc::clone(known);
        }
        let key: Arc<str> = key.into();
        self.keys.insert(Arc::clone(&key));
        key
    }

    fn place(&self, line: u32, column: u32) -> SourceLocation {
        let LineShift { from, to } = self.line_shift;
        SourceLocation {
            file: Arc::clone(self.file),
            line: line.saturating_sub(from).saturating_add(to),
            column,
        }
    }

    fn spelling(&self, span: Option<(u32, u32)>) -> Option<&str> {
        let (from, length) = span?;
        let from = usize::try_from(from).ok()?;
        let length = usize::try_from(length).ok()?;
        self.text
            .get(from..from.checked_add(length)?)
            .map(str::trim)
    }
}

fn place_at(file: &Arc<str>, at: &Location) -> SourceLocation {
    SourceLocation {
        file: Arc::clone(file),
        line: saturating_u32(at.line()),
        column: saturating_u32(at.column()),
    }
}

fn is_duplicate(error: &Error) -> bool {
    matches!(innermost_error(error), Error::DuplicateMappingKey { .. })
}

/// Unwraps errors inside aliases, which the crate wraps.
fn innermost_error(error: &Error) -> &Error {
    if let Error::AliasError { error, .. } = error {
        innermost_error(error)
    } else {
        error
    }
}

fn problem_from_error(file: &Arc<str>, text: &str, error: &Error) -> Problem {
    let error = innermost_error(error);
    let place = error
        .location()
        .map_or_else(|| SourceLocation::for_file(file), |at| place_at(file, &at));
    if let Error::DuplicateMappingKey { key, .. } = error {
        let problem = Problem::error(&place, "duplicate key in a mapping");
        return key
            .iter()
            .fold(problem, |problem, key| problem.with_found(key.clone()));
    }
    if let Error::Budget { breach, .. } = error {
        return budget_problem(&place, breach);
    }
    if matches!(error, Error::AliasReplayLimitExceeded { .. }) {
        return Problem::error(&place, ALIASES_MESSAGE);
    }
    if matches!(error, Error::MultipleDocuments { .. }) {
        return Problem::error(&place, SECOND_DOCUMENT_MESSAGE);
    }
    syntax_problem(place, text, &UserMessageFormatter.format_message(error))
}

const SECOND_DOCUMENT_MESSAGE: &str =
    "a second document begins (`---`); a file may contain only one";

const ALIASES_MESSAGE: &str = "aliases (`*name`) expand to too many values";

fn budget_problem(place: &SourceLocation, error: &BudgetBreach) -> Problem {
    if matches!(
        error,
        BudgetBreach::Nodes { .. } | BudgetBreach::Events { .. }
    ) {
        return Problem::error(place, format!("more than {MAX_NODES} values and keys"))
            .with_help(BIG_DATA_HELP);
    }
    if matches!(error, BudgetBreach::Depth { .. }) {
        return Problem::error(place, format!("nested more than {MAX_DEPTH} levels deep"));
    }
    if matches!(error, BudgetBreach::Documents { .. }) {
        return Problem::error(place, SECOND_DOCUMENT_MESSAGE);
    }
    Problem::error(place, ALIASES_MESSAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_text(text: &str) -> (Option<Node>, Vec<String>) {
        let mut problems = Problems::new();
        let node = parse(&"p".into(), text, &mut problems);
        (
            node,
            problems
                .into_vec()
                .iter()
                .map(ToString::to_string)
                .collect(),
        )
    }

    fn parse_value(text: &str) -> YamlValue {
        let (node, problems) = parse_text(text);
        assert_eq!(problems, [""; 0], "{text}");
        node.unwrap().get("x").unwrap().value.clone()
    }

    #[test]
    fn scalars_keep_their_spelling() {
        for (text, expected) in [
            ("x: 1", YamlValue::Int(1, "1".into())),
            ("x: 0x10", YamlValue::Int(16, "0x10".into())),
            ("x: 1.10", YamlValue::Float(1.1, "1.10".into())),
            ("x: 1.10 # so", YamlValue::Float(1.1, "1.10".into())),
            ("x: &a 2.50", YamlValue::Float(2.5, "2.50".into())),
            ("x: \"1\"", YamlValue::Text("1".into())),
            ("x: '1'", YamlValue::Text("1".into())),
            ("x: yes", YamlValue::Text("yes".into())),
            ("x: true", YamlValue::Bool(true)),
            ("x:", YamlValue::Null),
            ("x: ~", YamlValue::Null),
            ("x: 007", YamlValue::Float(7.0, "007".into())),
            (
                "x: 18446744073709551615",
                YamlValue::Float(18446744073709551615.0, "18446744073709551615".into()),
            ),
        ] {
            assert_eq!(parse_value(text), expected, "{text}");
        }
        assert_eq!(
            parse_value("x: |\n  a\n  b\n"),
            YamlValue::Text("a\nb\n".into())
        );
    }

    #[test]
    fn every_key_and_value_has_its_place() {
        let (node, _) = parse_text("a:\n  - b: é\n    c: {d: [1, 2]}\n");
        let item = &node.unwrap().get("a").unwrap().clone();
        let YamlValue::Sequence(items) = &item.value else {
            panic!()
        };
        let c = items[0].get("c").unwrap();
        for (node, line, column) in [
            (&items[0], 2, 5),
            (items[0].get("b").unwrap(), 2, 8),
            (c.get("d").unwrap(), 3, 12),
        ] {
            assert_eq!((node.place.line, node.place.column), (line, column));
        }
        let YamlValue::Mapping(entries) = &items[0].value else {
            panic!()
        };
        assert_eq!(
            (entries[1].key.place.line, entries[1].key.place.column),
            (3, 5)
        );
    }

    #[test]
    fn a_duplicate_key_is_reported_and_the_first_value_is_used() {
        let (node, problems) = parse_text("x: 1\ny: 2\nx: 3\n");
        assert_eq!(node.unwrap().get("x").unwrap().spelling(), Some("1"));
        assert_eq!(
            problems,
            ["p:3:1: error: duplicate key in a mapping; found `x`"]
        );
    }

    #[test]
    fn broken_texts_are_refused_with_a_place() {
        for (text, expected) in [
            ("a: [1, 2\n", "p:"),
            ("a: b: c\n", "p:1:"),
            ("a: 'x\n", "p:"),
            ("a:\n\t- 1\n", "p:2:"),
            ("a: *nobody\n", "p:1:4"),
            ("a: 1\n---\nb: 2\n", "p:2:"),
            ("a: !thing 1\n", "p:1:11: error: not YAML: unsupported tag"),
        ] {
            let (node, problems) = parse_text(text);
            assert!(node.is_none(), "{text}");
            assert_eq!(problems.len(), 1);
            assert!(problems[0].starts_with(expected), "{text} → {problems:?}");
        }
    }

    #[test]
    fn a_text_that_is_too_large_is_refused_at_the_first_line_beyond_the_limit() {
        let line = format!("- {}\n", "x".repeat(1021));
        let text = line.repeat((MAX_BYTES >> 10) + 2);
        let (node, problems) = parse_text(&text);
        assert!(node.is_none());
        assert_eq!(
            problems,
            [
                "p:131073: error: the file is larger than 128 MiB; move large data into list files \
                 (`lists: { name: { kind: domains, file: … } }`)"
            ]
        );
        let place = |limit| first_line_beyond(&"p".into(), "a\nb\n", limit).map(|place| place.line);
        assert_eq!(
            [0, 1, 2, 3, 4].map(place),
            [Some(1), Some(1), Some(2), Some(2), None]
        );
    }

    #[test]
    fn too_many_values_are_refused_where_they_are() {
        let options = parser_options(DuplicateKeyPolicy::Error, 9);
        let parsed = serde_saphyr::from_str_with_options::<RawNode>(
            "- a: 1\n- a: 1\n- a: 1\n- a: 1\n",
            options,
        );
        let problem = problem_from_error(&"p".into(), "", &parsed.err().unwrap());
        assert_eq!(problem.location.line, 3, "{problem}");
        assert!(
            problem.message.contains("12000000 values and keys"),
            "{problem}"
        );
    }

    #[test]
    fn depth_and_repetition_are_bounded() {
        let deep = format!("x: {}{}", "[".repeat(100), "]".repeat(100));
        let (_, problems) = parse_text(&deep);
        assert!(problems[0].contains("64 levels"), "{problems:?}");
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for i in 1..9 {
            let last = format!("*a{}, ", i - 1).repeat(10);
            bomb.push_str(&format!("a{i}: &a{i} [{last}]\n"));
        }
        let (node, problems) = parse_text(&bomb);
        assert!(node.is_none());
        assert!(problems[0].contains("aliases"), "{problems:?}");
    }
}
