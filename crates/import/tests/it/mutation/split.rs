//! The rules of a source: what can be taken away from a file of each format.

use std::ops::Range;

/// The unit that is a rule in a file.
#[derive(Clone, Copy)]
enum RuleUnit {
    /// A line that is no comment.
    Line,
    /// An element with what is in it, but for the root.
    Element,
    /// An item of a list or a member of a map, of JSON.
    Item,
    /// A line with those that are indented below it, or that its brackets include.
    Block,
    /// A word of a command.
    Word,
}

/// The units of files by the ends of their names. All others consist of lines.
const UNITS: [(&str, RuleUnit); 8] = [
    (".xml", RuleUnit::Element),
    (".cxml", RuleUnit::Element),
    (".cwp", RuleUnit::Element),
    (".json", RuleUnit::Item),
    (".yaml", RuleUnit::Block),
    (".yml", RuleUnit::Block),
    (".py", RuleUnit::Block),
    (".sh", RuleUnit::Word),
];

/// Returns the places of the rules in a text.
pub(super) fn rules(path: &str, text: &str) -> Vec<Range<usize>> {
    let unit = UNITS.iter().find(|(end, _)| path.ends_with(end));
    match unit.map_or(RuleUnit::Line, |(_, unit)| *unit) {
        RuleUnit::Line => lines(text)
            .filter(|line| is_rule(&text[line.clone()]))
            .collect(),
        RuleUnit::Element => elements(text),
        RuleUnit::Item => items(text),
        RuleUnit::Block => blocks(text),
        RuleUnit::Word => words(text),
    }
}

fn is_rule(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with(['#', '!', ';', '['])
}

fn lines(text: &str) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    text.split_inclusive('\n').map(move |line| {
        let place = start..start + line.len();
        start = place.end;
        place
    })
}

/// Returns the elements of XML, found by their tags.
fn elements(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut open = Vec::new();
    let mut at = 0;
    while let Some(start) = text[at..].find('<').map(|offset| at + offset) {
        let rest = &text[start..];
        let end_of =
            |mark: &str| start + rest.find(mark).map_or(rest.len(), |end| end + mark.len());
        at = if rest.starts_with("<!--") {
            end_of("-->")
        } else if rest.starts_with("<![CDATA[") {
            end_of("]]>")
        } else {
            end_of(">")
        };
        let tag = &text[start..at];
        if tag.starts_with("</") {
            let begin = open.pop().unwrap();
            found.push(begin..at);
        } else if tag.ends_with("/>") {
            found.push(start..at);
        } else if !tag.starts_with("<!") && !tag.starts_with("<?") {
            open.push(start);
        }
    }
    // The last one that ends is the root.
    found.pop();
    found
}

/// Returns the items of lists and the members of maps in JSON, each with a comma beside it.
fn items(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut open = Vec::new();
    let mut in_text = false;
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'{' | b'[' => open.push((at + 1, false)),
            b'}' | b']' => {
                let (start, after_comma) = open.pop().unwrap();
                if !text[start..at].trim().is_empty() {
                    // The last item goes with the comma before it.
                    found.push(start - usize::from(after_comma)..at);
                }
            }
            b',' => {
                let (start, after_comma) = open.last_mut().unwrap();
                found.push(*start..at + 1);
                (*start, *after_comma) = (at + 1, true);
            }
            _ => {}
        }
    }
    found
}

/// Returns the lines that are no comments, each with those that are part of it.
fn blocks(text: &str) -> Vec<Range<usize>> {
    let lines: Vec<Range<usize>> = lines(text).collect();
    let indent = |line: &Range<usize>| {
        let line = &text[line.clone()];
        line.len() - line.trim_start().len()
    };
    let mut found = Vec::new();
    for (number, first) in lines.iter().enumerate() {
        let start = text[first.clone()].trim();
        if !is_rule(start) || start.starts_with([')', ']', '}']) || start == "---" {
            continue;
        }
        let mut place = first.clone();
        for line in &lines[number + 1..] {
            let rest = text[line.clone()].trim();
            let is_below = rest.is_empty() || indent(line) > indent(first);
            let is_item = indent(line) == indent(first)
                && rest.starts_with("- ")
                && !start.starts_with("- ")
                && start.ends_with(':');
            if !is_below && !is_item && is_balanced(&text[place.clone()]) {
                break;
            }
            place.end = line.end;
        }
        found.push(place);
    }
    found
}

fn is_balanced(text: &str) -> bool {
    let count = |brackets: [char; 3]| text.matches(brackets).count();
    count(['(', '[', '{']) <= count([')', ']', '}'])
}

/// Returns the words of the lines of a command that are no comments.
fn words(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for line in lines(text).filter(|line| is_rule(&text[line.clone()])) {
        let mut quote = None;
        let mut start = None;
        for at in line.clone().chain([line.end]) {
            let byte = if at < line.end {
                text.as_bytes()[at]
            } else {
                b' '
            };
            if quote.is_none() && byte.is_ascii_whitespace() {
                found.extend(start.take().map(|start| start..at));
                continue;
            }
            start = start.or(Some(at));
            match (quote, byte) {
                (None, b'\'' | b'"') => quote = Some(byte),
                (Some(open), _) if open == byte => quote = None,
                _ => {}
            }
        }
    }
    found.retain(|word| !matches!(&text[word.clone()], "\\" | "wget"));
    found
}
