//! Tests of claims that would be wrong: each policy decides about an unusual request.

use serde_json::json;

use crate::policy::cases::CaseFacts;
use crate::policy::compile::{self, CompiledPolicy};
use crate::policy::source::MemoryFileSystem;
use crate::urls::target::UrlTarget;

use super::{
    ExactCheck, ExactDifference, VerdictAnswer, VerdictChanges, VerdictQuery, WantedVerdict,
    find_verdict,
};

fn compile_rules(rules: &str) -> CompiledPolicy {
    compile_document(&format!("rules: [{rules}]"))
}

fn compile_document(parts: &str) -> CompiledPolicy {
    let text = format!("policy: 1\nname: p\noptions: {{ disposition: allow }}\n{parts}\n");
    let files = MemoryFileSystem::new()
        .with_file("p", text)
        .with_file("one.txt", "http://x.example/\n")
        .with_file("two.txt", "http://x.example/\nhttp://y.example/\n");
    compile::load(&files, "p").unwrap_or_else(|problems| panic!("{problems:?}\n{parts}"))
}

/// Asserts that a rule decides about a request, and that no proof says that it cannot.
fn assert_decides(rules: &str, id: &str, facts: serde_json::Value) {
    let compiled = compile_rules(rules);
    let facts = CaseFacts::from_json(facts.as_object().unwrap()).unwrap();
    let (_, decision) = facts.with_facts(|facts| compiled.policy.decide(facts));
    let cause =
        super::verdicts::cause_of(&decision).map(|at| compiled.policy.rules[at].id.as_str());
    assert_eq!(cause, Some(id), "{rules}");
    let check = ExactCheck::new(&compiled);
    let mut claims = check.problems.iter();
    assert!(
        !claims.any(|problem| problem.message.starts_with("can never decide")),
        "{rules}: {:?}",
        check.problems
    );
}

#[test]
fn exact_values_of_parameters_may_contain_an_equals_sign() {
    assert_decides(
        "{ id: a, forbid: { query: { regex: '%3[Dd]' } } }, { id: b, forbid: { param.q: 'a=b' } }",
        "b",
        json!({ "url": "http://x.example/?q=a=b" }),
    );
}

#[test]
fn texts_of_required_fields_may_lead_back_to_the_start() {
    let url = "http://x.example/";
    for (rule, facts) in [
        (
            "method: { regex: '[GH]' }",
            json!({ "url": url, "method": "POST" }),
        ),
        (
            "crawler: { contains: o }",
            json!({ "url": url, "crawler": "bit" }),
        ),
        (
            "crawler: { suffix: s }",
            json!({ "url": url, "crawler": "bit" }),
        ),
        (
            "crawler: { regex: '[aeiou]' }",
            json!({ "url": url, "crawler": "b" }),
        ),
    ] {
        let rules = format!("{{ id: a, forbid: {{ not: {{ {rule} }} }} }}");
        assert_decides(&rules, "a", facts);
        let compiled = compile_rules(&rules);
        let query = VerdictQuery {
            verdict: WantedVerdict::Reject,
            rule: None,
            under: None,
            host: None,
            crawler: None,
        };
        let answer = find_verdict(&compiled.policy, &query);
        assert!(
            matches!(answer, VerdictAnswer::Found(_)),
            "{rules}: {answer:?}"
        );
        let before = compile_rules("");
        let difference = ExactDifference::between(&before.policy, &compiled.policy, &|_| Some(()));
        assert!(!difference.is_equivalent(), "{rules}");
    }
}

#[test]
fn exact_escapes_of_parameters_ignore_case() {
    for (value, other, query) in [
        ("a", "61", "q=%41"),
        ("A", "41", "q=%61"),
        ("o", "6[Ff]", "q=%4f"),
    ] {
        assert_decides(
            &format!(
                "{{ id: a, forbid: {{ query: {{ regex: '=(?i:{value})|%{other}' }} }} }}, \
                 {{ id: b, forbid: {{ param.q: {{ exact: {value}, case: ignore }} }} }}"
            ),
            "b",
            json!({ "url": format!("http://x.example/?{query}") }),
        );
    }
}

#[test]
fn exact_texts_of_documents_may_contain_control_characters() {
    for (pattern, text) in [
        (r"error\n", "error\n"),
        (r"\x00\x01", "\0\u{1}"),
        (r"\x7f", "\u{7f}"),
    ] {
        assert_decides(
            &format!("{{ id: a, forbid: {{ body_prefix: {{ regex: '{pattern}' }} }} }}"),
            "a",
            json!({
                "url": "http://x.example/", "status": 200, "content_type": "text/html", "body_prefix": text,
            }),
        );
    }
    assert_decides(
        r#"{ id: a, forbid: { body_prefix: { regex: "a\\z" } } }, { id: b, forbid: { body_prefix: { prefix: "a\x01" } } }"#,
        "b",
        json!({
            "url": "http://x.example/", "status": 200, "content_type": "text/html", "body_prefix": "a\u{1}b",
        }),
    );
    assert_decides(
        r#"{ id: a, forbid: { referer: { regex: '^[ -~]*$' } } }, { id: b, forbid: { referer: { contains: a } } }"#,
        "b",
        json!({ "url": "http://x.example/", "referer": "a\t" }),
    );
}

/// A trap or `max_depth` refuses only some of the URLs to which the rule that sets it applies.
#[test]
fn exact_verdicts_distinguish_rules_from_their_options() {
    let policy =
        compile_rules("{ id: r, when: { domain: x.example }, set: { traps: builtin } }").policy;
    let query = VerdictQuery {
        verdict: WantedVerdict::Allow,
        rule: None,
        under: Some("http://x.example/a/a/a"),
        host: None,
        crawler: None,
    };
    let answer = find_verdict(&policy, &query);
    assert!(matches!(answer, VerdictAnswer::Found(_)), "{answer:?}");
}

#[test]
fn exact_counts_may_be_unlimited() {
    assert_decides(
        "{ id: a, forbid: { path: { length: '[18446744073709551615:]' } } }, { id: b, forbid: { path: /b } }",
        "b",
        json!({ "url": "http://x.example/b" }),
    );
}

fn difference(old: &str, new: &str) -> ExactDifference<bool> {
    let [old, new] = [old, new].map(|parts| compile_document(parts).policy);
    ExactDifference::between(&old, &new, &|facts| {
        let [old, new] =
            [&old, &new].map(|policy| facts.with_facts(|facts| policy.decide(facts)).1.rejects());
        (old != new).then_some(new)
    })
}

#[test]
fn a_condition_that_is_known_earlier_is_a_difference() {
    let [before, after] = ["", ", { path: /old }"].map(|more| {
        format!(
            "rules: [{{ id: a, forbid: {{ any: [{{ header.x-a: {{ prefix: '' }} }}{more}] }} }}]"
        )
    });
    assert!(!difference(&before, &after).is_equivalent());
}

#[test]
fn exact_differences_of_conditions_are_found() {
    for (old, new, is_access) in [
        (
            "path: { prefix: /admin, case: ignore }",
            "path: { prefix: /admin }",
            true,
        ),
        (
            "path: { prefix: /admin }",
            "path: { prefix: /admin, case: ignore }",
            false,
        ),
        (
            "path: { exact: '/%7e', norm: true }",
            "path: { exact: '/%7e' }",
            true,
        ),
        (
            "path: { regex: /a, case: ignore }",
            "path: { regex: /a }",
            true,
        ),
        (
            "title: { contains: ['a, b'] }",
            "title: { contains: [a, b] }",
            false,
        ),
        ("url: { in: g, case: ignore }", "url: { in: g }", true),
    ] {
        let [before, after] = [old, new].map(|condition| {
            format!(
                "lists: {{ g: {{ kind: globs, items: ['*/adm*'] }} }}\nrules: [{{ id: a, forbid: {{ {condition} }} }}]"
            )
        });
        let difference = difference(&before, &after);
        assert!(!difference.is_equivalent(), "{old} -> {new}");
        let possible = difference.possible_verdicts();
        let expected = if is_access {
            possible.new_access
        } else {
            possible.new_refusal
        };
        assert!(expected, "{old} -> {new}: {possible:?}");
    }
}

/// The depth of URLs depends on the seeds, which the facts of a request do not show.
#[test]
fn exact_differences_of_seeds_are_not_decided_where_depth_matters() {
    let parts = |seeds: &str, rules: &str| {
        format!("spaces: [{{ name: s, seeds: {seeds} }}]\nrules: [{rules}]")
    };
    for (rules, is_equivalent) in [
        (
            "{ id: a, when: { host: x.example }, set: { max_depth: 3 } }",
            false,
        ),
        ("{ id: a, forbid: { depth: '[4:]' } }", false),
        ("{ id: a, forbid: { path: /a } }", true),
    ] {
        let difference = difference(&parts("two.txt", rules), &parts("one.txt", rules));
        assert_eq!(difference.is_equivalent(), is_equivalent, "{rules}");
        let expected = if is_equivalent {
            VerdictChanges::NONE
        } else {
            VerdictChanges::BOTH
        };
        assert_eq!(difference.possible_verdicts(), expected, "{rules}");
    }
}

/// A host is that of URLs with every scheme and port, of which `under` covers one.
#[test]
fn a_host_is_searched_with_every_scheme_and_port() {
    let rules = "{ id: a, forbid: { url: { prefix: 'http://x.example/' } } }";
    let policy = compile_rules(rules).policy;
    let mut query = VerdictQuery {
        verdict: WantedVerdict::Allow,
        rule: None,
        under: Some("http://x.example/"),
        host: None,
        crawler: None,
    };
    assert!(matches!(
        find_verdict(&policy, &query),
        VerdictAnswer::Never
    ));
    query.under = None;
    query.host = Some("x.example");
    let VerdictAnswer::Found(example) = find_verdict(&policy, &query) else {
        panic!("a hole for https and other ports");
    };
    let url = UrlTarget::parse(&example.url).unwrap();
    assert_eq!(url.host(), "x.example");
    let whole = compile_rules("{ id: a, forbid: { host: x.example } }").policy;
    assert!(matches!(find_verdict(&whole, &query), VerdictAnswer::Never));
    query.host = Some("y.example");
    assert!(matches!(
        find_verdict(&whole, &query),
        VerdictAnswer::Found(_)
    ));
}

/// URLs that are refused only by an option, or because of a reading, are not proved away.
#[test]
fn exact_refusals_by_options_and_readings_are_not_ruled_out() {
    let mut wrong = Vec::new();
    for (rules, under) in [
        (
            "{ id: a, when: { path: /a }, set: { html_only: true } }",
            "http://x.example/",
        ),
        (
            "{ id: a, when: { path: /a }, set: { max_body: 1B } }",
            "http://x.example/",
        ),
        (
            "{ id: a, when: { path: /a }, set: { noindex: reject } }",
            "http://x.example/",
        ),
        (
            "{ id: a, forbid: { under: /a/b } }",
            "http://x.example/a%2F",
        ),
    ] {
        let policy = compile_rules(rules).policy;
        let query = VerdictQuery {
            verdict: WantedVerdict::Reject,
            rule: None,
            under: Some(under),
            host: None,
            crawler: None,
        };
        if let VerdictAnswer::Never = find_verdict(&policy, &query) {
            wrong.push(rules);
        }
    }
    assert_eq!(wrong, [""; 0]);
}
