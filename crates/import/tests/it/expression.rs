//! Expressions of the dialects: what they become, and that it fits the same texts.

use crawlgate_import::internal::draft::{ConditionDraft, OptionDrafts, PolicyDraft, RuleDraft};
use crawlgate_import::internal::expression::{Anchoring, Dialect, SourceExpression};
use crawlgate_import::internal::reference::expression::OriginalExpression;
use crawlgate_policy::MemoryFileSystem;
use crawlgate_policy::internal::policy::Policy;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use crawlgate_policy::internal::policy::compile;

use super::support::REQUESTS;

/// Writes a condition on one line.
fn show(condition: &ConditionDraft) -> String {
    let list = |name: &str, parts: &[ConditionDraft]| {
        let parts: Vec<String> = parts.iter().map(show).collect();
        format!("{name}[{}]", parts.join("; "))
    };
    match condition {
        ConditionDraft::Always => "always".to_owned(),
        ConditionDraft::All(parts) => list("all", parts),
        ConditionDraft::Any(parts) => list("any", parts),
        ConditionDraft::Not(part) => format!("not {}", show(part)),
        ConditionDraft::Test(test) => {
            let kind = test.kind.unwrap_or("is");
            let case = if test.ignore_case { " (case)" } else { "" };
            format!("{} {kind} {}{case}", test.field, test.values.join(" "))
        }
    }
}

fn translate(
    text: &str,
    dialect: Dialect,
    anchoring: Anchoring,
    ignore_case: bool,
    field: &str,
) -> String {
    let expression = SourceExpression {
        text,
        dialect,
        anchoring,
        ignore_case,
    };
    match expression.translate(field) {
        Ok(translated) => {
            let assumption = translated
                .assumption
                .map(|(text, effect)| format!(" | {effect:?}: {text}"));
            show(&translated.condition) + &assumption.unwrap_or_default()
        }
        Err(why) => format!("error: {why}"),
    }
}

const SEARCH: Anchoring = Anchoring::Search;
const WHOLE: Anchoring = Anchoring::Whole;

fn wrong_rows(dialect: Dialect, table: &[Row]) -> String {
    let mut wrong = String::new();
    for (text, anchoring, field, expected) in table {
        let found = translate(text, dialect, *anchoring, false, field);
        if found != *expected {
            wrong.push_str(&format!(
                "{dialect:?}: {text}\n  expected {expected}\n  found    {found}\n"
            ));
        }
    }
    wrong
}

type Row = (&'static str, Anchoring, &'static str, &'static str);

const JAVA: &[Row] = &[
    (
        r"\.(?:gif|GIF)$",
        SEARCH,
        "url",
        r"url regex \.(?:gif|GIF)$",
    ),
    (r"[?*!@=]", SEARCH, "url", "url regex [?*!@=]"),
    (
        r"^https?://([a-z0-9]*\.)*example\.com/",
        SEARCH,
        "url",
        r"url regex ^https?://([a-z0-9]*\.)*example\.com/",
    ),
    (r".*\.pdf", WHOLE, "path", "path suffix .pdf"),
    (r"/calendar/", SEARCH, "path", "path contains /calendar/"),
    (r"^/news/", SEARCH, "path", "path is /news/"),
    (r"(?i)\.(gif|jpe)$", SEARCH, "path", "ext is gif jpe"),
    (
        r"\Qhttp://h.example/a?b\E.*",
        WHOLE,
        "url",
        r"url regex ^http://h\.example/a\?b",
    ),
    (r"a\d\w\s", SEARCH, "url", r"url regex a\d\w\s"),
    (
        r"a\d\W\b",
        SEARCH,
        "title",
        r"title regex a[0-9][^0-9A-Za-z_](?-u:\b)",
    ),
    (r"a(?i)b1(?-i)c", SEARCH, "url", "url regex a(?i:b)1c"),
    (r"(?i)ab", SEARCH, "url", "url contains ab (case)"),
    (
        r"^(?!/private)/.*",
        SEARCH,
        "path",
        "all[path is /; not path is /private]",
    ),
    (
        r"^(?=.*a)(?!.*b).*$",
        SEARCH,
        "path",
        "all[path contains a; not path contains b]",
    ),
    (
        r"^https?://(?!www\.)[^/]+/",
        SEARCH,
        "url",
        r"all[url regex ^https?://[^/]+/; not url regex ^https?://www\.]",
    ),
    (r"^(?:(?!foo).)*$", SEARCH, "path", "not path contains foo"),
    (
        r"^(?:http|https)://(?!a\.)",
        SEARCH,
        "url",
        r"any[all[url regex ^http://; not url regex ^http://a\.]; all[url regex ^https://; not url regex ^https://a\.]]",
    ),
    (r".*(?<!\.html)", WHOLE, "path", "not path suffix .html"),
    (r"(?<!x)foo", SEARCH, "path", "path regex (?:^|[^x])foo"),
    (
        r"foo(?!bar)",
        SEARCH,
        "path",
        "path regex foo(?:$|[^b]|b(?:$|[^a]|a(?:$|[^r])))",
    ),
    (r"foo(?=bar)", SEARCH, "path", "path contains foobar"),
    (
        r"a(?!b)c.*d",
        SEARCH,
        "path",
        "error: look-around in the middle of an expression has no equal in a policy",
    ),
    (r"[^/]++/x", SEARCH, "path", "path regex [^/]+/x"),
    (
        r"(?>a|ab)c",
        SEARCH,
        "path",
        "path regex (?:a|ab)c | RefusesMore: a possessive or atomic part may give back what it fits",
    ),
    (
        r".*(/[^/]+)/[^/]+\1/[^/]+\1/",
        SEARCH,
        "url",
        "path repeats [3:] | RefusesMore: a segment that occurs 3 times or more anywhere in the path is meant; one that is repeated in the host or the query is not",
    ),
    (
        r"/(.*?/)\1{2,}",
        SEARCH,
        "url",
        "path repeats [3:] | RefusesMore: a segment that occurs 3 times or more anywhere in the path is meant; one that is repeated in the host or the query is not",
    ),
    (
        r"(/[^/]+)\1",
        SEARCH,
        "url",
        "error: a back-reference has no equal in a policy's expressions, which match in linear time",
    ),
    (
        r"^http://h\.example(/[^/]+)\1/",
        SEARCH,
        "url",
        r"all[url regex ^http://h\.example(/[^/]+)(?:/[^/]+)/; path repeats [2:]] | RefusesMore: a segment that occurs 2 times or more anywhere in the path is meant; one that is repeated in the host or the query is not",
    ),
    (r"(a|b)x\1", SEARCH, "path", "path regex axa|bxb"),
    (
        r"(\w+)=\1",
        SEARCH,
        "url",
        "error: a back-reference has no equal in a policy's expressions, which match in linear time",
    ),
    (
        r"[a-z&&[^aeiou]]x",
        SEARCH,
        "path",
        "path regex [[a-z]&&[^aeiou]]x",
    ),
    (r"a\Z", SEARCH, "path", "path suffix a"),
    (
        r"a\z|b\h\R",
        SEARCH,
        "path",
        r"path regex a$|b[\t \x{A0}\x{1680}\x{180E}\x{2000}-\x{200A}\x{202F}\x{205F}\x{3000}](?:\r\n|[\n\x{B}\x{C}\r\x{85}\x{2028}\x{2029}])",
    ),
    (
        r"x{",
        SEARCH,
        "path",
        "error: not a valid Java expression: `{` without a number, which must be escaped at character 2",
    ),
    (
        r"\p{Alpha}\p{IsGreek}\p{L}",
        SEARCH,
        "title",
        r"title regex [[:alpha:]]\p{Greek}\p{L}",
    ),
    (
        r"ads.example.com",
        SEARCH,
        "url",
        "url regex ads.{1}example.{1}com",
    ),
    (
        r"^http://([A-Za-z]*\.)*X/",
        SEARCH,
        "url",
        r"url regex ^http://([a-z]*\.)*x/ | Either: a host in capital letters means the same in small ones, as a policy compares it",
    ),
    (r".", SEARCH, "url", "always"),
    (r".*", WHOLE, "url", "always"),
    (
        r"(^|\.)example\.com$",
        SEARCH,
        "host",
        "domain is example.com",
    ),
    (
        r"www\.example\.com",
        WHOLE,
        "host",
        "host is www.example.com",
    ),
    (
        r"^text/html$",
        SEARCH,
        "content_type",
        "content_type is text/html",
    ),
    (r"(?x) a b # c", SEARCH, "path", "path contains ab"),
    (
        r"a{1000}{1000}",
        SEARCH,
        "path",
        "error: not a valid Java expression: a quantifier that has nothing to repeat at character 14",
    ),
    (
        r"\w{1000}\W{1000}\pL{500}",
        SEARCH,
        "path",
        "error: it takes more than 2 MiB when compiled",
    ),
];

const DOTNET: &[Row] = &[
    (
        r"[a-z-[aeiou]]x",
        SEARCH,
        "path",
        "path regex [[a-z]--[aeiou]]x",
    ),
    (
        r"(?<n>a{x)[[]\ca",
        SEARCH,
        "path",
        r##"path regex (a\{x)[\[]\x{1} | Either: a space, `#`, `"`, `\` and other characters that URLs have percent-encoded mean that form, too"##,
    ),
    (r"(?'q'a)\k<q>", SEARCH, "path", "path contains aa"),
    (r"(?#c)a\w", SEARCH, "title", r"title regex a\w"),
    (
        r"a++",
        SEARCH,
        "path",
        "error: not a valid .NET expression: a quantifier that has nothing to repeat at character 4",
    ),
];

const PYTHON: &[Row] = &[
    (
        r"(?P<n>a|b)(?P=n)",
        SEARCH,
        "path",
        "error: a back-reference by name in a group, or recursion has no equal in a policy's expressions",
    ),
    (r"a{,2}b\Z", SEARCH, "path", "path regex a{0,2}b$"),
    (r"(?i)a", SEARCH, "path", "path contains a (case)"),
    (
        r"a(?i)",
        SEARCH,
        "path",
        "error: not a valid Python expression: flags that are not at the beginning at character 6",
    ),
    (
        r"a{b}",
        SEARCH,
        "path",
        r##"path regex a\{b\} | Either: a space, `#`, `"`, `\` and other characters that URLs have percent-encoded mean that form, too"##,
    ),
    (r"[[]\-", SEARCH, "path", r"path regex [\[]-"),
    (r"\w", SEARCH, "title", r"title regex \w"),
    (r"(?a)\w", SEARCH, "title", "title regex [0-9A-Za-z_]"),
];

const JAVASCRIPT: &[Row] = &[
    (r"\/a\-b$", SEARCH, "path", "path suffix /a-b"),
    (
        r"[^]a|[]",
        SEARCH,
        "path",
        r"path regex [\x{0}-\x{10FFFF}]a|[^\x{0}-\x{10FFFF}]",
    ),
    (r"\d", SEARCH, "title", "title regex [0-9]"),
    (
        r"a{",
        SEARCH,
        "path",
        r##"path regex a\{ | Either: a space, `#`, `"`, `\` and other characters that URLs have percent-encoded mean that form, too"##,
    ),
    (
        r"^(?!.*\.(?:jpg|png)$)",
        SEARCH,
        "path",
        r"not path regex \.(?:jpg|png)$",
    ),
];

const POSIX: &[Row] = &[
    (
        r"[]a\]",
        SEARCH,
        "path",
        r##"path regex [\]a\\] | Either: a space, `#`, `"`, `\` and other characters that URLs have percent-encoded mean that form, too"##,
    ),
    (r"[[:alpha:]_]", SEARCH, "path", "path regex [[:alpha:]_]"),
    (r"\<a\>", SEARCH, "path", r"path regex \b{start}a\b{end}"),
    (r"a)", SEARCH, "path", r"path regex a\)"),
    (
        r"\d",
        SEARCH,
        "path",
        "path contains d | Either: `\\d` is the letter d, as in GNU's library, not a digit",
    ),
    (r"a+?", SEARCH, "path", "path regex (?:a+)?"),
];

const PCRE: &[Row] = &[
    (
        r"\Qa.b\E\h",
        SEARCH,
        "title",
        r"title regex a\.b[\t \x{A0}\x{1680}\x{180E}\x{2000}-\x{200A}\x{202F}\x{205F}\x{3000}]",
    ),
    (r"(?<a>x|y)\g{a}", SEARCH, "path", "path regex xx|yy"),
    (
        r"(a(?R)?b)",
        SEARCH,
        "path",
        "error: recursion has no equal in a policy's expressions",
    ),
    (r"x\N", SEARCH, "path", r"path regex x[^\n]"),
];

const AUTOMATON: &[Row] = &[
    (r".*\.gif", WHOLE, "url", "url suffix .gif"),
    (
        r"http://@&~(@foo@)",
        WHOLE,
        "url",
        "all[url regex ^http://; not url contains foo]",
    ),
    (r"^a$", WHOLE, "url", r"url regex ^\^a\$$"),
    (
        r#"("a.b"|c)<01-03>"#,
        WHOLE,
        "path",
        r"path regex ^(a\.b|c)(01|02|03)$",
    ),
    (r"\d+", WHOLE, "path", "path regex ^d+$"),
    (r"a#", WHOLE, "path", r"path regex ^a[^\x{0}-\x{10FFFF}]$"),
];

#[test]
fn expressions_become_conditions() {
    let tables = [
        (Dialect::Java, JAVA),
        (Dialect::DotNet, DOTNET),
        (Dialect::Python, PYTHON),
        (Dialect::JavaScript, JAVASCRIPT),
        (Dialect::Posix, POSIX),
        (Dialect::Pcre, PCRE),
        (Dialect::Automaton, AUTOMATON),
    ];
    let wrong = tables.map(|(dialect, table)| wrong_rows(dialect, table));
    assert_eq!(wrong.concat(), "");
}

/// Compiles a policy that refuses what fits the condition.
fn policy_of(condition: &ConditionDraft) -> Policy {
    let mut options = OptionDrafts::default();
    options.set("disposition", "allow");
    let mut draft = PolicyDraft::default();
    draft.name = "test".to_owned();
    draft.options = options;
    let rule = RuleDraft::when("x", condition.clone(), "disallow");
    draft.rules.push(rule.into());
    let text = draft.to_files()["policy.yaml"].clone();
    let files = MemoryFileSystem::new().with_file("policy.yaml", text.as_bytes());
    match compile::load(&files, "policy.yaml") {
        Ok(compiled) => compiled.policy,
        Err(problems) => panic!("{problems:?}\n{text}"),
    }
}

struct RandomExpression {
    random: fastrand::Rng,
    dialect: Dialect,
    groups: usize,
}

impl RandomExpression {
    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.random.usize(..from.len())]
    }

    fn atom(&mut self, depth: usize) -> String {
        use Dialect::{Automaton, DotNet, Java, JavaScript, Pcre, Posix, Python};
        let common = [
            "a", "b", "/", "-", "0", ".", "[ab]", "[^/]", "[a-c0]", "ab", "/a/", "[b-]", "A",
        ];
        let perl = [
            r"\d", r"\w", r"\W", r"\.", r"[\d/]", r"[^\w]", r"\x61", r"(?:a|b)",
        ];
        match self.random.usize(..12) {
            0..6 => self.pick(&common).to_owned(),
            6 => match self.dialect {
                Java => self.pick(&[r"\Qa.\E", r"[a-c&&[^b]]", r"\p{Alpha}", r"[a[b/]]", r"\h"]),
                DotNet => self.pick(&["[a-c-[b]]", "(?#x)", "[[]", "a{b"]),
                Python => self.pick(&["[[]", "a{,2}", "b{x"]),
                JavaScript => self.pick(&["[^]", r"\-", "b{x", "[[]"]),
                Posix => self.pick(&["[[:alpha:]]", "[]a]", r"\<", r"\>", "[a\\]", ")"]),
                Pcre => self.pick(&["[[:digit:]]", r"\Q-\E", r"\N", "[]a]"]),
                Automaton => self.pick(&["@", "#", "\"a/\"", "<0-3>", "()", r"\-"]),
            }
            .to_owned(),
            7..9 if !matches!(self.dialect, Automaton | Posix) => self.pick(&perl).to_owned(),
            9 if self.groups > 0 && self.random.usize(..4) == 0 && self.dialect != Automaton => {
                format!(r"\{}", 1 + self.random.usize(..self.groups.min(3)))
            }
            _ if depth > 0 => {
                let inner = self.alternatives(depth - 1);
                self.groups += 1;
                format!("({inner})")
            }
            _ => "a".to_owned(),
        }
    }

    fn sequence(&mut self, depth: usize) -> String {
        let mut text = String::new();
        for _ in 0..1 + self.random.usize(..4) {
            if self.random.usize(..9) == 0
                && !matches!(self.dialect, Dialect::Posix | Dialect::Automaton)
            {
                let start = self.pick(&["(?=", "(?!", "(?!", "(?<=", "(?<!"]);
                let start = start.to_owned();
                let inner = if start.contains('<') {
                    self.pick(&["a", "b", "/", "ab", "[ab]"]).to_owned()
                } else {
                    self.alternatives(0)
                };
                text.push_str(&format!("{start}{inner})"));
                continue;
            }
            text.push_str(&self.atom(depth));
            if self.random.usize(..3) == 0 {
                text.push_str(self.pick(&["*", "+", "?", "{2}", "{1,2}"]));
                let java_like = matches!(
                    self.dialect,
                    Dialect::Java | Dialect::Pcre | Dialect::Python
                );
                if java_like && self.random.usize(..6) == 0 {
                    text.push_str(self.pick(&["+", "?"]));
                }
            }
        }
        text
    }

    fn alternatives(&mut self, depth: usize) -> String {
        let mut text = self.sequence(depth);
        if self.random.usize(..4) == 0 {
            text.push('|');
            text.push_str(&self.sequence(depth));
        }
        if self.dialect == Dialect::Automaton && self.random.usize(..5) == 0 {
            let other = self.sequence(depth);
            text.push_str(&format!("&~({other})"));
        }
        text
    }

    fn expression(&mut self) -> String {
        self.groups = 0;
        let mut text = self.alternatives(2);
        if self.dialect != Dialect::Automaton {
            match self.random.usize(..6) {
                0 | 1 => text.insert(0, '^'),
                2 => text = format!("^(?:{text})"),
                3 => {
                    text = format!(
                        "^/a?(?!{}).*{text}",
                        self.pick(&["a", "b/", "[ab]+/", ".*b"])
                    )
                }
                _ => {}
            }
            if self.dialect == Dialect::Posix {
                text = text.replace("(?:", "(").replace("(?!", "(");
            } else if self.random.usize(..8) == 0 {
                text.insert_str(0, "(?i)");
            }
            if self.random.usize(..4) == 0 {
                text.push('$');
            }
        }
        text
    }
}

#[test]
fn translated_expressions_fit_what_the_original_ones_fit() {
    let mut random = RandomExpression {
        random: fastrand::Rng::with_seed(23),
        dialect: Dialect::Java,
        groups: 0,
    };
    for dialect in [
        Dialect::Java,
        Dialect::DotNet,
        Dialect::Python,
        Dialect::JavaScript,
        Dialect::Posix,
        Dialect::Pcre,
        Dialect::Automaton,
    ] {
        random.dialect = dialect;
        let (mut compared, mut refused, mut assumed, mut unknown) = (0, 0, 0, 0);
        for _ in 0..REQUESTS / 20 {
            let text = random.expression();
            let anchoring = [SEARCH, WHOLE, Anchoring::Start][random.random.usize(..3)];
            let ignore_case = random.random.usize(..5) == 0 && dialect != Dialect::Automaton;
            let expression = SourceExpression {
                text: &text,
                dialect,
                anchoring,
                ignore_case,
            };
            let Ok(translated) = expression.translate("path") else {
                refused += 1;
                continue;
            };
            let Ok(original) = OriginalExpression::new(&text, dialect, anchoring, ignore_case)
            else {
                unknown += 1;
                continue;
            };
            if translated.assumption.is_some() {
                assumed += 1;
                continue;
            }
            let policy = policy_of(&translated.condition);
            for _ in 0..50 {
                let length = random.random.usize(..9);
                let path: String = (0..length)
                    .map(|_| ['a', 'b', '/', '-', '0', 'A', 'c'][random.random.usize(..7)])
                    .collect();
                let path = format!("/{path}");
                if path.contains("//") {
                    // A policy also judges what servers make of it.
                    continue;
                }
                let facts = CaseFacts::for_url(&format!("http://h.example{path}")).unwrap();
                let (_, decision) = policy.decide_every_rule(&facts.facts());
                let Some(expected) = original.is_match(&path) else {
                    continue;
                };
                compared += 1;
                assert_eq!(
                    decision.rejects(),
                    expected,
                    "{dialect:?} {anchoring:?} {ignore_case} {text:?} on {path}: {}",
                    show(&translated.condition)
                );
            }
        }
        println!(
            "{dialect:?}: {compared} texts compared, expressions: {refused} not translatable, {assumed} assumed, {unknown} not evaluated"
        );
        assert!(compared > 10_000, "{dialect:?}: {compared}");
    }
}

/// Found in EasyList: a URL has no word characters beyond ASCII, and Unicode's fill the memory of an expression.
#[test]
fn many_copies_of_a_shorthand_are_those_of_ascii() {
    let text = r"\.me\/\w{30,}\/(?:[\w-]\w){30}\.";
    let shown = translate(text, Dialect::JavaScript, SEARCH, true, "url");
    let word = "[0-9A-Za-z_]";
    let expected = format!(r"\.me/{word}{{30,}}/(?:[0-9A-Za-z_-]{word}){{30}}\.");
    assert!(shown.contains(&expected), "{shown}");
    let short = translate(r"\w{2}x", Dialect::JavaScript, SEARCH, true, "url");
    assert!(short.contains(r"\w{2}"), "{short}");
}

/// Neither a translation nor an evaluator panics or takes long, whatever it is given.
#[test]
fn anything_may_be_an_expression() {
    let pieces = [
        "(",
        ")",
        "(?",
        "(?:",
        "(?!",
        "(?<=",
        "(?<!",
        "(?>",
        "(?<n>",
        "[",
        "]",
        "[^",
        "-",
        "&&",
        "[:alpha:]",
        "{",
        "}",
        "{2}",
        "{9,}",
        "{50}",
        "{,3}",
        "\\",
        "\\1",
        "\\Q",
        "\\E",
        "\\p{L}",
        "\\x4",
        "\\k<n>",
        "|",
        "^",
        "$",
        ".",
        "*",
        "+",
        "?",
        "a",
        "/",
        "://",
        "\u{e9}",
        "(?i)",
        "(?-i:",
        "~",
        "&",
        "#",
        "@",
        "<1-3>",
        "\"",
        "\\0",
        "\\u00e9",
        "\\c",
    ];
    let mut random = fastrand::Rng::with_seed(77);
    for _ in 0..REQUESTS {
        let count = random.usize(..14);
        let text: String = (0..count)
            .map(|_| pieces[random.usize(..pieces.len())])
            .collect();
        for dialect in [
            Dialect::Java,
            Dialect::DotNet,
            Dialect::Python,
            Dialect::JavaScript,
            Dialect::Posix,
            Dialect::Pcre,
            Dialect::Automaton,
        ] {
            let expression = SourceExpression {
                text: &text,
                dialect,
                anchoring: SEARCH,
                ignore_case: false,
            };
            let _ = expression.translate("url");
            let _ = expression.translate_for_replacement();
            if let Ok(original) = OriginalExpression::new(&text, dialect, SEARCH, false) {
                let _ = original.is_match("http://a/a/");
            }
        }
    }
    let deep = "(a".repeat(100_000);
    let nested = format!("(a){}", "(?:".repeat(20) + "\\1{50}" + &"){50}".repeat(20));
    for text in [deep, nested, "[".repeat(100_000), "a{99999}".repeat(100)] {
        let _ = translate(&text, Dialect::Java, SEARCH, false, "url");
    }
}
