//! The reader of assertions about sets of URLs, which are items of `cases`.

use serde_json::{Value as Json, json};

use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::policy::cases::{AssertedClaim, CaseAssertion};
use crate::policy::exact::{self, WantedVerdict};
use crate::urls::target::canonical_host;
use crate::yaml::Node;
use crate::yaml::read::{self, MapReader, wrong_type};

use super::key::{Key, properties};

const ASSERT: Key = Key::words(
    "assert",
    &["never", "always"],
    None,
    "If `never`, no URL of the set gets the verdict; if `always`, each does.",
);
const VERDICT: Key = Key::schema("verdict", verdict_schema, "The verdict.");
const RULE: Key = Key::definition(
    "rule",
    "text",
    "With `never`: only verdicts that this rule decides.",
);
const UNDER: Key = Key::definition(
    "under",
    "text",
    "The beginning of the URLs; by default all.",
);
const HOST: Key = Key::definition(
    "host",
    "text",
    "The host of the URLs, with every scheme and port, instead of `under`.",
);
const CRAWLER: Key = Key::definition("crawler", "text", "The crawler; by default all.");

/// Returns the JSON Schema of an assertion.
pub(super) fn json_schema() -> Json {
    json!({
        "description": "An assertion about all URLs of a set, which is proved or refuted.",
        "type": "object",
        "additionalProperties": false,
        "required": [ASSERT.name, VERDICT.name],
        "properties": properties([&ASSERT, &VERDICT, &RULE, &UNDER, &HOST, &CRAWLER]),
    })
}

fn verdict_schema() -> Json {
    json!({ "enum": WantedVerdict::ALL.map(WantedVerdict::as_str) })
}

/// Returns `true` if an item of `cases` is an assertion.
pub(super) fn is_assertion(node: &Node) -> bool {
    node.get(ASSERT.name).is_some()
}

/// Reads an assertion; `None` if it has errors, which were reported.
pub(super) fn read_assertion(node: &Node, problems: &mut Problems) -> Option<CaseAssertion> {
    let before = problems.len();
    let mut map = MapReader::open(node, "an assertion", problems)?;
    let word = ASSERT.read_word(&mut map, problems);
    let verdict = map
        .require(VERDICT.name, problems)
        .and_then(|node| read::enum_word(node, problems));
    let rule = map.take(RULE.name);
    let under = map
        .take(UNDER.name)
        .and_then(|node| read_under(node, problems));
    let host = map.take(HOST.name);
    if let (Some(_), Some(node)) = (under, host) {
        let message = "`host` and `under` exclude each other";
        problems.push(
            Problem::error(&node.place, message)
                .with_help("leave `host` out: `under` begins with a host"),
        );
    }
    let host = host.and_then(|node| read_host(node, problems));
    let crawler = map
        .take(CRAWLER.name)
        .and_then(|node| read::spelling(node, problems));
    map.finish(problems);
    let verdict = verdict?;
    let claim =
        match (word?, rule) {
            ("always", Some(node)) => {
                let message = "`rule` is only for `assert: never`";
                problems.push(Problem::error(&node.place, message).with_help(
                    "leave it out: `always` asserts the verdict, whichever rule decides",
                ));
                return None;
            }
            ("always", None) => AssertedClaim::Always(verdict),
            (_, rule) => AssertedClaim::Never {
                verdict,
                rule: rule
                    .and_then(|node| read::spelling(node, problems))
                    .map(Into::into),
            },
        };
    (problems.len() == before).then(|| CaseAssertion {
        place: node.place.clone(),
        claim,
        under: under.map(Into::into),
        host: host.map(Into::into),
        crawler: crawler.map(Into::into),
    })
}

/// Reads a host, in its canonical form.
fn read_host(node: &Node, problems: &mut Problems) -> Option<String> {
    let text = read::spelling(node, problems)?;
    match canonical_host(text) {
        Ok(host) => Some(host),
        Err(error) => {
            let problem = Problem::error(&node.place, error.to_string());
            problems.push(problem.with_help("write a host, such as `www.example.com`"));
            None
        }
    }
}

/// Reads the beginning of URLs. An assertion about no URL would always hold.
fn read_under<'n>(node: &'n Node, problems: &mut Problems) -> Option<&'n str> {
    let text = read::spelling(node, problems)?;
    if exact::is_url_beginning(text) {
        return Some(text);
    }
    let problem = wrong_type(node, "no URL begins with this");
    problems.push(
        problem
            .with_help("write the beginning of a URL, such as `http://www.example.com/private/`"),
    );
    None
}
