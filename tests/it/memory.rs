//! The ledger settings of a policy: whether it needs a ledger, the URL of the record, and the facts that it looks up.

use std::time::Duration;

use crawlgate::policy::Policy;
use crawlgate::policy::compile::load;
use crawlgate::policy::fact::Facts;
use crawlgate::policy::options::checks::{self, CheckAction};
use crawlgate::policy::options::{recrawl, schema};
use crawlgate::policy::source::MemoryFileSystem;
use crawlgate::policy::trail::Trail;
use crawlgate::urls::target::UrlTarget;

fn opened(body: &str) -> Result<Policy, String> {
    let text = format!("policy: 1\nname: p\n{body}\n");
    let loaded = load(&MemoryFileSystem::new().with_file("p.yaml", text), "p.yaml");
    match loaded {
        Ok(compiled) => Ok(compiled.policy),
        Err(problems) => Err(problems.iter().map(|problem| problem.render()).collect()),
    }
}

fn policy(body: &str) -> Policy {
    opened(body).unwrap_or_else(|problems| panic!("{body}\n{problems}"))
}

fn with_options(options: &str) -> Policy {
    policy(&format!("options: {{ disposition: allow, {options} }}"))
}

fn asked(policy: &Policy, url: &str) -> (UrlTarget, Trail) {
    let target = UrlTarget::parse(url).unwrap();
    let (trail, _) = policy.decide_request(&Facts::for_url(&target));
    (target, trail)
}

#[test]
fn a_policy_with_ledger_conditions_needs_the_ledger() {
    for (body, remembers) in [
        ("options: { disposition: allow }", false),
        (
            "options: { disposition: allow, unmodified: pass, duplicate: pass, max_depth: none }",
            false,
        ),
        (
            "options: { disposition: allow, budget: none, recrawl: none }",
            false,
        ),
        (
            "options: { disposition: allow, noncanonical: tag, strip_params: [sid] }",
            false,
        ),
        ("options: { disposition: allow, unmodified: tag }", true),
        ("options: { disposition: allow, max_depth: 0 }", true),
        (
            "options: { disposition: allow }\nrules: [{ set: { duplicate: reject } }]",
            true,
        ),
        (
            "options: { disposition: allow }\nrules: [{ set: { recrawl: { after_error: 1h } } }]",
            true,
        ),
        (
            "options: { disposition: allow }\nrules: [{ mode: shadow, set: { recrawl: { min_interval: 1h } } }]",
            true,
        ),
        (
            "options: { disposition: allow }\nrules: [{ forbid: { all: [{ not: { depth: 3 } }, { ext: gif }] } }]",
            true,
        ),
        (
            "options: { disposition: allow }\nspaces: [{ name: s, options: { unmodified: tag } }]",
            true,
        ),
        (
            "options: { disposition: allow }\nspaces: [{ name: s }]",
            true,
        ),
    ] {
        assert_eq!(policy(body).needs_ledger(), remembers, "{body}");
    }
}

#[test]
fn a_policy_compares_documents_if_any_rule_needs_it() {
    for (set, compares) in [
        ("unmodified: pass, duplicate: pass", false),
        ("max_depth: 3", false),
        ("unmodified: tag", true),
        ("unmodified: reject", true),
        ("duplicate: tag", true),
        ("duplicate: links", true),
        ("noindex: links", false),
        ("duplicate: reject", true),
    ] {
        for body in [
            format!("options: {{ disposition: allow, {set} }}"),
            format!("options: {{ disposition: allow }}\nrules: [{{ set: {{ {set} }} }}]"),
            format!(
                "options: {{ disposition: allow }}\nrules: [{{ mode: shadow, set: {{ {set} }} }}]"
            ),
            format!(
                "options: {{ disposition: allow }}\nspaces: [{{ name: s, options: {{ {set} }} }}]"
            ),
        ] {
            assert_eq!(policy(&body).compares_content(), compares, "{body}");
        }
    }
}

#[test]
fn the_last_assignment_decides_the_ledger_lookup() {
    let policy = policy(
        "options: { disposition: allow, recrawl: { min_interval: 1d, after_error: 10m }, unmodified: tag, max_buffer: 2MiB }
rules:
  - { id: news, when: { under: /news }, set: { recrawl: { min_interval: none }, unmodified: reject, max_buffer: 0B } }",
    );
    for (path, interval, check, buffer) in [
        (
            "",
            Some(Duration::from_secs(86_400)),
            CheckAction::Tag,
            2 << 20,
        ),
        ("news", None, CheckAction::Reject, 0),
    ] {
        let (_, trail) = asked(&policy, &format!("http://h/{path}"));
        let recrawl = recrawl::read(&policy, &trail);
        assert_eq!(
            (recrawl.min_interval, recrawl.after_error),
            (interval, Some(Duration::from_secs(600)))
        );
        assert_eq!(
            checks::read_action(&policy, &trail, schema::UNMODIFIED),
            check
        );
        assert_eq!(
            checks::read_action(&policy, &trail, schema::DUPLICATE),
            CheckAction::Pass
        );
        assert_eq!(checks::max_buffer(&policy, &trail), buffer);
    }
    assert!(policy.ever_checks(schema::UNMODIFIED) && !policy.ever_checks(schema::DUPLICATE));
}

#[test]
fn keys_omit_stripped_parameters() {
    for (options, url, key) in [
        ("index: true", "http://h/a?sid=1", "http://h/a?sid=1"),
        (
            "strip_params: sid",
            "http://h/a?b=1&sid=1",
            "http://h/a?b=1",
        ),
        (
            "strip_params: [sid, utm_*]",
            "http://h/a?utm_a=1&sid=1",
            "http://h/a",
        ),
        (
            "strip_params: { names: sid }",
            "http://h/a?sid=1",
            "http://h/a",
        ),
        (
            "replace: [{ regex: ';jsessionid=[^?]*', with: '' }]",
            "http://h/a;jsessionid=A.b?c",
            "http://h/a?c",
        ),
        (
            "replace: [{ regex: '^http://(www\\.)?', with: '//' }, { regex: '/(\\d+)-[a-z]+$', with: '/${1}x' }]",
            "http://www.h/7-name",
            "//h/7x",
        ),
        // Names first, then expressions, each on the result of the previous one.
        (
            "strip_params: [a], replace: [{ regex: '\\?.*a', with: '?' }, { regex: '\\?$', with: '' }]",
            "http://h/?b&a=1",
            "http://h/?b",
        ),
    ] {
        let policy = with_options(options);
        let (target, trail) = asked(&policy, url);
        assert_eq!(policy.key_url(&trail, &target), key, "{options}");
        assert_eq!(
            policy.rewritten_url(&trail, &target),
            None,
            "{options}: for keys only"
        );
        assert!(!policy.rewrites_urls());
    }
}

#[test]
fn only_rewriting_options_change_the_fetched_url() {
    for (options, url, fetched, key) in [
        (
            "strip_params: { names: [sid], rewrite: true }",
            "http://h/?sid=1&a=2",
            Some("http://h/?a=2"),
            "http://h/?a=2",
        ),
        (
            "strip_params: { names: [sid], rewrite: true }",
            "http://h/?a=2",
            None,
            "http://h/?a=2",
        ),
        (
            "replace: [{ regex: '^http:', with: 'https:', rewrite: true }, { regex: '//www\\.', with: '//' }]",
            "http://www.h.com/",
            Some("https://www.h.com/"),
            "https://h.com/",
        ),
        // A result that is not a URL is not fetched; another spelling is the same URL.
        (
            "replace: [{ regex: '^http:', with: 'gopher:', rewrite: true }]",
            "http://h/",
            None,
            "gopher://h/",
        ),
        (
            "replace: [{ regex: '/h/', with: '/H/', rewrite: true }]",
            "http://h/",
            None,
            "http://H/",
        ),
        (
            "replace: [{ regex: 'x', with: 'y', rewrite: false }]",
            "http://h/x",
            None,
            "http://h/y",
        ),
    ] {
        let policy = with_options(options);
        let (target, trail) = asked(&policy, url);
        let rewritten = policy.rewritten_url(&trail, &target);
        assert_eq!(
            rewritten.as_ref().map(UrlTarget::as_str),
            fetched,
            "{options}"
        );
        assert_eq!(policy.key_url(&trail, &target), key, "{options}");
    }
}

#[test]
fn a_list_that_would_change_its_own_outcome_is_refused_when_it_is_read() {
    for (items, fine) in [
        ("{ regex: a, with: aa, rewrite: true }", false),
        ("{ regex: a, with: aa }", true),
        (
            "{ regex: b, with: c, rewrite: true }, { regex: a, with: b, rewrite: true }",
            false,
        ),
        (
            "{ regex: b, with: c }, { regex: a, with: b, rewrite: true }",
            true,
        ),
        (
            "{ regex: a, with: b, rewrite: true }, { regex: b, with: c, rewrite: true }",
            true,
        ),
        ("{ regex: '^http:', with: 'https:', rewrite: true }", true),
        ("{ regex: '/index\\.html$', with: /, rewrite: true }", true),
        ("{ regex: '(a+)', with: '${1}b', rewrite: true }", true),
        ("{ regex: '(a+)', with: '$1b', rewrite: true }", false),
        ("{ regex: a, with: '$1' }", false),
        ("{ regex: '(?P<n>a)', with: '${n}$$1' }", true),
    ] {
        let body = format!("options: {{ disposition: allow, replace: [{items}] }}");
        assert_eq!(opened(&body).is_ok(), fine, "{items}");
    }
}

fn decided(policy: &Policy, facts: &Facts<'_>) -> String {
    let (trail, decision) = policy.decide(facts);
    let rule = policy.refusal(&trail, &decision).rule.unwrap_or("-");
    let trap = trail.trap().map_or("-", |trap| trap.as_str());
    format!("{} {rule} {trap}", decision.reason().as_str())
}

#[test]
fn a_trap_refuses_in_its_place_among_the_reasons() {
    let policy = policy(
        "options: { disposition: allow, traps: builtin, max_depth: 3 }
rules:
  - { id: shop, when: { under: /shop }, set: { traps: none } }
  - { id: dates, when: { under: /dates }, set: { traps: [calendar, session_id] } }
  - { id: never, forbid: { ext: gif } }",
    );
    let deep = "a/b/a/b/a";
    for (path, depth, year, expected) in [
        ("x", None, 2026, "default - -"),
        (deep, None, 2026, "trap - repeated_segment"),
        (deep, Some(4), 2026, "too_deep - -"),
        ("a/a/a.gif", None, 2026, "rule never -"),
        ("a/a/a/b.gif", None, 2026, "rule never -"),
        ("shop/a/a/a", None, 2026, "default - -"),
        ("dates/a/a/a", None, 2026, "default - -"),
        ("dates/day/2031", None, 2026, "default - -"),
        ("dates/day/2031", None, 2025, "trap dates calendar"),
        ("dates/x?PHPSESSID=4", None, 2026, "trap dates session_id"),
        ("x?PHPSESSID=4", None, 2026, "default - -"),
        // Repetitions are those of the canonical form; words count in every reading.
        ("a/%61/x/%61", None, 2026, "default - -"),
        ("dates/d%61y/2031", None, 2025, "ambiguous_url dates -"),
    ] {
        let target = UrlTarget::parse(&format!("http://h.com/{path}")).unwrap();
        let facts = Facts {
            depth,
            year,
            ..Facts::for_url(&target)
        };
        assert_eq!(decided(&policy, &facts), expected, "{path}");
    }
    assert!(policy.depends_on_year());
}

#[test]
fn facts_hidden_by_a_tunnel_leave_it_undecided() {
    let host = crawlgate::urls::target::HostTarget::parse_authority("h.com:443").unwrap();
    for (options, verdict) in [
        ("traps: none", "default"),
        ("traps: long_url", "undecided"),
        ("recrawl: { min_interval: 1d }", "undecided"),
        ("unmodified: tag, duplicate: pass", "default"),
        ("unmodified: reject", "undecided"),
        ("strip_params: [sid]", "default"),
    ] {
        let (_, decision) = with_options(options).decide(&Facts::for_tunnel(&host));
        assert_eq!(decision.reason().as_str(), verdict, "{options}");
    }
}
