//! The parser of texts without anchors, tags, and scalars whose type is hard to tell.
//!
//! Nearly every rule of a large policy is such a text. It is read from the events of the parser below
//! the YAML crate, which takes a quarter of the time. What is not certain to have the same tree is
//! left to the YAML crate; a property test compares both.

use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput};

use super::parse::{MAX_DEPTH, RawKey, RawNode, RawValue};
use crate::model::number::saturating_u32;

/// The largest mapping whose keys are compared one by one.
const MAX_KEYS: usize = 64;

/// Parses a text; `None` if it is not YAML, or is left to the YAML crate.
pub(super) fn parse_simple(text: &str) -> Option<RawNode> {
    let options = granit_parser::options! { emit_comments: false };
    let mut parser = SimpleParser {
        events: Parser::with_options(StrInput::new(text), options),
    };
    let (Event::StreamStart, _) = parser.next()? else {
        return None;
    };
    let (Event::DocumentStart(false, None), _) = parser.next()? else {
        return None;
    };
    let first = parser.next()?;
    let root = parser.node(first, 0)?;
    let (Event::DocumentEnd, _) = parser.next()? else {
        return None;
    };
    let (Event::StreamEnd, _) = parser.next()? else {
        return None;
    };
    Some(root)
}

struct SimpleParser<'t> {
    events: Parser<'t, StrInput<'t>>,
}

impl<'t> SimpleParser<'t> {
    fn next(&mut self) -> Option<(Event<'t>, Span)> {
        self.events.next_event()?.ok()
    }

    /// Reads the node that begins with an event, inside of `depth` others.
    fn node(&mut self, (event, span): (Event<'t>, Span), depth: usize) -> Option<RawNode> {
        let value = if let Event::Scalar(text, style, 0, None) = event {
            scalar(&text, style)?
        } else if depth == MAX_DEPTH {
            return None;
        } else if let Event::SequenceStart(_, 0, None) = event {
            self.sequence(depth + 1)?
        } else if let Event::MappingStart(_, 0, None) = event {
            self.mapping(depth + 1)?
        } else {
            // Anchors, aliases, tags.
            return None;
        };
        let is_number = matches!(value, RawValue::Int(_));
        let range = is_number.then(|| span.byte_range()).flatten();
        Some(RawNode {
            line: saturating_u32(span.start.line()),
            column: column(&span),
            span: range.and_then(|range| {
                let length = range.end.checked_sub(range.start)?;
                Some((range.start.try_into().ok()?, length.try_into().ok()?))
            }),
            value,
        })
    }

    fn sequence(&mut self, depth: usize) -> Option<RawValue> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Some(RawValue::Sequence(items.into())),
                first => items.push(self.node(first, depth)?),
            }
        }
    }

    fn mapping(&mut self, depth: usize) -> Option<RawValue> {
        let mut entries: Vec<(RawKey, RawNode)> = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if let Event::MappingEnd = event {
                return Some(RawValue::Mapping(entries.into()));
            }
            let Event::Scalar(key, style, 0, None) = event else {
                return None;
            };
            let RawValue::Text(key) = scalar(&key, style)? else {
                return None;
            };
            let is_merge = *key == *"<<";
            if is_merge || entries.len() == MAX_KEYS || entries.iter().any(|e| e.0.text == key) {
                return None;
            }
            let key = RawKey {
                line: saturating_u32(span.start.line()),
                column: column(&span),
                text: key,
            };
            let first = self.next()?;
            entries.push((key, self.node(first, depth)?));
        }
    }
}

fn column(span: &Span) -> u32 {
    saturating_u32(span.start.col()).saturating_add(1)
}

/// Returns the value of a scalar; `None` if its type is hard to tell.
fn scalar(text: &str, style: ScalarStyle) -> Option<RawValue> {
    let first = text.bytes().next();
    let is_text = match (style, first) {
        (ScalarStyle::Plain, None | Some(b'~')) => return None,
        (ScalarStyle::Plain, Some(b'0'..=b'9' | b'+' | b'-' | b'.')) => !may_be_number(text),
        (ScalarStyle::Plain, Some(_)) => {
            let words = ["null", "true", "false"];
            !words.iter().any(|word| text.eq_ignore_ascii_case(word))
        }
        (
            ScalarStyle::SingleQuoted
            | ScalarStyle::DoubleQuoted
            | ScalarStyle::Literal
            | ScalarStyle::Folded,
            _,
        ) => true,
    };
    if is_text {
        return Some(RawValue::Text(text.into()));
    }
    let is_integer = text.bytes().all(|byte| byte.is_ascii_digit());
    let is_decimal = is_integer && (first != Some(b'0') || text.len() == 1);
    is_decimal.then(|| text.parse().ok().map(RawValue::Int))?
}

/// Returns `false` for a text that is not a number in YAML. Examples of numbers: `0x1F`, `1_000`, `-1.5e3`, `.inf`.
fn may_be_number(text: &str) -> bool {
    let unsigned = text.trim_start_matches(['+', '-']);
    let prefixes = ["0x", "0X", "0o", "0O", "0b", "0B"];
    let words = [".nan", ".inf"];
    prefixes.iter().any(|prefix| unsigned.starts_with(prefix))
        || words.iter().any(|word| unsigned.eq_ignore_ascii_case(word))
        || text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || b"_.eE+-".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml::parse::{NodeBuilder, parse_any_without_anchors};

    /// Returns `true` if the text is simple. Then its tree is that of the YAML crate.
    fn is_simple(text: &str) -> bool {
        let Some(simple) = parse_simple(text) else {
            return false;
        };
        let file = "p".into();
        let mut builder = NodeBuilder::new(&file, text);
        let simple = builder.build_node(simple);
        let other = parse_any_without_anchors(text);
        let other = other.map(|other| NodeBuilder::new(&file, text).build_node(other));
        assert_eq!(Some(simple), other, "{text:?}");
        true
    }

    #[test]
    fn the_usual_texts_are_simple() {
        for text in [
            "rules:\n  - { id: r1, forbid: { domain: a.example } }\n",
            "rules:\n- forbid: { url: { regex: '^/a''b$' } }\n  about: >-\n    two\n    lines\n",
            "a: [0, 1, 23, 404, 5xx, .gif, -foo, 1.example, \"\\x41\", 'é', é]\n",
            "a:\n  # a comment\n  - b: |\n      c\n\n  - d # another\n",
            "- yes\n- no\n- nan\n- infinity\n- 0yz\n",
        ] {
            assert!(is_simple(text), "{text}");
        }
    }

    #[test]
    fn doubtful_texts_are_left_to_the_yaml_crate() {
        for text in [
            "a: ~",
            "a:",
            "a: True",
            "a: NULL",
            "a: 1.5",
            "a: -1",
            "a: 007",
            "a: 0x1f",
            "a: 1_000",
            "a: .inf",
            "a: 99999999999999999999",
            "1: a",
            "true: a",
            "? [a]\n: b",
            "a: &b c",
            "a: *b",
            "a: !!str 1",
            "a: ! b",
            "<<: { a: b }",
            "a: 1\na: 2",
            "a: 1\n---\nb: 2\n",
            "--- a",
            "%YAML 1.2\n---\na",
            "a: [b",
            "",
        ] {
            assert!(!is_simple(text), "{text}");
        }
        let deep = |levels: usize| format!("{}a{}", "[".repeat(levels), "]".repeat(levels));
        assert!(is_simple(&deep(MAX_DEPTH)));
        assert!(!is_simple(&deep(MAX_DEPTH + 1)));
    }

    #[test]
    fn random_texts_have_the_tree_of_the_yaml_crate_or_are_not_simple() {
        const PIECES: [&str; 60] = [
            "a", "b", "c: ", "d: ", "e:\n", "- ", "- ", "\n", "\n", "\n  ", "\n    ", "  ", " ",
            "{ ", " }", "[", "]", ", ", ": ", ":", "'", "'", "\"", "\"", "''", "\\n", "\\x41", "1",
            "0", "23", ".", "-", "+", "_", "e", "x", "f", "0x1", "nan", "inf", "true", "null", "~",
            "<<: ", "|\n", ">-\n", "|+2\n", "# g", " # h\n", "é", "?", "? ", "!", "&i ", "*i", "%",
            "@", "`", "\t", "---\n",
        ];
        let mut random = fastrand::Rng::with_seed(21);
        let mut simple = 0;
        for _ in 0..60_000 {
            let text: String = (0..random.usize(1..14))
                .map(|_| PIECES[random.usize(..PIECES.len())])
                .collect();
            simple += usize::from(is_simple(&text));
        }
        assert!(simple > 3_000, "{simple}");
    }
}
