//! The items of a long sequence, each with its own text.
//!
//! A file with a hundred thousand rules is one mapping with one long sequence:
//!
//! ```yaml
//! options: { … }
//! rules:
//!   - { id: a, … }
//!   - { id: b, … }
//! ```
//!
//! Where an item of it begins, the state of the parser depends only on the indentation of the
//! sequence. So an item that is parsed after the line `rules:` alone is the same as in the whole
//! text, whichever items are before and after it. The tree of the whole text need not exist at once,
//! and an item that has not changed need not be parsed again.
//!
//! The items are found by the indentation of lines, which is wrong if a quoted text of several lines
//! looks like items. Each result is therefore compared with what the parser finds: the sequence is
//! where it should be, each item begins in its own lines, and the last one is complete. In any case
//! of doubt, such as anchors, there is no result, and the caller parses the whole text.

use std::sync::Arc;

use super::node::{Node, YamlValue};
use super::parse::{self, LineShift, NodeBuilder, RawNode, RawValue};
use crate::diagnostics::problem::SourceLocation;
use crate::model::number::saturating_u32;

/// A text as the items of the sequence under a key, and the rest.
#[derive(Debug)]
pub struct ItemTexts<'t> {
    text: &'t str,
    key: &'static str,
    /// The number of spaces before each item.
    indent: usize,
    /// The beginnings of the items, of which there is at least one, and the end of the last.
    starts: Vec<LineStart>,
}

/// The beginning of a line.
#[derive(Clone, Copy, Debug)]
struct LineStart {
    offset: usize,
    /// The number of the line, from 1.
    line: u32,
}

/// The lines of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemText<'t> {
    pub text: &'t str,
    /// The offset of the text in the file.
    pub offset: usize,
    /// The first line, from 1.
    pub line: u32,
}

/// A tree, and the number of keys and values in it.
#[derive(Debug)]
pub struct CountedNode {
    pub node: Node,
    pub count: usize,
}

/// The only item of the sequence in the rest of a text.
const PLACEHOLDER: &str = "items";

impl<'t> ItemTexts<'t> {
    /// Finds the items of the sequence under a key in the first column; `None` if there are none, or
    /// if they cannot be found by their indentation.
    pub fn find(text: &'t str, key: &'static str) -> Option<Self> {
        // A carriage return may break lines, too.
        if text.len() > parse::MAX_BYTES || memchr::memchr(b'\r', text.as_bytes()).is_some() {
            return None;
        }
        let mut lines = Lines {
            text,
            offset: 0,
            line: 0,
        };
        // Directives change the meaning of items.
        let (_, key_line) = lines
            .by_ref()
            .find(|(_, line)| is_key(line, key) || line.starts_with('%'))?;
        if !is_key(key_line, key) {
            return None;
        }
        let mut starts = Vec::new();
        let mut sequence_indent = None;
        for (start, line) in lines.by_ref() {
            let content = line.trim_start_matches(' ');
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let indent = line.len() - content.len();
            // The place of an explicit key's value may depend on the next item.
            let inner = content.trim_start_matches(['-', ' ']);
            if inner == "?" || inner.starts_with("? ") {
                return None;
            }
            let is_item = content == "-" || content.starts_with("- ");
            match sequence_indent {
                // After a dash alone the parser has another place for the sequence.
                None if content == "-" => return None,
                None if is_item => {
                    sequence_indent = Some(indent);
                    starts.push(start);
                }
                Some(sequence) if indent == sequence && is_item => starts.push(start),
                Some(sequence) if indent > sequence => {}
                Some(_) if indent == 0 => {
                    starts.push(start);
                    return Some(Self {
                        text,
                        key,
                        indent: sequence_indent?,
                        starts,
                    });
                }
                None | Some(_) => return None,
            }
        }
        starts.push(lines.next_start());
        Some(Self {
            text,
            key,
            indent: sequence_indent?,
            starts,
        })
    }

    /// The number of items.
    pub fn count(&self) -> usize {
        self.starts.len().saturating_sub(1)
    }

    /// The items, in the order of the text.
    pub fn iter(&self) -> impl Iterator<Item = ItemText<'t>> + use<'_, 't> {
        self.starts.windows(2).filter_map(|ends| {
            let [from, to] = ends else { return None };
            Some(ItemText {
                text: self.text.get(from.offset..to.offset)?,
                offset: from.offset,
                line: from.line,
            })
        })
    }

    /// Parses the text without the items: the sequence has another item in their place. `None` if the
    /// text is not YAML, or the sequence is not where it should be.
    pub fn parse_rest(&self, file: &Arc<str>) -> Option<CountedNode> {
        let (first, end) = (self.starts.first()?, self.starts.last()?);
        let lines = usize::try_from(end.line.checked_sub(first.line)?).ok()?;
        let rest = [
            self.text.get(..first.offset)?,
            &" ".repeat(self.indent),
            "- ",
            PLACEHOLDER,
            // A text may end without a line break.
            &"\n".repeat(lines.max(1)),
            self.text.get(end.offset..)?,
        ]
        .concat();
        let rest = parse::on_large_stack(|| {
            let mut builder = NodeBuilder::new(file, &rest);
            let node = builder.build_node(parse::parse_strictly(&rest)?);
            Some(CountedNode {
                node,
                count: builder.count(),
            })
        })?;
        let YamlValue::Sequence(items) = &rest.node.get(self.key)?.value else {
            return None;
        };
        let [
            Node {
                place,
                value: YamlValue::Text(text),
            },
        ] = items.as_slice()
        else {
            return None;
        };
        let expected = SourceLocation {
            file: Arc::clone(file),
            line: first.line,
            column: saturating_u32(self.indent + 3),
        };
        (**text == *PLACEHOLDER && *place == expected).then_some(rest)
    }

    /// Parses some of the items, in the order of the text, on the thread of [`parse::parse_beside`]. `None`
    /// if they are not these items, or have anchors, aliases or merge keys.
    pub fn parse_items(&self, file: &Arc<str>, items: &[ItemText<'_>]) -> Option<Vec<CountedNode>> {
        if items.is_empty() {
            return Some(Vec::new());
        }
        if items.iter().any(|item| ends_with_empty_scalar(item.text)) {
            return None;
        }
        let mut part = format!("{}:\n", self.key);
        part.reserve(items.iter().map(|item| item.text.len()).sum());
        items.iter().for_each(|item| part.push_str(item.text));
        let document = parse::parse_without_anchors(&part)?;
        let RawValue::Mapping(entries) = document.value else {
            return None;
        };
        let [(_, sequence)] = <[_; 1]>::try_from(entries.into_vec()).ok()?;
        let RawValue::Sequence(nodes) = sequence.value else {
            return None;
        };
        let mut builder = NodeBuilder::new(file, &part);
        // The lines of the next item in this text.
        let mut from = 2;
        let mut parsed = Vec::with_capacity(items.len());
        let mut nodes = nodes.into_vec().into_iter();
        for item in items {
            let breaks = memchr::memchr_iter(b'\n', item.text.as_bytes()).count();
            // A text may end without a line break.
            let to = from + saturating_u32(breaks.max(1));
            let node: RawNode = nodes
                .next()
                .filter(|node| (from..to).contains(&node.line))?;
            builder.shift_lines(LineShift {
                from,
                to: item.line,
            });
            let before = builder.count();
            parsed.push(CountedNode {
                node: builder.build_node(node),
                count: builder.count() - before,
            });
            from = to;
        }
        nodes.next().is_none().then_some(parsed)
    }
}

/// The lines of a text, without their ends.
struct Lines<'t> {
    text: &'t str,
    offset: usize,
    /// The number of lines so far.
    line: u32,
}

impl Lines<'_> {
    fn next_start(&self) -> LineStart {
        LineStart {
            offset: self.offset,
            line: self.line + 1,
        }
    }
}

impl<'t> Iterator for Lines<'t> {
    type Item = (LineStart, &'t str);

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self
            .text
            .get(self.offset..)
            .filter(|rest| !rest.is_empty())?;
        let start = self.next_start();
        let end = memchr::memchr(b'\n', rest.as_bytes());
        self.offset += end.map_or(rest.len(), |end| end + 1);
        self.line += 1;
        Some((start, rest.get(..end.unwrap_or(rest.len()))?))
    }
}

/// Returns `true` if an item may end with a block scalar without lines. The parser's place of such a
/// scalar is where the next item begins.
fn ends_with_empty_scalar(item: &str) -> bool {
    let line = item
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with('#'));
    let header = line
        .and_then(|line| line.split(" #").next())
        .and_then(|line| line.split_whitespace().next_back());
    let indicators = header.and_then(|header| header.strip_prefix(['|', '>']));
    indicators.is_some_and(|indicators| {
        indicators
            .bytes()
            .all(|byte| matches!(byte, b'+' | b'-' | b'0'..=b'9'))
    })
}

/// Returns `true` for the line of a key whose value follows.
fn is_key(line: &str, key: &str) -> bool {
    let rest = line
        .strip_prefix(key)
        .and_then(|rest| rest.strip_prefix(':'));
    rest.is_some_and(|rest| {
        let value = rest.trim_start_matches(' ');
        value.is_empty() || value.starts_with('#') && value.len() < rest.len()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostics::problems::Problems;

    const KEY: &str = "rules";

    /// Parses a text in parts of this many items: the rest, and the items.
    fn parse_in_parts(text: &str, items_in_part: usize) -> Option<(Node, Vec<Node>)> {
        let file: Arc<str> = "p".into();
        let items = ItemTexts::find(text, KEY)?;
        let rest = items.parse_rest(&file)?;
        let texts: Vec<ItemText<'_>> = items.iter().collect();
        assert_eq!(texts.len(), items.count());
        let mut nodes = Vec::new();
        for part in texts.chunks(items_in_part) {
            let parsed = parse::on_large_stack(|| items.parse_items(&file, part))?;
            nodes.extend(parsed.into_iter().map(|item| item.node));
        }
        Some((rest.node, nodes))
    }

    fn parse_whole(text: &str) -> Option<Node> {
        let mut problems = Problems::new();
        let node = parse::parse(&"p".into(), text, &mut problems);
        node.filter(|_| problems.is_empty())
    }

    /// Returns `true` if the text can be parsed in parts, with the same result.
    fn is_parsed_in_parts(text: &str, items_in_part: usize) -> bool {
        let Some((mut rest, items)) = parse_in_parts(text, items_in_part) else {
            return false;
        };
        let YamlValue::Mapping(entries) = &mut rest.value else {
            panic!("{text}");
        };
        let entry = entries.iter_mut().find(|entry| *entry.key.text == *KEY);
        entry.unwrap().value.value = YamlValue::Sequence(items);
        assert_eq!(Some(rest), parse_whole(text), "{text:?}");
        true
    }

    #[test]
    fn items_are_parsed_as_in_the_whole_text() {
        for text in [
            "rules:\n  - a\n  - b\n",
            "rules:\n- a\n- b",
            "x: 1\nrules: # these\n\n  # first\n  - { a: 1.10 }\n\n  - b: [c,\n      d]\n    e: 'f\n\n      g'\ny: 2\n",
            "rules:\n    -   a: é\n        b: |\n          - c\n         # d\n    # e\n    -\n      f\n# g\n",
            "rules:\n - a: |+\n    b\n\n\n - c\nz:\n - d\n",
            "rules:\n- - a\n  - b\n- !!str 1\n",
            "x: &a 1\ny: *a\nrules:\n- a\n",
        ] {
            for items_in_part in [1, 2, 9] {
                assert!(is_parsed_in_parts(text, items_in_part), "{text}");
            }
        }
    }

    #[test]
    fn doubtful_texts_are_not_parsed_in_parts() {
        for text in [
            "rules: []\n",
            "rules:\n",
            "rules: x\n",
            "rules:\n  a: 1\n",
            "rules:\n  - a\n - b\n",
            "rules:\n  - a\n  b: c\n",
            "rules:\n  - 'a\n  - b'\n",
            "rules:\n  - [a,\n  - b]\n",
            "rules:\n  - &a 1\n  - *a\n",
            "rules:\n  - &a 1\n",
            "x: &a 1\nrules:\n  - *a\n",
            "rules:\n  - { <<: { a: 1 } }\n",
            "rules:\n  - { a: 1, a: 2 }\n",
            "rules:\n  - !x a\n",
            "%TAG !! tag:x,2000:\n---\nrules:\n  - !!str a\n",
            "rules:\n  - a\n---\nb: 1\n",
            "rules:\n  - a\nrules:\n  - b\n",
            "rules:\r\n  - a\r\n",
            "x: |\n rules:\n  - a\n",
            "--- |\nrules:\n  - a\n",
            "x: 'a\n\nrules:\n\n  - a'\n",
            "rules:\n  - a\n\t- b\n",
            "rules:\n  - >-\n  - b\n",
            "rules:\n  - ? a\n  - b\n",
            "rules:\n  -\n    a\n  - b\n",
            "rules:\n  - a: |+2 # x\n\n  # y\n  - b\n",
        ] {
            assert!(!is_parsed_in_parts(text, 1), "{text}");
        }
    }

    #[test]
    fn random_texts_are_parsed_in_parts_as_a_whole_or_not_at_all() {
        const LINES: [&str; 44] = [
            "rules:\n",
            "rules:\n",
            "x: 1\n",
            "y:\n",
            "z: |\n",
            "  - a\n",
            "  - a\n",
            "  - b: 1\n",
            "    c: 2\n",
            "    - d\n",
            "  - { e: f }\n",
            "- g\n",
            "- h: 1\n",
            "  i: 2\n",
            " - j\n",
            "  - 'k\n",
            "  l'\n",
            "    l'\n",
            "  - \"m\n",
            "    n\"\n",
            "  - [o,\n",
            "  p]\n",
            "    p]\n",
            "  - |\n",
            "  - >-\n",
            "  - |+\n",
            "    q\n",
            "      r\n",
            "\n",
            "\n",
            "# s\n",
            "  # t\n",
            "      # u\n",
            "  -\n",
            "-\n",
            "---\n",
            "...\n",
            "  - ? v\n",
            "    : w\n",
            "  - &a x\n",
            "  - *a\n",
            "  - - y\n",
            "  - !!str 1.0\n",
            "\t- z\n",
        ];
        let mut random = fastrand::Rng::with_seed(21);
        let mut in_parts = 0;
        for _ in 0..20_000 {
            let mut text = String::new();
            if random.bool() {
                text.push_str("rules:\n");
            }
            for _ in 0..random.usize(1..10) {
                text.push_str(LINES[random.usize(..LINES.len())]);
            }
            if random.u8(..8) == 0 {
                text.pop();
            }
            in_parts += usize::from(is_parsed_in_parts(&text, random.usize(1..4)));
        }
        assert!(in_parts > 500, "{in_parts}");
    }
}
