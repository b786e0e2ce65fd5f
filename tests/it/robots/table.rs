//! The tables of tests/robots: the rule that decides for each URL. Counted separately, printed with `--nocapture`.

use std::fs;

use crawlgate::robots::{RobotsAccess, RobotsFile, normal_form};
use crawlgate::urls::target::UrlTarget;

/// A question of a table.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) name: String,
    pub(crate) body: Vec<u8>,
    pub(crate) agent: String,
    pub(crate) url: String,
    pub(crate) access: RobotsAccess,
    /// The line that decides, if the table names it: 0 means no line.
    line: Option<u32>,
    /// The source of the table has another result.
    pub(crate) differs: bool,
}

impl Question {
    /// The path that is compared with the rules.
    pub(crate) fn path(&self) -> String {
        match self.url.as_str() {
            "" => "/".to_owned(),
            url => UrlTarget::parse(url).unwrap().path_and_query().to_owned(),
        }
    }
}

pub(crate) fn questions(file: &str) -> Vec<Question> {
    let text = fs::read_to_string(format!("tests/robots/{file}.txt")).unwrap();
    let mut name = String::new();
    let mut body = vec![];
    let mut found = vec![];
    for line in text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        match line.split_at(1) {
            ("=", rest) => (name, body) = (rest.trim().to_owned(), vec![]),
            ("|", rest) => body.extend(unescaped(rest.strip_prefix(' ').unwrap_or(rest))),
            _ => found.push(question(&name, &body, line)),
        }
    }
    found
}

fn question(name: &str, body: &[u8], line: &str) -> Question {
    let (line, differs) = match line.split_once(" !") {
        Some((line, _)) => (line, true),
        None => (line, false),
    };
    let words: Vec<&str> = line.split(' ').collect();
    let text = |n: usize| words[n].replace('+', " ").replace("- ", "-");
    fn or_empty(text: String) -> String {
        if text == "-" { String::new() } else { text }
    }
    Question {
        name: name.to_owned(),
        body: body.to_vec(),
        agent: or_empty(text(0)),
        url: or_empty(words[2].to_owned()),
        access: match words[1] {
            "allow" => RobotsAccess::Allow,
            "disallow" => RobotsAccess::Disallow,
            other => panic!("{other} in {line}"),
        },
        line: words
            .get(3)
            .map(|n| if *n == "-" { 0 } else { n.parse().unwrap() }),
        differs,
    }
}

/// `\xNN` and `\r`; a line end, but for `\c`.
fn unescaped(line: &str) -> Vec<u8> {
    let mut out = vec![];
    let mut rest = line;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at + 1..];
        match rest.as_bytes()[0] {
            b'r' => out.push(b'\r'),
            b'x' => out.push(u8::from_str_radix(&rest[1..3], 16).unwrap()),
            b'c' => return out,
            other => panic!("{other} in {line}"),
        }
        rest = &rest[if rest.starts_with('x') { 3 } else { 1 }..];
    }
    out.extend_from_slice(rest.as_bytes());
    out.push(b'\n');
    out
}

fn check(file: &str, at_least: usize) {
    let questions = questions(file);
    let mut wrong = vec![];
    for q in &questions {
        let parsed = RobotsFile::parse(&q.body);
        let path = q.path();
        let ruling = parsed.decide(q.agent.as_str(), &path);
        let line = ruling.deciding_line.as_ref().map_or(0, |cause| cause.line);
        if ruling.access != q.access || q.line.is_some_and(|l| l != line) {
            wrong.push(format!("{}: {} {}: {ruling:?}", q.name, q.agent, q.url));
        }
    }
    let differ = questions.iter().filter(|q| q.differs).count();
    println!(
        "{file}: {} assertions, {differ} of them decided differently on purpose",
        questions.len()
    );
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        questions.len(),
        wrong.join("\n")
    );
    assert!(
        questions.len() >= at_least,
        "{file} has only {}",
        questions.len()
    );
}

#[test]
fn the_published_suite() {
    check("google", 140);
}

#[test]
fn the_standards_examples() {
    check("rfc9309", 50);
}

#[test]
fn cases_of_our_own() {
    check("own", 98);
}

/// `TestMaybeEscapePattern` of the published suite.
#[test]
fn escaped_patterns() {
    let same = "http://www.example.com";
    for (text, normal) in [
        (same, same),
        ("/a/b/c", "/a/b/c"),
        ("á", "%C3%A1"),
        ("%aa", "%AA"),
    ] {
        assert_eq!(normal_form(text.as_bytes()), normal.as_bytes());
    }
}

/// `GoogleOnly_LineTooLong` of the published suite.
#[test]
fn long_lines() {
    fn pad(prefix: &str, key: &str, with: &str) -> String {
        let wanted = 2083 * 8 - prefix.len() - key.len() + 1;
        format!("{prefix}{}", with.repeat(wanted - prefix.len()))
    }
    fn check(body: &str, path: &str, access: RobotsAccess) {
        assert_eq!(
            RobotsFile::parse(body.as_bytes())
                .decide("FooBot", path)
                .access,
            access
        );
    }
    let line = pad("/x/", "disallow: ", "a");
    let body = format!("user-agent: FooBot\ndisallow: {line}/qux\n");
    check(&body, "/fux", RobotsAccess::Allow);
    check(&body, &format!("{line}/fux"), RobotsAccess::Disallow);
    let a = pad("/x/", "allow: ", "a");
    let b = pad("/x/", "allow: ", "b");
    let body = format!("user-agent: FooBot\ndisallow: /\nallow: {a}/qux\nallow: {b}/qux\n");
    check(&body, "/", RobotsAccess::Disallow);
    check(&body, &format!("{a}/qux"), RobotsAccess::Allow);
    check(&body, &format!("{b}/fux"), RobotsAccess::Allow);
}
