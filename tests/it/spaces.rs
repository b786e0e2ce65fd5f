//! Crawl spaces: the rules and options that apply to a crawler, and the codes of refused URLs of the ledger
//! (docs/policy/reference.md, "Crawl spaces").

use crawlgate::model::profile::Profile;
use crawlgate::pipeline::offline_evaluation::OfflineEvaluation;
use crawlgate::policy::Policy;
use crawlgate::policy::cases::CaseFacts;
use crawlgate::policy::compile::load;
use crawlgate::policy::explain::RuleStatus;
use crawlgate::policy::source::MemoryFileSystem;
use serde_json::{Value as Json, json};

use crate::support::policy::compile_policy;

const HEAD: &str = "policy: 1\nname: t\noptions: { disposition: allow }\n";

fn compiled(text: &str) -> Policy {
    compile_policy(text).policy
}

/// Returns the errors of a policy.
fn errors(text: &str) -> String {
    let files = MemoryFileSystem::new().with_file("p.yaml", text);
    let problems = load(&files, "p.yaml").map(|_| ()).unwrap_err();
    problems
        .iter()
        .filter(|p| p.is_error())
        .map(|p| format!("{p}\n"))
        .collect()
}

/// Formats the verdict and the rule, such as `allow`, `reject old` or `reject -`, and the code and intent if there is one.
fn verdict(policy: &Policy, mut facts: Json, url: &str) -> String {
    facts["url"] = json!(url);
    let facts = CaseFacts::from_json(facts.as_object().unwrap()).unwrap();
    let evaluation = OfflineEvaluation::new(policy, &facts, Profile::Generic);
    let answer = evaluation.answer();
    if !evaluation.decision.rejects() {
        return "allow".to_owned();
    }
    let rule = evaluation.rule_id().unwrap_or("-");
    let code = match (answer.code, answer.intent) {
        (Some(code), Some(intent)) => format!(" {code} {}", intent.as_str()),
        _ => String::new(),
    };
    format!("reject {rule}{code}")
}

fn known(crawler: &str) -> Json {
    json!({ "crawler": crawler, "known": true })
}

#[test]
fn the_documents_rules_run_first_then_those_of_the_crawlers_space() {
    let policy = compiled(&format!(
        "{HEAD}rules:
  - {{ id: all, when: {{ under: /a }}, then: disallow, stop: true }}
spaces:
  - name: news
    crawlers: [news-bot, other-bot]
    options: {{ politeness: {{ delay: 7s }}, disposition: disallow-log }}
    rules:
      - {{ id: mine, when: {{ under: /a }}, then: allow }}
      - {{ when: {{ under: /b }}, then: allow }}
  - name: rest
    rules: [{{ id: no-gif, forbid: {{ ext: gif }} }}]
"
    ));
    for (crawler, path, expected) in [
        // A stop in the rules of the document does not skip the rules of the space, which assign later.
        ("news-bot", "/a", "allow"),
        ("other-bot", "/b", "allow"),
        // The options of the space are assigned before all rules.
        ("news-bot", "/c", "reject -"),
        // Crawlers that no space names, and requests without a crawler, are in the space without names.
        ("anybody", "/x.gif", "reject no-gif"),
        ("anonymous", "/x.gif", "reject no-gif"),
        ("news-bot", "/a/x.gif", "allow"),
        ("anybody", "/a", "reject all"),
    ] {
        assert_eq!(
            verdict(
                &policy,
                json!({ "crawler": crawler }),
                &format!("http://h{path}")
            ),
            expected,
            "{crawler} {path}"
        );
    }
    let facts = CaseFacts::from_json(
        json!({ "url": "http://h/c", "crawler": "news-bot" })
            .as_object()
            .unwrap(),
    )
    .unwrap();
    let (trail, decision) = policy.decide(&facts.facts());
    assert!(decision.logged, "disallow-log of the space's options");
    let delay = policy
        .explain_options(&trail)
        .find(|line| line.path == "politeness.delay")
        .unwrap();
    let crawlgate::policy::options::OptionSetter::Space(space) = delay.set_by else {
        panic!("{delay:?}")
    };
    assert_eq!(policy.space_options_path(space), "spaces.news.options");
    let lines: Vec<(String, RuleStatus)> = policy
        .explain_rules(&trail)
        .map(|line| (line.rule.id.to_string(), line.status))
        .collect();
    fn status(lines: &[(String, RuleStatus)], id: &str) -> RuleStatus {
        lines.iter().find(|(name, _)| name == id).unwrap().1
    }
    assert_eq!(
        status(&lines, "spaces.news.rules.2"),
        RuleStatus::NoMatch,
        "a position names its space"
    );
    assert_eq!(
        status(&lines, "no-gif"),
        RuleStatus::Parent,
        "a rule of another space does not run"
    );
}

#[test]
fn without_a_fitting_space_only_the_documents_rules_apply() {
    let policy = compiled(&format!(
        "{HEAD}rules: [{{ id: doc, forbid: {{ ext: gif }} }}]
spaces: [{{ name: news, crawlers: news-bot, rules: [{{ id: mine, forbid: {{ ext: png }} }}] }}]
"
    ));
    for (crawler, file, expected) in [
        ("news-bot", "a.png", "reject mine"),
        ("news-bot", "a.gif", "reject doc"),
        ("x", "a.gif", "reject doc"),
        ("x", "a.png", "allow"),
    ] {
        assert_eq!(
            verdict(
                &policy,
                json!({ "crawler": crawler }),
                &format!("http://h/{file}")
            ),
            expected
        );
    }
}

#[test]
fn tunnels_are_evaluated_in_the_space_of_their_crawler() {
    let policy = compiled(&format!(
        "{HEAD}spaces: [{{ name: news, crawlers: [news-bot], rules: [{{ id: mine, forbid: {{ host: h }} }}] }}]\n"
    ));
    fn tunnel(crawler: &str) -> serde_json::Value {
        json!({ "crawler": crawler, "tunnel": true })
    }
    assert_eq!(
        verdict(&policy, tunnel("news-bot"), "https://h/"),
        "reject mine"
    );
    assert_eq!(verdict(&policy, tunnel("x"), "https://h/"), "allow");
}

/// A crawl space that is in OmniFind's language: `forbid domain old`, `allow domain *.ibm`, `forbid domain *`,
/// `forbid prefix /cgi-bin/`, `allow address 10/8`, `forbid address *`.
fn omnifind(global: &str) -> Policy {
    compiled(&format!(
        "{HEAD}spaces:
  - name: local
    crawlers: [bot]
    rules:
      - match: first
        rules:
          - {{ id: old, forbid: {{ host: old.ibm.test }} }}
          - {{ id: ours, when: {{ domain: ibm.test }} }}
          - {{ id: others, forbid: {{ always: true }} }}
      - {{ id: cgi, forbid: {{ url_prefix: 'http://www.ibm.test/cgi-bin/' }} }}
      - {{ id: ten, require: {{ address: [10.0.0.0/8] }} }}
{global}"
    ))
}

const GLOBAL: &str = "global_space:
  rules:
    - { id: g-secret, when: { host: secret.other.test }, then: ignore }
    - { id: g-other, when: { domain: other.test }, then: allow }
    - { id: g-old, when: { host: old.ibm.test }, then: allow }
    - { id: g-forbid, forbid: { host: forbidden.test } }
    - { id: g-both, when: { domain: forbidden.test }, then: allow }
";

#[test]
fn the_table_of_omnifind() {
    const NONE: &str = "";
    const EMPTY: &str = "global_space: {}\n";
    const NULL: &str = "global_space:\n";
    for (global, url, address, expected) in [
        (GLOBAL, "http://www.ibm.test/a", Some("10.1.1.1"), "allow"),
        // A prefix rule, regardless of the global space.
        (
            GLOBAL,
            "http://www.ibm.test/cgi-bin/x",
            None,
            "reject cgi 760 gone",
        ),
        // An address rule.
        (
            GLOBAL,
            "http://www.ibm.test/a",
            Some("11.1.1.1"),
            "reject ten 760 gone",
        ),
        // Only a domain rule; the global space allows the URL, forbids it, has no rule for it, is empty, is not defined.
        (GLOBAL, "http://old.ibm.test/", None, "reject old 761 keep"),
        (
            GLOBAL,
            "http://secret.other.test/",
            None,
            "reject others 760 gone",
        ),
        (
            GLOBAL,
            "http://forbidden.test/",
            None,
            "reject others 760 gone",
        ),
        (
            GLOBAL,
            "http://a.forbidden.test/",
            None,
            "reject others 761 keep",
        ),
        (GLOBAL, "http://x.test/", None, "reject others 760 gone"),
        (EMPTY, "http://old.ibm.test/", None, "reject old 760 gone"),
        (NULL, "http://old.ibm.test/", None, "reject old 760 gone"),
        (NONE, "http://old.ibm.test/", None, "reject old 760 gone"),
        // The domain rules refuse, and the address rules are evaluated as well.
        (
            GLOBAL,
            "http://a.other.test/",
            Some("10.1.1.1"),
            "reject others 761 keep",
        ),
        (
            GLOBAL,
            "http://a.other.test/",
            Some("11.1.1.1"),
            "reject others 760 gone",
        ),
        (
            GLOBAL,
            "http://a.other.test/",
            None,
            "reject others 761 keep",
        ),
        // The global space never refuses.
        (EMPTY, "http://www.ibm.test/a", Some("10.1.1.1"), "allow"),
    ] {
        let policy = omnifind(global);
        let facts = json!({ "crawler": "bot", "known": true, "address": address });
        assert_eq!(
            verdict(&policy, facts, url),
            expected,
            "{global}{url} {address:?}"
        );
    }
    // A URL that is not in the ledger gets no code.
    assert_eq!(
        verdict(
            &omnifind(GLOBAL),
            json!({ "crawler": "bot" }),
            "http://old.ibm.test/"
        ),
        "reject old deny".trim_end_matches(" deny")
    );
}

#[test]
fn a_policy_without_spaces_has_no_codes() {
    let policy = compiled(&format!(
        "{HEAD}rules: [{{ id: x, forbid: {{ host: h }} }}]\nglobal_space: {{}}\n"
    ));
    assert_eq!(
        verdict(&policy, json!({ "known": true }), "http://h/"),
        "reject x"
    );
}

/// Only a refusal by domain rules gets the code 761.
#[test]
fn rules_about_scheme_host_and_port_are_domain_rules() {
    let allow_all = "global_space: { rules: [{ when: { domain: h.test }, then: allow }] }\n";
    for (rules, expected) in [
        ("[{ id: x, forbid: { host: h.test } }]", 761),
        ("[{ id: x, forbid: { domain: [h.test, i.test] } }]", 761),
        ("[{ id: x, forbid: { authority: h.test, port: 80 } }]", 761),
        ("[{ id: x, forbid: { always: true } }]", 761),
        ("[{ id: x, forbid: { host: h.test, scheme: http } }]", 760),
        ("[{ id: x, forbid: { crawler: anonymous } }]", 760),
        ("[{ id: x, forbid: { under: /a } }]", 760),
        // The conditions of the enclosing groups count.
        (
            "[{ when: { under: /a }, rules: [{ id: x, forbid: { host: h.test } }] }]",
            760,
        ),
        (
            "[{ when: { domain: h.test }, rules: [{ id: x, forbid: { always: true } }] }]",
            761,
        ),
        // In `match: first` a rule that names no fact counts as naming those of its siblings.
        (
            "[{ match: first, rules: [{ when: { under: /b } }, { id: x, forbid: { always: true } }] }]",
            760,
        ),
        (
            "[{ match: first, rules: [{ when: { host: i.test } }, { id: x, forbid: { always: true } }] }]",
            761,
        ),
        // A disposition counts as the rule that last assigned it.
        ("[{ id: x, when: { host: h.test }, then: disallow }]", 761),
        ("[{ id: x, when: { under: /a }, then: disallow }]", 760),
        (
            "[{ when: { under: /a }, then: disallow }, { id: x, when: { host: h.test }, then: disallow }]",
            761,
        ),
        // If filters match, only filters count.
        (
            "[{ when: { under: /a }, then: disallow }, { id: x, forbid: { host: h.test } }]",
            761,
        ),
        // If several filters match, one that is not a domain rule decides.
        (
            "[{ id: x, forbid: { host: h.test } }, { forbid: { under: /a } }]",
            760,
        ),
        // Rules of later stages.
        ("[{ id: x, forbid: { status: 404 } }]", 760),
        ("[{ set: { html_only: true } }]", 760),
    ] {
        let policy = compiled(&format!(
            "{HEAD}spaces: [{{ name: s, rules: {rules} }}]\n{allow_all}"
        ));
        let facts = json!({ "known": true, "status": 404 });
        let facts = if rules.contains("html_only") {
            json!({ "known": true, "content_type": "a/b" })
        } else {
            facts
        };
        let found = verdict(&policy, facts, "http://h.test/a");
        assert!(found.contains(&format!(" {expected} ")), "{rules}: {found}");
    }
}

#[test]
fn the_default_counts_as_a_domain_rule_and_the_documents_rules_as_part_of_every_space() {
    let global = "global_space: { rules: [{ when: { domain: h.test }, then: allow }] }\n";
    let refuses = "policy: 1\nname: t\noptions: { disposition: disallow }\n";
    let policy = compiled(&format!("{refuses}spaces: [{{ name: s }}]\n{global}"));
    assert_eq!(
        verdict(&policy, known("a"), "http://h.test/"),
        "reject - 761 keep"
    );
    let policy = compiled(&format!(
        "{HEAD}spaces: [{{ name: s, options: {{ disposition: disallow }} }}]\n{global}"
    ));
    assert_eq!(
        verdict(&policy, known("a"), "http://h.test/"),
        "reject - 761 keep"
    );
    let policy = compiled(&format!(
        "{HEAD}rules: [{{ id: d, forbid: {{ host: h.test }} }}, {{ id: n, require: {{ address: 10.0.0.0/8 }} }}]\nspaces: [{{ name: s }}]\n{global}"
    ));
    fn at(address: &str) -> serde_json::Value {
        json!({ "known": true, "address": address })
    }
    assert_eq!(
        verdict(&policy, at("10.0.0.1"), "http://h.test/"),
        "reject d 761 keep"
    );
    assert_eq!(
        verdict(&policy, at("11.0.0.1"), "http://h.test/"),
        "reject d 760 gone"
    );
}

#[test]
fn address_groups_that_dispose_count_too() {
    let policy = compiled(&format!(
        "{HEAD}spaces: [{{ name: s, rules: [{{ id: d, when: {{ host: h.test }}, then: disallow }}, {{ id: n, when: {{ address: 11.0.0.0/8 }}, then: disallow }}] }}]
global_space: {{ rules: [{{ when: {{ domain: h.test }}, then: allow }}] }}\n"
    ));
    fn at(address: &str) -> serde_json::Value {
        json!({ "known": true, "address": address })
    }
    assert_eq!(
        verdict(&policy, at("10.0.0.1"), "http://h.test/"),
        "reject d 761 keep"
    );
    assert_eq!(
        verdict(&policy, at("11.0.0.1"), "http://h.test/"),
        "reject d 760 gone"
    );
}

#[test]
fn the_causes_own_intent_wins_and_the_options_does_not() {
    fn spaces(rule: &str, options: &str) -> crawlgate::policy::Policy {
        compiled(&format!(
            "policy: 1\nname: t\noptions: {{ disposition: allow, {options} }}\nspaces: [{{ name: s, rules: [{rule}] }}]\n"
        ))
    }
    for (rule, options, expected) in [
        (
            "{ id: x, forbid: { host: h } }",
            "reject: later",
            "reject x 760 gone",
        ),
        (
            "{ id: x, forbid: { host: h }, reject: later }",
            "reject: deny",
            "reject x 760 later",
        ),
        (
            "{ id: x, when: { host: h }, then: disallow, set: { reject: later } }",
            "reject: deny",
            "reject x 760 gone",
        ),
    ] {
        assert_eq!(
            verdict(&spaces(rule, options), known("a"), "http://h/"),
            expected,
            "{rule}"
        );
    }
}

#[test]
fn other_reasons_have_no_code() {
    let policy = compiled(
        "policy: 1\nname: t\noptions: { disposition: allow, max_depth: 1 }\nspaces: [{ name: s }]\n",
    );
    let facts = CaseFacts::from_json(
        json!({ "url": "http://h/", "known": true, "depth": 2 })
            .as_object()
            .unwrap(),
    )
    .unwrap();
    let evaluation = OfflineEvaluation::new(&policy, &facts, Profile::Generic);
    assert_eq!(evaluation.decision.reason().as_str(), "too_deep");
    assert_eq!(evaluation.answer().code, None);
}

#[test]
fn a_union_allows_what_any_other_space_allows() {
    let policy = compiled(&format!(
        "{HEAD}rules: [{{ id: never, forbid: {{ host: never.test }} }}, {{ forbid: {{ under: /private }} }}]
spaces:
  - {{ name: one, crawlers: [one], rules: [{{ id: mine, require: {{ domain: one.test }} }}] }}
  - name: two
    crawlers: [two]
    rules:
      - {{ id: yours, require: {{ domain: two.test }} }}
      - {{ forbid: {{ under: /x }} }}
  - {{ name: rest, options: {{ disposition: disallow }}, rules: [{{ when: {{ host: rest.test }}, then: allow }}] }}
global_space: union
"
    ));
    for (crawler, url, expected) in [
        ("one", "http://two.test/", "reject mine 761 keep"),
        // Only the domain rules of the other spaces are evaluated.
        ("one", "http://two.test/x", "reject mine 761 keep"),
        ("one", "http://rest.test/", "reject mine 761 keep"),
        ("one", "http://none.test/", "reject mine 760 gone"),
        // The crawler's own space does not count, and the rules of the document must not refuse the URL.
        (
            "two",
            "http://two.test/x",
            "reject spaces.two.rules.2 760 gone",
        ),
        ("one", "http://never.test/", "reject never 760 gone"),
        ("one", "http://two.test/private", "reject rules.2 760 gone"),
        ("anybody", "http://one.test/", "reject - 761 keep"),
    ] {
        assert_eq!(
            verdict(&policy, known(crawler), url),
            expected,
            "{crawler} {url}"
        );
    }
}

#[test]
fn the_rule_of_the_global_space_is_named() {
    let policy = omnifind(GLOBAL);
    for (url, expected) in [
        ("http://old.ibm.test/", Some("g-old")),
        ("http://secret.other.test/", Some("g-secret")),
        ("http://x.test/", None),
    ] {
        let facts = CaseFacts::from_json(
            json!({ "url": url, "crawler": "bot", "known": true })
                .as_object()
                .unwrap(),
        );
        let (trail, decision) = policy.decide(&facts.unwrap().facts());
        let global = decision.exclusion.unwrap().global_rule;
        let matched = policy
            .explain_rules(&trail)
            .filter(|line| line.rule.id.as_str().starts_with("g-"));
        let matched: Vec<&str> = matched
            .filter(|line| line.status == RuleStatus::Matched)
            .map(|line| line.rule.id.as_str())
            .collect();
        assert_eq!(matched, Vec::from_iter(expected), "{url}");
        assert_eq!(
            global.and_then(|rule| policy.rule_id(rule)),
            expected,
            "{url}"
        );
    }
}

#[test]
fn errors_in_spaces_are_load_errors() {
    for (body, expected) in [
        (
            "spaces: [{ name: a, crawlers: [x] }, { name: b, crawlers: [x] }]",
            "a crawler can be in only one space",
        ),
        (
            "spaces: [{ name: a, crawlers: [x, x] }]",
            "a crawler can be in only one space",
        ),
        (
            "spaces: [{ name: a }, { name: b }]",
            "a second space without `crawlers`",
        ),
        (
            "spaces: [{ name: a, crawlers: [x] }, { name: a }]",
            "a space with this name already exists",
        ),
        ("spaces: [{ crawlers: [x] }]", "name"),
        ("spaces: [{ name: A }]", "not a valid space name"),
        (
            "spaces: [{ name: a, crawler: x }]",
            "did you mean `crawlers`",
        ),
        ("spaces: [{ name: a, options: { delay: 1s } }]", "delay"),
        (
            "rules: [{ id: x, forbid: { ext: a } }]\nspaces: [{ name: a, rules: [{ id: x, forbid: { ext: b } }] }]",
            "duplicate id",
        ),
        (
            "global_space: { rules: [{ id: x, forbid: { ext: b } }] }\nspaces: [{ name: a, rules: [{ id: x, forbid: { ext: b } }] }]",
            "duplicate id",
        ),
        (
            "global_space: { rules: [{ when: { under: /a }, then: allow }] }",
            "can contain only domain rules",
        ),
        (
            "global_space: { rules: [{ when: { address: 10.0.0.0/8 }, then: allow }] }",
            "can contain only domain rules",
        ),
        (
            "global_space: { rules: [{ when: { host: h }, rules: [{ forbid: { ext: a } }] }] }",
            "can contain only domain rules",
        ),
        (
            "global_space: { rules: [{ when: { host: h }, then: allow, set: { priority: highest } }] }",
            "can contain only domain rules",
        ),
        ("global_space: unoin", "did you mean `union`"),
        ("global_space: { rule: [] }", "did you mean `rules`"),
    ] {
        let errors = errors(&format!("{HEAD}{body}\n"));
        assert!(errors.contains(expected), "{body}\n{errors}");
    }
}

#[test]
fn files_of_a_directory_join_their_spaces() {
    let files = MemoryFileSystem::new()
        .with_file(
            "p/a.yaml",
            format!("{HEAD}global_space: union\nspaces: [{{ name: one, crawlers: [a] }}]\n"),
        )
        .with_file(
            "p/b.yaml",
            "spaces: [{ name: two, rules: [{ forbid: { ext: gif } }] }]\n",
        );
    let policy = load(&files, "p").unwrap().policy;
    let names: Vec<&str> = policy
        .spaces()
        .all()
        .iter()
        .map(|space| space.name.as_str())
        .collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(policy.rules()[0].id.as_str(), "spaces.two.rules.1");
    let twice = MemoryFileSystem::new()
        .with_file("p/a.yaml", HEAD)
        .with_file("p/b.yaml", "global_space: union\n");
    let problems = load(&twice, "p").map(|_| ()).unwrap_err();
    assert!(
        problems[0].message.contains("only one file"),
        "{}",
        problems[0]
    );
}

/// The crawler selects the space, so its connect options apply even if a rule of the document stops.
#[test]
fn connect_options_may_be_set_in_a_space() {
    compiled(&format!(
        "{HEAD}rules: [{{ when: {{ under: /a }}, then: allow, stop: true }}]
spaces: [{{ name: s, options: {{ tls: tunnel }}, rules: [{{ when: {{ host: h }}, set: {{ tls: intercept }} }}] }}]\n"
    ));
}
