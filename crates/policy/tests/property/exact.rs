//! Claims of exact analysis about random policies are true, and it finds planted faults.

use std::collections::{BTreeMap, BTreeSet};

use crawlgate_policy::internal::policy::Policy;
use crawlgate_policy::internal::policy::cases::{CaseFacts, CaseTarget};
use crawlgate_policy::internal::policy::compile::{self, CompiledPolicy};
use crawlgate_policy::internal::policy::exact::{
    ExactCheck, ExactDifference, VerdictAnswer, VerdictQuery, WantedVerdict, find_verdict,
};
use crawlgate_policy::internal::policy::options::OptionIndex;
use crawlgate_policy::internal::policy::source::MemoryFileSystem;
use crawlgate_policy::load;
use serde_json::{Value as Json, json};

use crate::generate::Generator;
use crate::lint::{
    NamedDecision, decide, facts_by_stage, name_decision, random_document, rule_id, without_rule,
};
use crate::valid_policy;

/// The number of random policies for each test; `CRAWLGATE_EXACT=10000 cargo test --release` sets
/// another.
fn policies() -> u32 {
    number_of("CRAWLGATE_EXACT", 12)
}

/// The generator of a test. `CRAWLGATE_EXACT_SEED` selects other policies, so that a long run can be
/// divided.
fn generator(seed: u64) -> Generator {
    Generator::new(seed + (u64::from(number_of("CRAWLGATE_EXACT_SEED", 0)) << 16))
}

fn number_of(variable: &str, default: u32) -> u32 {
    let number = std::env::var(variable).ok();
    number.map_or(default, |number| number.parse().unwrap())
}

fn compile(text: &str) -> CompiledPolicy {
    let files = MemoryFileSystem::new().with_file("p", text);
    compile::load(&files, "p").unwrap_or_else(|problems| panic!("{problems:?}\n{text}"))
}

/// A rule that is proved to be dead never decides, and its removal changes no decision.
#[test]
fn claims_about_random_policies_hold() {
    let mut generator = generator(21);
    let mut claims = 0;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..policies() {
        let document = random_document(&mut generator);
        let compiled = compile(&document.to_string());
        let check = ExactCheck::new(&compiled);
        *counts.entry("proved").or_default() += check.proved;
        *counts.entry("refuted").or_default() += check.refuted;
        *counts.entry("undecided").or_default() += check.undecided;
        for problem in &check.problems {
            if let Some((_, reason)) = problem.message.split_once("not decided whether") {
                *reasons.entry(reason.to_owned()).or_default() += 1;
            }
            if problem.message.starts_with("can never decide") {
                claims += 1;
                check_dead_rule(
                    &mut generator,
                    &document,
                    rule_id(problem),
                    &problem.message,
                );
            }
            if problem.message == "the policy refuses every URL" {
                check_verdicts(&mut generator, &document, WantedVerdict::Allow);
            }
        }
    }
    println!("{claims} claims, {counts:?}, {reasons:#?}");
    assert!(claims >= policies() / 5, "{claims}");
}

fn check_dead_rule(generator: &mut Generator, document: &Json, id: &str, message: &str) {
    let with = valid_policy(document);
    let without = valid_policy(&without_rule(document, id));
    for facts in (0..20).flat_map(|_| facts_by_stage(&generator.world())) {
        let before = decide(&with.policy, &facts);
        let after = decide(&without.policy, &facts);
        assert_ne!(
            before.1.as_deref(),
            Some(id),
            "{message}: {facts}\n{document:#}"
        );
        assert_eq!(before, after, "{id}: {message}\n{facts}\n{document:#}");
    }
}

fn check_verdicts(generator: &mut Generator, document: &Json, never: WantedVerdict) {
    let policy = valid_policy(document).policy;
    for _ in 0..40 {
        let facts = generator.world().to_json();
        let facts = CaseFacts::from_json(facts.as_object().unwrap()).unwrap();
        let (_, decision) = facts.with_facts(|facts| policy.decide(facts));
        assert!(!never.matches(&decision), "{facts:?}\n{document:#}");
    }
}

/// A verdict that is found is that of the evaluator; one that is proved away never occurs.
#[test]
fn verdicts_of_random_policies_are_true() {
    let mut generator = generator(31);
    let mut answers: BTreeMap<&str, u32> = BTreeMap::new();
    for _ in 0..policies() {
        let document = random_document(&mut generator);
        let policy = valid_policy(&document).policy;
        for verdict in [WantedVerdict::Allow, WantedVerdict::Reject] {
            let query = VerdictQuery {
                verdict,
                rule: None,
                under: None,
                host: None,
                crawler: None,
            };
            let answer = match find_verdict(&policy, &query) {
                VerdictAnswer::Found(example) => {
                    let (_, decision) = example.facts.with_facts(|facts| policy.decide(facts));
                    assert!(verdict.matches(&decision), "{example:?}\n{document:#}");
                    "found"
                }
                VerdictAnswer::Never => {
                    check_verdicts(&mut generator, &document, verdict);
                    "never"
                }
                VerdictAnswer::Undecided(_) => "undecided",
            };
            *answers.entry(answer).or_default() += 1;
        }
    }
    println!("{answers:?}");
    assert!(
        answers.get("found") >= Some(&(policies() * 5 / 6)),
        "{answers:?}"
    );
}

/// Two policies that are proved equivalent decide alike; an example of a difference is one; a change
/// of verdicts that is ruled out never occurs.
#[test]
fn differences_of_random_policies_are_true() {
    let mut generator = generator(31);
    let mut answers: BTreeMap<&str, u32> = BTreeMap::new();
    for _ in 0..policies() {
        let document = random_document(&mut generator);
        let changed = changed_document(&mut generator, &document);
        let Ok(new) = load(&changed.to_string()) else {
            *answers.entry("invalid").or_default() += 1;
            continue;
        };
        let (old, new) = (valid_policy(&document).policy, new.policy);
        let differs = |facts: &CaseFacts| full_decision(&old, facts) != full_decision(&new, facts);
        let difference =
            ExactDifference::between(&old, &new, &|facts| differs(facts).then_some(()));
        let answer = if difference.is_equivalent() {
            "equivalent"
        } else if difference.examples.is_empty() {
            "undecided"
        } else {
            "different"
        };
        *answers.entry(answer).or_default() += 1;
        let possible = difference.possible_verdicts();
        if !possible.new_access {
            *answers.entry("no new access").or_default() += 1;
        }
        if !possible.new_refusal {
            *answers.entry("no new refusal").or_default() += 1;
        }
        for facts in (0..20).flat_map(|_| facts_by_stage(&generator.world())) {
            let facts = CaseFacts::from_json(facts.as_object().unwrap()).unwrap();
            let is_url = matches!(facts.target(), CaseTarget::Url(_));
            if !is_url {
                continue;
            }
            let context = || format!("{facts:?}\n{document:#}\n{changed:#}");
            assert!(answer != "equivalent" || !differs(&facts), "{}", context());
            let admits = |policy: &Policy| {
                let (_, decision) = facts.with_facts(|facts| policy.decide(facts));
                WantedVerdict::Allow.matches(&decision)
            };
            match (admits(&old), admits(&new)) {
                (false, true) => assert!(possible.new_access, "{}", context()),
                (true, false) => assert!(possible.new_refusal, "{}", context()),
                (true, true) | (false, false) => {}
            }
        }
    }
    println!("{answers:?}");
    let enough = Some(policies() / 20);
    for answer in ["different", "equivalent", "no new access", "no new refusal"] {
        assert!(answers.get(answer).copied() >= enough, "{answers:?}");
    }
}

/// A decision with its cause, its response, and the options of an admitted request.
fn full_decision(policy: &Policy, facts: &CaseFacts) -> (NamedDecision, Vec<String>) {
    let (trail, decision) = facts.with_facts(|facts| policy.decide(facts));
    let options = policy
        .option_paths()
        .zip(0..)
        .map(|(_, index)| trail.value(policy, OptionIndex(index)).to_string());
    let options = if WantedVerdict::Allow.matches(&decision) {
        options.collect()
    } else {
        Vec::new()
    };
    (name_decision(policy, &trail, decision), options)
}

/// Changes a document in one to three places.
fn changed_document(generator: &mut Generator, document: &Json) -> Json {
    let mut changed = document.clone();
    for _ in 0..generator.rng.usize(1..=3) {
        let rules = changed["rules"].as_array_mut().unwrap();
        if rules.len() < 2 {
            break;
        }
        let (one, two) = (
            generator.rng.usize(0..rules.len()),
            generator.rng.usize(0..rules.len()),
        );
        let body = |rule: &Json| {
            ["forbid", "require", "when", "unless"]
                .into_iter()
                .find_map(|key| Some((key, rule.get(key)?.clone())))
        };
        match generator.rng.u8(0..7) {
            0 => drop(rules.remove(one)),
            1 => rules.swap(one, two),
            2 => {
                if let (Some((key, _)), Some((_, condition))) =
                    (body(&rules[one]), body(&rules[two]))
                {
                    rules[one][key] = condition;
                }
            }
            3 => {
                if let Some((key, condition)) = body(&rules[one]) {
                    rules[one][key] = json!({ "any": [condition, { "path": "/old" }] });
                }
            }
            4 => {
                if let Some((key, condition)) = body(&rules[one]) {
                    rules[one][key] = json!({ "not": { "not": condition } });
                }
            }
            5 => {
                if let Some(("forbid" | "require", _)) = body(&rules[one]) {
                    let logs = rules[one].get("log").is_some_and(|log| log == true);
                    rules[one]["log"] = (!logs).into();
                }
            }
            _ => {
                if let Some((_, condition)) = body(&rules[two]) {
                    let added = if generator.rng.bool() {
                        json!({ "id": "added", "forbid": condition })
                    } else {
                        json!({ "id": "added", "when": condition, "then": "allow" })
                    };
                    rules.insert(one, added);
                }
            }
        }
    }
    changed
}

fn findings(rules: &str) -> Vec<String> {
    let text = format!(
        "policy: 1\nname: t\noptions: {{ disposition: allow }}\nlists:\n  \
         d: {{ kind: domains, items: [x.com, y.com] }}\n  \
         h: {{ kind: hosts, items: [www.x.com, y.com] }}\n  \
         p: {{ kind: url_prefixes, items: ['http://x.com/a/', 'http://www.x.com/b'] }}\nrules: {rules}\n"
    );
    let compiled = compile(&text);
    let check = ExactCheck::new(&compiled);
    let all = compiled
        .problems
        .iter()
        .chain(&check.problems)
        .chain(&compiled.inert_rules);
    all.filter(|problem| {
        problem
            .rule
            .as_ref()
            .is_some_and(|rule| rule.as_str() == "bad")
    })
    .filter(|problem| {
        ["can never decide", "never has an effect", "redundant"]
            .iter()
            .any(|text| problem.message.contains(text))
    })
    .map(|problem| problem.message.clone())
    .collect()
}

/// Faults, each in the rule `bad`.
const FAULTS: &[&str] = &[
    // Implications between kinds of tests.
    "[{ id: a, forbid: { domain: x.com } }, { id: bad, forbid: { url: { regex: '^https?://www\\.x\\.com/a/' } } }]",
    "[{ id: a, forbid: { url: { regex: 'session' } } }, { id: bad, forbid: { url: { regex: '[?&]sessionid=' } } }]",
    "[{ id: a, forbid: { path: { regex: '(?i)\\.(gif|jpg)$' } } }, { id: bad, forbid: { ext: gif } }]",
    "[{ id: a, forbid: { path: { contains: /ads/ } } }, { id: bad, forbid: { path: { glob: '/x/*/ads/*.js' } } }]",
    "[{ id: a, forbid: { url: { regex: '/a+b' } } }, { id: bad, when: { path: { contains: /aab } }, then: allow }]",
    "[{ id: g, match: first, rules: [{ id: w, when: { url: { regex: . } }, then: allow }, { id: bad, forbid: { host: x.com } }] }]",
    "[{ id: a, forbid: { domain: x.com } }, { id: bad, forbid: { in: p } }]",
    "[{ id: a, forbid: { in: d } }, { id: bad, forbid: { in: h } }]",
    "[{ id: a, forbid: { in: d } }, { id: bad, forbid: { url: { regex: '^http://(www|m)\\.y\\.com/' } } }]",
    "[{ id: a, forbid: { domain: x.com } }, { id: bad, forbid: { surt: 'http://(com,x,' } }]",
    "[{ id: a, forbid: { domain: x.com } }, { id: bad, forbid: { surt: 'http://(com,x,www,)/q' } }]",
    "[{ id: a, forbid: { url: { contains: 'id=' } } }, { id: bad, forbid: { query: { contains: 'sid=5' } } }]",
    "[{ id: a, forbid: { query: { contains: 'id=5' } } }, { id: bad, forbid: { query: { exact: 'id=5' } } }]",
    "[{ id: a, forbid: { path: { prefix: /A, case: ignore } } }, { id: bad, forbid: { path: { regex: '^/[aA]b' } } }]",
    "[{ id: a, forbid: { host: { suffix: .com } } }, { id: bad, forbid: { domain: www.x.com } }]",
    "[{ id: a, forbid: { authority: 'x.com:8080' } }, { id: bad, forbid: { host: x.com, port: 8080 } }]",
    "[{ id: a, forbid: { port: '[8000:8999]' } }, { id: bad, forbid: { authority: 'x.com:8443' } }]",
    "[{ id: a, forbid: { scheme: http } }, { id: bad, forbid: { url_prefix: 'http://x.com/' } }]",
    "[{ id: a, forbid: { path_and_query: { contains: 'a?b' } } }, { id: bad, forbid: { path: { suffix: /a }, query: { prefix: b } } }]",
    "[{ id: a, forbid: { rel_path: { prefix: a/ } } }, { id: bad, forbid: { under: /a/b } }]",
    // Unions.
    "[{ id: a, forbid: { scheme: http } }, { id: b, forbid: { scheme: https } }, { id: bad, forbid: { host: x.com } }]",
    "[{ id: a, forbid: { host: x.com } }, { id: b, forbid: { host: www.x.com } }, { id: bad, forbid: { host: [x.com, www.x.com] } }]",
    "[{ id: a, forbid: { ext: gif } }, { id: b, forbid: { ext: png } }, { id: bad, forbid: { path: { regex: '\\.(gif|png)$' } } }]",
    "[{ id: a, forbid: { path: { regex: '^/[a-m]' } } }, { id: b, forbid: { path: { regex: '^/[n-z]' } } }, { id: bad, forbid: { path: { regex: '^/[a-z]+$' } } }]",
    "[{ id: a, forbid: { domain: x.com } }, { id: b, forbid: { not: { domain: x.com } } }, { id: bad, when: { ext: pdf }, then: allow }]",
    "[{ id: a, forbid: { method: GET, path: /a } }, { id: b, forbid: { not: { method: GET } } }, { id: bad, forbid: { under: /a/b } }]",
    "[{ id: a, forbid: { depth: '[0:3]' } }, { id: b, forbid: { depth: '[4:]' } }, { id: bad, forbid: { depth: '[2:5]' } }]",
    "[{ id: g, match: first, rules: [{ id: a, when: { scheme: http }, then: allow }, { id: b, when: { scheme: https }, then: allow }, { id: bad, forbid: { host: x.com } }] }]",
    "[{ id: a, when: { scheme: http }, then: allow, stop: true }, { id: b, when: { scheme: https }, then: allow, stop: true }, { id: bad, forbid: { host: x.com } }]",
    "[{ id: bad, when: { host: x.com }, then: disallow }, { id: a, when: { scheme: http }, then: allow }, { id: b, when: { scheme: https }, then: allow }]",
    "[{ id: a, forbid: { dest: navigation } }, { id: b, forbid: { dest: embed } }, { id: bad, forbid: { dest: [navigation, embed], host: x.com } }]",
    "[{ id: a, forbid: { crawler: news-bot } }, { id: bad, forbid: { crawler: { regex: '^news-bot$' }, path: /a } }]",
    "[{ id: a, forbid: { address: 10.0.0.0/9 } }, { id: b, forbid: { address: 10.128.0.0/9 } }, { id: bad, forbid: { address: 10.0.0.0/8 } }]",
    "[{ id: a, forbid: { status: '[400:499]' } }, { id: b, forbid: { status: 5xx } }, { id: bad, forbid: { status: [404, 503] } }]",
    "[{ id: r1, require: { domain: x.com } }, { id: bad, forbid: { host: y.com } }]",
    "[{ id: r1, require: { any: [{ host: x.com }, { host: y.com }] } }, { id: bad, forbid: { domain: z.com } }]",
    // Values that match nothing.
    "[{ id: bad, forbid: { path: { regex: '^private/' } } }]",
    "[{ id: bad, forbid: { url: { regex: '^http://WWW\\.' } } }]",
    "[{ id: bad, forbid: { url: { regex: '^http://x\\.com:80/$#' } } }]",
    "[{ id: bad, forbid: { url_prefix: 'http://*.x.com/' } }]",
    "[{ id: bad, forbid: { path: '*.pdf' } }]",
    "[{ id: bad, forbid: { url: { regex: '%20$wrapper\\.data' } } }]",
    "[{ id: bad, forbid: { path: { contains: 'a?b' } } }]",
    "[{ id: bad, forbid: { path: { contains: /../ } } }]",
    "[{ id: bad, forbid: { url: { regex: '#top' , case: ignore } , path: { regex: '^a' } } }]",
    "[{ id: bad, forbid: { host: { glob: 'x.com/*' } } }]",
    "[{ id: bad, forbid: { scheme: ftp } }]",
    "[{ id: bad, when: { path: { regex: '^[^/]+$' } }, then: disallow }]",
    // Contradictions and rules that filter nothing.
    "[{ id: bad, require: { scheme: [http, https] } }]",
    "[{ id: bad, require: { path: { regex: ^/ } } }]",
    "[{ id: bad, forbid: { url_prefix: 'http://long.example/aaaaaaaaaaaaa', path: { length: '[:5]' } } }]",
    "[{ id: bad, forbid: { query: { prefix: abcdef, length: '[:3]' } } }]",
    "[{ id: bad, forbid: { all: [{ path: { regex: '^/a/' } }, { under: /b } ] } }]",
    "[{ id: bad, forbid: { ext: gif, path: { suffix: .html } } }]",
    "[{ id: bad, forbid: { host: x.com, url: { regex: '^https?://y' } } }]",
    "[{ id: bad, forbid: { query: { params: 0 }, in_query: 'a=b' } }]",
    "[{ id: bad, forbid: { domain: x.com, not: { host: { suffix: com } } } }]",
    "[{ id: bad, forbid: { port: 80, scheme: https, authority: x.com } }]",
    "[{ id: g, when: { path: { regex: '^/a' } }, rules: [{ id: bad, forbid: { under: /b } }] }]",
    "[{ id: g, unless: { domain: com }, rules: [{ id: bad, forbid: { url: { regex: '^https?://x\\.com/' } } }] }]",
    "[{ id: bad, forbid: { url: { regex: 'sessionid=' } } }, { id: a, forbid: { url: { regex: 'session' } } }]",
];

#[test]
fn planted_faults_are_found() {
    let missed: Vec<&str> = FAULTS
        .iter()
        .copied()
        .filter(|rules| findings(rules).is_empty())
        .collect();
    println!(
        "{} of {} missed:\n{}",
        missed.len(),
        FAULTS.len(),
        missed.join("\n")
    );
    assert!(FAULTS.len() >= 60 && FAULTS.len() - missed.len() >= 55);
}

fn exact_problems(rules: &str) -> Vec<(String, String)> {
    let text = format!("policy: 1\nname: t\noptions: {{ disposition: allow }}\nrules: {rules}\n");
    let compiled = compile(&text);
    let check = ExactCheck::new(&compiled);
    let all = compiled.problems.iter().chain(&check.problems);
    all.filter_map(|problem| Some((problem.rule.as_ref()?.to_string(), problem.message.clone())))
        .collect()
}

/// The rules that refuse everything that another one refuses, as pairs of it and such a rule.
fn wider_rules(rules: &str) -> BTreeSet<(String, String)> {
    let mut pairs = BTreeSet::new();
    for (rule, message) in exact_problems(rules) {
        let is_claim = message.starts_with("can never decide") || message.starts_with("redundant");
        if !is_claim || message.contains(" together ") {
            continue;
        }
        let named = message.split('`').skip(1).step_by(2);
        pairs.extend(named.map(|other| (rule.clone(), other.to_owned())));
    }
    pairs
}

/// Returns the paths of up to five characters, of which one is in no expression.
fn short_paths() -> Vec<String> {
    let mut paths = vec!["/".to_owned()];
    let mut from = 0;
    for _ in 0..4 {
        let to = paths.len();
        for at in from..to {
            for next in ["a", "b", "c", "/"] {
                paths.push(format!("{}{next}", paths[at]));
            }
        }
        from = to;
    }
    paths
}

fn random_expression(generator: &mut Generator) -> String {
    const PARTS: [&str; 9] = ["a", "b", "/", "[ab]", "a?", "b*", "(a|b/)", ".", "(ab)?"];
    let count = generator.rng.usize(1..=2);
    let parts: String = (0..count)
        .map(|_| *generator.rng.choice(&PARTS).unwrap())
        .collect();
    match generator.rng.u8(0..4) {
        0 => format!("^/{parts}"),
        1 => format!("{parts}$"),
        _ => parts,
    }
}

/// All rules that refuse everything that another one refuses are named, and no others.
#[test]
fn all_wider_filters_are_named() {
    let mut generator = generator(41);
    let paths = short_paths();
    let mut count = 0;
    for _ in 0..policies().max(20) {
        let expressions: Vec<String> = (0..7).map(|_| random_expression(&mut generator)).collect();
        let matching: Vec<BTreeSet<&str>> = expressions
            .iter()
            .map(|expression| {
                let regex = regex::Regex::new(expression).unwrap();
                let matching = paths.iter().filter(|path| regex.is_match(path));
                matching.map(String::as_str).collect()
            })
            .collect();
        let mut expected = BTreeSet::new();
        for (one, matched) in matching.iter().enumerate() {
            for (two, more) in matching.iter().enumerate() {
                if one != two && matched.is_subset(more) {
                    expected.insert((format!("r{one}"), format!("r{two}")));
                }
            }
        }
        let rules: Vec<String> = expressions
            .iter()
            .enumerate()
            .map(|(at, text)| format!("{{ id: r{at}, forbid: {{ path: {{ regex: '{text}' }} }} }}"))
            .collect();
        let rules = format!("[{}]", rules.join(", "));
        assert_eq!(wider_rules(&rules), expected, "{rules}");
        count += expected.len();
    }
    assert!(count > 50, "{count}");
}

/// Each rule that alone keeps another one from deciding is named, whatever its kind.
#[test]
fn all_reasons_are_named() {
    for (rules, bad) in [
        (
            "[{ id: a, forbid: { url: { regex: '/x' } } }, { id: b, forbid: { path: { regex: '^/x' } } }, \
             { id: bad, when: { path: { regex: '^/x/y' } }, then: allow }]",
            "can never decide: rule `a` (p:4:9) filters everything that it matches; so would rule `b` (p:4:54)",
        ),
        (
            "[{ id: a, forbid: { path: { regex: '^/x' } } }, { id: bad, when: { path: { regex: '^/x/y' } }, then: allow }, \
             { id: c, when: { path: { regex: '/y' } }, then: disallow }]",
            "can never decide: rule `a` (p:4:9) filters everything that it matches; it would be enough that \
             rule `c` (p:4:118) matches as well and overwrites all its options",
        ),
        // One of several that would be enough together is enough alone.
        (
            "[{ id: a, forbid: { path: { regex: '^/x$' } } }, { id: b, forbid: { path: { regex: '^/[xy]$' } } }, \
             { id: bad, forbid: { path: { regex: '^/(?:x|y)$' } } }]",
            "can never decide: rule `b` (p:4:57) filters everything that it matches",
        ),
        (
            "[{ id: a, forbid: { host: x.com } }, { id: bad, forbid: { path: { regex: '^/x$' } } }]",
            "",
        ),
        (
            "[{ id: a, forbid: { scheme: http } }, { id: bad, forbid: { path: { regex: '^/x$' } } }]",
            "decides only where rule `a` (p:4:9) does not apply; for example https://a/x",
        ),
    ] {
        let found: Vec<String> = exact_problems(rules)
            .into_iter()
            .filter(|(rule, _)| rule == "bad")
            .map(|(_, message)| message)
            .collect();
        let expected: Vec<&str> = Some(bad)
            .into_iter()
            .filter(|bad| !bad.is_empty())
            .collect();
        assert_eq!(found, expected, "{rules}");
    }
}

/// Combinations of facts that leave the same question about the URL are one.
#[test]
fn many_facts_besides_the_url_are_analysed() {
    let headers: Vec<String> = (0..16)
        .map(|at| format!("{{ header.x-{at}: {{ prefix: a }} }}"))
        .collect();
    let rules = format!(
        "[{{ id: a, forbid: {{ header.x-0: {{ regex: a }} }} }}, \
         {{ id: bad, forbid: {{ all: [{}] }} }}]",
        headers.join(", ")
    );
    assert_eq!(findings(&rules).len(), 1);
}

/// Rules like the faults, but without one.
#[test]
fn rules_without_faults_are_not_reported() {
    for rules in [
        "[{ id: a, forbid: { scheme: http } }, { id: bad, forbid: { host: x.com } }]",
        "[{ id: a, forbid: { path: { regex: '^/[a-m]' } } }, { id: bad, forbid: { path: { regex: '^/[a-z]+$' } } }]",
        "[{ id: bad, forbid: { path: { regex: '^/private/' } } }]",
        "[{ id: bad, forbid: { under: '/a/*' } }]",
        "[{ id: bad, forbid: { url: { regex: '%20\\$wrapper' } } }]",
        "[{ id: a, forbid: { in: h } }, { id: bad, forbid: { in: d } }]",
        "[{ id: bad, require: { domain: x.com } }]",
        "[{ id: bad, forbid: { path: { repeats: '[3:]' } } }]",
        // A server may read `/a%2Fb%2Fc` as this path.
        "[{ id: bad, forbid: { under: /a/b/c, path: { segments: '[:2]' } } }]",
        "[{ id: bad, forbid: { param.id: 5 } }]",
    ] {
        assert_eq!(findings(rules), [""; 0], "{rules}");
    }
}
