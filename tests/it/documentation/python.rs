//! Examples in Python: every name in them is imported, defined or built in. A copy raises no `NameError`.

use std::collections::BTreeSet;
use std::fs;

use super::user_pages;

/// The keywords and built-in names that examples use.
const BUILT_IN: &str = "False None True and as assert async await break class continue def del elif else except \
                        finally for from global if import in is lambda nonlocal not or pass raise return try while \
                        with yield bytes dict float int len list open print range self set str sum super tuple";

/// A token of Python: a name, a punctuation character, or the end of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExampleToken<'t> {
    Name(&'t str),
    Punctuation(char),
    LineEnd,
}

#[test]
fn names_in_python_examples_are_defined() {
    let mut examples = 0;
    for page in user_pages() {
        let text = fs::read_to_string(&page).unwrap();
        let blocks = python_blocks(&text);
        examples += blocks.len();
        let code = blocks.concat();
        let undefined = undefined_names(&code);
        assert!(undefined.is_empty(), "{}: {undefined:?}", page.display());
        for line in text.lines() {
            let is_unmarked = ["    def ", "    async def "].iter().any(|start| {
                line.starts_with(start) && !blocks.iter().any(|block| block.contains(line))
            });
            assert!(!is_unmarked, "{}: not in ```python: {line}", page.display());
        }
    }
    assert!(examples > 3, "{examples} examples");
}

#[test]
fn an_undefined_name_is_found() {
    let example = "import time\nfrom a.b import C as D, E\n\ndef f(self, x, *, y=1):\n    for k, v in x.items():\n        \
                   logging.warning(\"%s logging\", k)  # nothing\n        with D(v, mode='w') as g:\n            \
                   g.write(time.time(), E, y, f, missing)\n    return [n for n in x]\n";
    assert_eq!(undefined_names(example), ["logging", "missing"]);
}

/// Returns the blocks that are marked as Python.
fn python_blocks(text: &str) -> Vec<&str> {
    text.split("```python\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

/// Returns the names that are used and nowhere defined, sorted.
fn undefined_names(text: &str) -> Vec<&str> {
    let tokens = tokens(text);
    let mut defined: BTreeSet<&str> = BUILT_IN.split_whitespace().collect();
    let mut used = BTreeSet::new();
    let mut statement = "";
    let mut parameters = 0;
    for (at, token) in tokens.iter().enumerate() {
        let previous = at
            .checked_sub(1)
            .map_or(ExampleToken::LineEnd, |at| tokens[at]);
        let next = *tokens.get(at + 1).unwrap_or(&ExampleToken::LineEnd);
        if previous == ExampleToken::LineEnd {
            statement = match token {
                ExampleToken::Name(name) => name,
                ExampleToken::Punctuation(_) | ExampleToken::LineEnd => "",
            };
        }
        match token {
            ExampleToken::Punctuation('(') if parameters > 0 || is_definition(&tokens[..at]) => {
                parameters += 1;
            }
            ExampleToken::Punctuation(')') if parameters > 0 => parameters -= 1,
            ExampleToken::Punctuation(_) | ExampleToken::LineEnd => {}
            ExampleToken::Name(name) => {
                let follows = |word| previous == ExampleToken::Name(word);
                let is_assigned = next == ExampleToken::Punctuation('=')
                    && tokens.get(at + 2) != Some(&ExampleToken::Punctuation('='));
                let is_bound = ["def", "class", "as", "for", "import"]
                    .into_iter()
                    .any(follows)
                    || statement == "for" && previous == ExampleToken::Punctuation(',')
                    || statement == "from" && follows_import(&tokens[..at]);
                if previous == ExampleToken::Punctuation('.') || statement == "from" && !is_bound {
                    continue;
                }
                if is_assigned || is_bound || parameters > 0 {
                    defined.insert(name);
                } else {
                    used.insert(*name);
                }
            }
        }
    }
    used.difference(&defined).copied().collect()
}

/// Returns `true` if the tokens end with the name of a function that is defined.
fn is_definition(before: &[ExampleToken<'_>]) -> bool {
    matches!(
        before,
        [.., ExampleToken::Name("def"), ExampleToken::Name(_)]
    )
}

/// Returns `true` if `import` is in the line that the tokens end with.
fn follows_import(before: &[ExampleToken<'_>]) -> bool {
    let line = before
        .rsplit(|token| *token == ExampleToken::LineEnd)
        .next();
    line.unwrap().contains(&ExampleToken::Name("import"))
}

/// Returns the tokens without comments, strings and numbers.
fn tokens(text: &str) -> Vec<ExampleToken<'_>> {
    let mut tokens = vec![];
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' => 2 + rest[1..].find(first).expect("the end of a string"),
            _ if first.is_alphanumeric() || first == '_' => rest
                .find(|c: char| !c.is_alphanumeric() && c != '_')
                .unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at(length);
        rest = after;
        // A letter before a string is a part of it, such as `b` or `f`.
        let is_prefix = first.is_alphabetic() && token.len() == 1 && after.starts_with(['"', '\'']);
        match first {
            '\n' => tokens.push(ExampleToken::LineEnd),
            '#' | '"' | '\'' => {}
            _ if first.is_whitespace() || first.is_ascii_digit() || is_prefix => {}
            _ if first.is_alphabetic() || first == '_' => tokens.push(ExampleToken::Name(token)),
            _ => tokens.push(ExampleToken::Punctuation(first)),
        }
    }
    tokens
}
