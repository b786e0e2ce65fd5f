//! One value of a field, and one pattern of any kind: the pattern is compiled or refused, and if it has a simple meaning it
//! matches accordingly.

use crawlgate::model::reason::Reason;
use crawlgate::policy::Policy;
use crawlgate::policy::cases::CaseFacts;
use crawlgate::policy::compile;
use crawlgate::policy::source::MemoryFileSystem;
use serde_json::json;

/// Fields, and the place of the value in the facts.
const FIELDS: [(&str, Given); 25] = [
    ("url", Given::Url("")),
    ("url", Given::Url("http://h.test/")),
    ("host", Given::Url("http://")),
    ("authority", Given::Url("https://")),
    ("path", Given::Url("http://h.test/")),
    ("path", Given::Url("http://h.test/")),
    ("path_and_query", Given::Url("http://h.test/")),
    ("rel_path", Given::Url("http://h.test/")),
    ("rel_path_and_query", Given::Url("http://h.test/")),
    ("authority_path_query", Given::Url("http://h.test/")),
    ("query", Given::Url("http://h.test/?")),
    ("param.x", Given::Url("http://h.test/?a=1&x=")),
    ("method", Given::Fact("method")),
    ("crawler", Given::Fact("crawler")),
    ("referer", Given::Fact("referer")),
    ("content_type", Given::Fact("content_type")),
    ("header.x-a", Given::Header),
    ("license", Given::Fact("license")),
    ("title", Given::Fact("title")),
    ("body_prefix", Given::Fact("body_prefix")),
    ("meta_robots", Given::Fact("meta_robots")),
    ("canonical", Given::Fact("canonical")),
    ("address", Given::Fact("address")),
    ("scheme", Given::Url("")),
    ("", Given::Url("http://")),
];

#[derive(Clone, Copy)]
enum Given {
    /// In a URL, after this prefix.
    Url(&'static str),
    /// In a fact of this name.
    Fact(&'static str),
    /// In the header `X-A`.
    Header,
}

/// Kinds of patterns of a field, and shortcuts without a field.
const KINDS: [&str; 12] = [
    "exact", "prefix", "suffix", "contains", "regex", "glob", "length", "segments", "repeats",
    "params", "cidr", "regex",
];
const SHORTCUTS: [&str; 8] = [
    "domain",
    "ext",
    "under",
    "url_prefix",
    "in_query",
    "site",
    "surt",
    "domain",
];

/// The question: the kind of the pattern, the pattern and the value.
struct Asked<'a> {
    field: &'static str,
    kind: &'static str,
    ignore_case: bool,
    norm: bool,
    pattern: &'a str,
    value: &'a str,
}

/// The first bytes choose field, kind and flags; pattern and value follow, separated by a NUL.
pub(crate) fn run(input: &[u8]) {
    let [field, kind, flags, texts @ ..] = input else {
        return;
    };
    let Ok(texts) = std::str::from_utf8(texts) else {
        return;
    };
    let (pattern, value) = texts.split_once('\0').unwrap_or((texts, texts));
    let (field, given) = FIELDS[usize::from(*field) % FIELDS.len()];
    let kinds = if field.is_empty() {
        &SHORTCUTS[..]
    } else {
        &KINDS[..]
    };
    let kind = kinds[usize::from(*kind) % kinds.len()];
    let asked = Asked {
        field,
        kind,
        ignore_case: flags & 1 != 0,
        norm: flags & 2 != 0,
        pattern,
        value,
    };
    let Some(policy) = compiled(&asked) else {
        return;
    };
    let Some(facts) = facts(given, value) else {
        return;
    };
    let decision = policy.decide(&facts.facts()).1;
    // A URL with two readings is rejected for that if the pattern fits one of them.
    let expected = asked
        .plainly(given, &facts)
        .filter(|_| decision.reason() != Reason::AmbiguousUrl);
    if let Some(expected) = expected {
        assert_eq!(
            decision.rejects(),
            expected,
            "{field} {kind} {pattern:?} on {value:?} ({:?})",
            facts.url()
        );
    }
}

fn compiled(asked: &Asked<'_>) -> Option<Policy> {
    let mut test = json!({ asked.kind: asked.pattern });
    if asked.ignore_case {
        test["case"] = json!("ignore");
    }
    if asked.norm {
        test["norm"] = json!(true);
    }
    let condition = if asked.field.is_empty() {
        test
    } else {
        json!({ asked.field: test })
    };
    let document = json!({
        "policy": 1, "name": "one", "options": { "disposition": "allow" },
        "rules": [{ "id": "it", "forbid": condition }],
    });
    let files = MemoryFileSystem::new().with_file("policy.yaml", document.to_string());
    match compile::load(&files, "policy.yaml") {
        Ok(compiled) => Some(compiled.policy),
        Err(problems) => {
            assert!(problems.iter().any(|problem| problem.is_error()));
            assert!(problems.iter().all(|problem| !problem.render().is_empty()));
            None
        }
    }
}

/// A successful GET, so that type rules evaluate it; `None` if there is no such URL or value.
fn facts(given: Given, value: &str) -> Option<CaseFacts> {
    let mut all = json!({ "url": "http://h.test/", "status": 200, "title": "" });
    match given {
        Given::Url(start) => all["url"] = json!(format!("{start}{value}")),
        Given::Fact(name) => all[name] = json!(value),
        Given::Header => all["headers"] = json!({ "x-a": value }),
    }
    CaseFacts::from_json(all.as_object()?).ok()
}

impl Asked<'_> {
    /// The simple meaning of the pattern for the value; `None` if canonical forms or non-ASCII letters make it more
    /// complicated.
    fn plainly(&self, given: Given, facts: &CaseFacts) -> Option<bool> {
        let ascii = self.pattern.is_ascii() && self.value.is_ascii();
        if self.norm || self.ignore_case && !ascii {
            return None;
        }
        let text = match given {
            Given::Url(_) if is_plain(self.pattern) => part(facts.url(), self.field)?.to_owned(),
            Given::Fact("method" | "crawler" | "referer" | "title" | "body_prefix")
            | Given::Header => self.value.into(),
            Given::Url(_) | Given::Fact(_) => return None,
        };
        self.reads(&text)
    }

    fn reads(&self, text: &str) -> Option<bool> {
        let folded = |text: &str| {
            if self.ignore_case {
                text.to_ascii_lowercase()
            } else {
                text.to_owned()
            }
        };
        let text = folded(text);
        let pattern = folded(self.pattern);
        Some(match self.kind {
            "exact" => text == pattern,
            "prefix" => text.starts_with(&pattern),
            "suffix" => text.ends_with(&pattern),
            "contains" => text.contains(&pattern),
            "glob" => glob(&pattern, &text),
            "length" => text.chars().count() == pattern.parse::<usize>().ok()?,
            "regex" if !self.ignore_case && !pattern.contains('\\') => {
                regex::Regex::new(&pattern).ok()?.is_match(&text)
            }
            _ => return None,
        })
    }
}

/// Characters that no canonical form changes, and no segments of dots.
fn is_plain(pattern: &str) -> bool {
    pattern.chars().all(|c: char| {
        c.is_ascii_lowercase()
            || c.is_ascii_digit()
            || matches!(c, '/' | '-' | '_' | '*' | '=' | '&')
    })
}

/// A part of a canonical URL; `None` of fields whose values have a form of their own.
fn part<'u>(url: &'u str, field: &str) -> Option<&'u str> {
    let (_, rest) = url.split_once("://")?;
    let (_, path) = rest.split_at(rest.find('/')?);
    let (only_path, query) = path.split_once('?').unwrap_or((path, ""));
    Some(match field {
        "path" => only_path,
        "path_and_query" => path,
        "rel_path" => &only_path[1..],
        "rel_path_and_query" => &path[1..],
        "query" => query,
        "authority_path_query" => rest,
        _ => return None,
    })
}

/// `*` is any run, `\*` a star, other characters are literal. Only the last star needs backtracking.
fn glob(pattern: &str, text: &str) -> bool {
    let pattern = tokens(pattern);
    let text = text.chars().collect::<Vec<_>>();
    let mut p = 0;
    let mut t = 0;
    let mut star = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(None) => {
                star = Some((p + 1, t));
                p += 1;
            }
            Some(Some(c)) if *c == text[t] => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((behind, from)) => {
                    star = Some((behind, from + 1));
                    (p, t) = (behind, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(Option::is_none)
}

/// Characters, and `None` for a star.
fn tokens(pattern: &str) -> Vec<Option<char>> {
    let mut tokens = Vec::new();
    let mut rest = pattern.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\\' if rest.next_if_eq(&'*').is_some() => tokens.push(Some('*')),
            '*' => tokens.push(None),
            c => tokens.push(Some(c)),
        }
    }
    tokens
}
