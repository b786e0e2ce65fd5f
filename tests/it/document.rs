//! The document stage, and the options that evaluate responses.

use crawlgate::diagnostics::problem::Problem;
use crawlgate::model::profile::Profile;
use crawlgate::model::reason::Reason;
use crawlgate::pipeline::offline_evaluation::OfflineEvaluation;
use crawlgate::policy::Policy;
use crawlgate::policy::cases::CaseFacts;
use crawlgate::policy::compile::{CompiledPolicy, load};
use crawlgate::policy::decide::{Cause, Verdict};
use crawlgate::policy::source::MemoryFileSystem;
use serde_json::{Value as Json, json};

fn opened(body: &str) -> Result<CompiledPolicy, String> {
    let head = if body.contains("options:") {
        ""
    } else {
        "options: { disposition: allow }\n"
    };
    let files =
        MemoryFileSystem::new().with_file("p.yaml", format!("policy: 1\nname: t\n{head}{body}\n"));
    load(&files, "p.yaml")
        .map_err(|problems: Vec<Problem>| problems.iter().map(|p| p.render() + "\n").collect())
}

fn compiled(body: &str) -> Policy {
    opened(body)
        .unwrap_or_else(|problems| panic!("{body}\n{problems}"))
        .policy
}

/// `stage reason rule status` of a refusal, or `allow stage`.
fn output(policy: &Policy, facts: &Json) -> String {
    let mut facts = facts.clone();
    if facts.get("url").is_none() {
        facts["url"] = json!("http://h.test/a");
    }
    let facts = CaseFacts::from_json(facts.as_object().unwrap()).unwrap();
    let trial = OfflineEvaluation::new(policy, &facts, Profile::Generic);
    let decision = &trial.decision;
    let answer = trial.answer();
    let stage = decision.stage.as_str();
    if !decision.rejects() {
        return format!("allow {stage}");
    }
    let reason = decision.reason().as_str();
    let rule = trial.rule_id().unwrap_or("-");
    format!("{stage} {reason} {rule} {}", answer.status.unwrap())
}

fn check(rows: &[(&str, Json, &str)]) {
    for (body, facts, expected) in rows {
        assert_eq!(
            output(&compiled(body), facts),
            *expected,
            "{body} with {facts}"
        );
    }
}

const TITLE: &str = "rules: [{ id: x, forbid: { title: not found } }]";
const ROBOTS: &str = "rules: [{ id: x, forbid: { meta_robots: { contains: noindex } } }]";

#[test]
fn the_stage_runs_for_a_get_with_2xx_in_html_or_text() {
    fn page(more: Json) -> serde_json::Value {
        let mut facts = json!({ "title": "page not found" });
        facts
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        facts
    }
    check(&[
        (TITLE, page(json!({})), "document rule x 451"),
        (
            TITLE,
            page(json!({ "content_type": "text/html; charset=utf-8" })),
            "document rule x 451",
        ),
        (
            TITLE,
            page(json!({ "content_type": "application/xhtml+xml" })),
            "document rule x 451",
        ),
        (
            TITLE,
            page(json!({ "content_type": "text/plain" })),
            "document rule x 451",
        ),
        (
            TITLE,
            page(json!({ "content_type": "image/png" })),
            "allow response",
        ),
        (
            TITLE,
            page(json!({ "content_type": "text/html", "status": 404 })),
            "allow response",
        ),
        (
            TITLE,
            page(json!({ "content_type": "text/html", "status": 204 })),
            "allow response",
        ),
        (
            TITLE,
            page(json!({ "content_type": "text/html", "method": "HEAD" })),
            "allow response",
        ),
        (
            TITLE,
            page(json!({ "content_type": "text/html", "method": "POST" })),
            "allow response",
        ),
        (TITLE, json!({ "title": "home" }), "allow document"),
        (
            TITLE,
            json!({ "content_type": "text/html" }),
            "allow response",
        ),
        (
            "rules: [{ id: x, forbid: { body_prefix: error } }]",
            json!({ "body_prefix": "an error" }),
            "document rule x 451",
        ),
        (
            "rules: [{ id: x, require: { title: { regex: '^Home' } } }]",
            json!({ "title": "" }),
            "document rule x 451",
        ),
    ]);
}

#[test]
fn headers_make_robots_and_canonical_known_early() {
    fn tag(value: &str) -> serde_json::Value {
        json!({ "headers": { "X-Robots-Tag": value } })
    }
    check(&[
        (ROBOTS, tag("noindex"), "response rule x 451"),
        (
            ROBOTS,
            json!({ "meta_robots": "noindex" }),
            "document rule x 451",
        ),
        // The field sets the fact; the document adds nothing.
        (
            ROBOTS,
            json!({ "headers": { "X-Robots-Tag": "index" }, "meta_robots": "noindex" }),
            "allow document",
        ),
        (
            ROBOTS,
            json!({ "content_type": "text/html" }),
            "allow response",
        ),
        // Document facts exist for 2xx only, in a field too.
        (
            ROBOTS,
            json!({ "status": 404, "headers": { "X-Robots-Tag": "noindex" } }),
            "allow response",
        ),
        (
            "rules: [{ id: x, forbid: { meta_robots: noindex, status: 404 } }]",
            json!({ "status": 404, "headers": { "X-Robots-Tag": "noindex" } }),
            "response rule x 451",
        ),
        // A group runs where its facts are known.
        (
            "rules: [{ id: x, when: { canonical: 'http://h/b' }, then: disallow }]",
            json!({ "headers": { "Link": "<http://h/b>; rel=canonical" } }),
            "response rule x 451",
        ),
        (
            "rules: [{ id: x, when: { canonical: 'http://h/b' }, then: disallow }]",
            json!({ "canonical": "http://h/b" }),
            "document rule x 451",
        ),
        // The children of `match: first` run together: at the response if headers give all that they name.
        (
            "rules: [{ match: first, rules: [{ when: { canonical: x } }, { id: x, forbid: { meta_robots: noindex } }] }]",
            json!({ "headers": { "X-Robots-Tag": "noindex" }, "canonical": "y" }),
            "document rule x 451",
        ),
        (
            "rules: [{ match: first, rules: [{ when: { canonical: x } }, { id: x, forbid: { meta_robots: noindex } }] }]",
            json!({ "headers": { "X-Robots-Tag": "noindex", "Link": "<y>; rel=canonical" } }),
            "response rule x 451",
        ),
        // `stage` postpones it.
        (
            "rules: [{ id: x, stage: document, forbid: { meta_robots: noindex } }]",
            json!({ "headers": { "X-Robots-Tag": "noindex" }, "title": "" }),
            "document rule x 451",
        ),
        (
            "rules: [{ id: x, stage: response, forbid: { meta_robots: noindex } }]",
            json!({ "meta_robots": "noindex" }),
            "document rule x 451",
        ),
    ]);
}

#[test]
fn a_document_condition_alone_does_not_refuse_a_request() {
    for body in [
        TITLE,
        "rules: [{ forbid: { body_prefix: x } }]",
        "rules: [{ stage: document, forbid: { ext: gif } }]",
        "rules: [{ stage: document, forbid: { ext: gif }, as: 404 }]",
        "rules: [{ set: { noindex: reject, follow: false, enforce_follow: strip } }]",
        "options: { disposition: allow, noncanonical: reject, index: false, enforce_index: meta }",
    ] {
        let serving = opened(body).unwrap_or_else(|problems| panic!("{body}\n{problems}"));
        assert!(
            serving
                .problems
                .iter()
                .all(|p| !p.message.contains("not in this version")),
            "{body}"
        );
    }
    let serving = opened(ROBOTS).unwrap().policy;
    assert_eq!(
        output(&serving, &json!({ "meta_robots": "noindex" })),
        "document rule x 451"
    );
}

#[test]
fn a_soft_error_has_its_own_reason_and_status() {
    const SOFT: &str =
        "rules: [{ id: a, forbid: { title: x } }, { id: s, forbid: { title: x }, as: 410 }]";
    check(&[
        (
            "rules: [{ id: s, forbid: { title: not found }, as: 404 }]",
            json!({ "title": "not found" }),
            "document soft_error s 404",
        ),
        (
            "rules: [{ id: s, require: { title: { contains: Home } }, as: 404 }]",
            json!({ "title": "not found" }),
            "document soft_error s 404",
        ),
        // This reason precedes all others of the stage, regardless of the options for statuses.
        (SOFT, json!({ "title": "x" }), "document soft_error s 410"),
        (
            "options: { disposition: allow, reject_status: 403 }\nrules: [{ id: s, forbid: { title: x }, as: 404 }]",
            json!({ "title": "x" }),
            "document soft_error s 404",
        ),
        // It waits for the document, even if the URL decides.
        (
            "rules: [{ id: s, forbid: { any: [{ under: /a }, { title: x }] }, as: 404 }]",
            json!({ "title": "y" }),
            "document soft_error s 404",
        ),
        (
            "rules: [{ id: s, stage: document, forbid: { under: /a }, as: 404 }]",
            json!({ "title": "y" }),
            "document soft_error s 404",
        ),
    ]);
    for (rule, expected) in [
        ("{ forbid: { ext: gif }, as: 404 }", "document stage"),
        ("{ forbid: { title: x }, as: 200 }", "as"),
        ("{ forbid: { title: x }, as: 407 }", "407"),
        (
            "{ forbid: { title: x }, as: 404, reject: gone }",
            "remove one of them",
        ),
        ("{ when: { title: x }, as: 404 }", "not a key of"),
        ("{ stage: response, forbid: { title: x } }", "is too early"),
        (
            "{ stage: request, forbid: { meta_robots: x } }",
            "write `stage: response`",
        ),
    ] {
        let output = opened(&format!("rules: [{rule}]")).map(|_| ()).unwrap_err();
        assert!(output.contains(expected), "{rule}\n{output}");
    }
}

/// The precedence of reasons if several conditions reject.
#[test]
fn reasons_have_an_order() {
    fn options(more: &str) -> String {
        format!("options: {{ disposition: allow, {more} }}\n")
    }
    let checks = options("noncanonical: reject, noindex: reject, max_body: 5B");
    let all = json!({ "size": 9, "content_type": "a/b", "headers": { "Link": "</b>; rel=canonical", "X-Robots-Tag": "none" } });
    let without = |key: &str| {
        let mut facts = all.clone();
        facts["size"] = json!(1);
        if !key.is_empty() {
            facts["headers"].as_object_mut().unwrap().remove(key);
        }
        facts
    };
    let filter = "rules: [{ id: f, forbid: { content_type: a/b } }]";
    let html = options("noindex: reject, html_only: true");
    check(&[
        (
            &format!("{checks}{filter}"),
            all.clone(),
            "response body_too_large - 451",
        ),
        (
            &format!("{checks}{filter}"),
            without(""),
            "response noncanonical - 451",
        ),
        (
            &format!("{checks}{filter}"),
            without("Link"),
            "response rule f 451",
        ),
        (&checks, without("Link"), "response noindex - 451"),
        (&html, without("Link"), "response default - 451"),
        // At the document: soft errors, canonical, index, rules.
        (
            &format!("{checks}rules: [{{ id: s, forbid: {{ title: x }}, as: 404 }}]"),
            json!({ "title": "x", "canonical": "/b", "meta_robots": "noindex" }),
            "document soft_error s 404",
        ),
        (
            &format!("{checks}{TITLE}"),
            json!({ "title": "not found", "canonical": "/b", "meta_robots": "noindex" }),
            "document noncanonical - 451",
        ),
        (
            &format!("{checks}{TITLE}"),
            json!({ "title": "not found", "meta_robots": "noindex" }),
            "document noindex - 451",
        ),
        (
            &format!("{checks}{TITLE}"),
            json!({ "title": "not found" }),
            "document rule x 451",
        ),
    ]);
}

#[test]
fn canonical_forms_are_compared() {
    const ON: &str = "rules: [{ id: c, when: { host: h.test }, set: { noncanonical: reject } }]";
    let link =
        |target: &str| json!({ "headers": { "Link": format!("<{target}>; rel=\"canonical\"") } });
    check(&[
        (ON, link("http://h.test/a"), "allow response"),
        (ON, link("HTTP://H.test:80/x/../a#top"), "allow response"),
        (ON, link("/a"), "allow response"),
        (ON, link("a"), "allow response"),
        (ON, link("/b"), "response noncanonical c 451"),
        (ON, link("//other.test/a"), "response noncanonical c 451"),
        (ON, link("https://h.test/a"), "response noncanonical c 451"),
        // A value that is not a fetchable URL is not another URL.
        (ON, link("mailto:x@h.test"), "allow response"),
        (
            ON,
            json!({ "canonical": "http://h.test/b" }),
            "document noncanonical c 451",
        ),
        (
            ON,
            json!({ "canonical": "http://h.test/a" }),
            "allow document",
        ),
        (
            ON,
            json!({ "status": 404, "headers": { "Link": "</b>; rel=canonical" } }),
            "allow response",
        ),
        (
            "rules: [{ set: { noncanonical: tag } }]",
            link("/b"),
            "allow response",
        ),
    ]);
}

#[test]
fn noindex_is_read_in_headers_and_documents() {
    const ON: &str = "rules: [{ id: n, when: { host: h.test }, set: { noindex: reject } }]";
    check(&[
        (
            ON,
            json!({ "headers": { "X-Robots-Tag": "nofollow, noindex" } }),
            "response noindex n 451",
        ),
        (
            ON,
            json!({ "headers": { "X-Robots-Tag": "googlebot: noindex" } }),
            "allow response",
        ),
        (
            ON,
            json!({ "crawler": "news", "headers": { "X-Robots-Tag": "news: noindex" } }),
            "response noindex n 451",
        ),
        (
            ON,
            json!({ "meta_robots": "NONE" }),
            "document noindex n 451",
        ),
        // A less strict field does not relax the document.
        (
            ON,
            json!({ "headers": { "X-Robots-Tag": "index" }, "meta_robots": "noindex" }),
            "document noindex n 451",
        ),
        (
            ON,
            json!({ "status": 204, "headers": { "X-Robots-Tag": "noindex" } }),
            "allow response",
        ),
        (
            "rules: [{ set: { noindex: tag } }]",
            json!({ "meta_robots": "noindex" }),
            "allow document",
        ),
    ]);
}

#[test]
fn usage_combines_robots_txt_and_headers() {
    const ON: &str = "rules: [{ id: u, forbid: { usage.train-ai: deny } }]";
    check(&[
        (
            ON,
            json!({ "usage": { "train-ai": "deny" } }),
            "response rule u 451",
        ),
        (
            ON,
            json!({ "headers": { "Content-Usage": "train-ai=n" } }),
            "response rule u 451",
        ),
        (
            ON,
            json!({ "usage": { "train-ai": "deny" }, "headers": { "Content-Usage": "train-ai=y" } }),
            "response rule u 451",
        ),
        (
            ON,
            json!({ "usage": { "train-ai": "allow" }, "headers": { "Content-Usage": "train-ai=n" } }),
            "response rule u 451",
        ),
        (
            ON,
            json!({ "usage": { "train-ai": "allow" } }),
            "allow response",
        ),
        (
            ON,
            json!({ "usage": { "search": "deny" } }),
            "allow response",
        ),
        (
            "rules: [{ id: u, require: { usage.search: allow } }]",
            json!({ "usage": { "search": "unset" } }),
            "response rule u 451",
        ),
        (
            ON,
            json!({ "headers": { "TDM-Reservation": "1" } }),
            "response rule u 451",
        ),
        (
            ON,
            json!({ "headers": { "X-Robots-Tag": "noai" } }),
            "response rule u 451",
        ),
        (
            ON,
            json!({ "content_type": "image/png", "headers": { "X-Robots-Tag": "noimageai" } }),
            "response rule u 451",
        ),
        (
            ON,
            json!({ "content_type": "text/html", "headers": { "X-Robots-Tag": "noimageai" } }),
            "allow response",
        ),
    ]);
}

/// Facts that a tunnel hides are hidden even if a case gives them.
#[test]
fn a_tunnel_has_no_response_facts() {
    let gif = compiled("rules: [{ id: gif, forbid: { content_type: image/gif } }]");
    let titled = compiled(TITLE);
    for policy in [&gif, &titled] {
        for more in [
            json!({}),
            json!({ "content_type": "image/gif" }),
            json!({ "status": 404 }),
            json!({ "title": "x" }),
        ] {
            let mut facts = json!({ "url": "https://h.test/", "tunnel": true });
            facts
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            let facts = CaseFacts::from_json(facts.as_object().unwrap()).unwrap();
            let decision = OfflineEvaluation::new(policy, &facts, Profile::Generic).decision;
            assert_eq!(decision.verdict, Verdict::Undecided, "{more}");
        }
    }
}

/// Lists of URL prefixes exclude tunnels to other hosts.
#[test]
fn a_list_of_other_hosts_leaves_no_tunnel_undecided() {
    fn verdict(kind: &str, item: &str) -> crawlgate::policy::decide::Verdict {
        let lists = format!(
            "lists: {{ l: {{ kind: {kind}, items: ['http://a.test/', '{item}', 'http://z.test/'] }} }}"
        );
        let items = if kind == "surts" {
            lists
                .replace("http://a.test/", "test,a,)/")
                .replace("http://z.test/", "test,z,)/")
        } else {
            lists
        };
        let policy = compiled(&format!(
            "{items}\nrules: [{{ id: x, forbid: {{ in: l }} }}]"
        ));
        let facts = json!({ "url": "https://h.test/", "tunnel": true });
        let facts = CaseFacts::from_json(facts.as_object().unwrap()).unwrap();
        OfflineEvaluation::new(&policy, &facts, Profile::Generic)
            .decision
            .verdict
    }
    let rejected = Verdict::Reject(Reason::Rule);
    for (kind, item, expected) in [
        ("url_prefixes", "https://other.test/x", Verdict::Admit),
        ("url_prefixes", "https://h.test/x", Verdict::Undecided),
        ("url_prefixes", "https://h.test/", rejected),
        ("url_prefixes", "https://h.te", rejected),
        ("surts", "test,other,)/x", Verdict::Admit),
        ("surts", "test,h,)/x", Verdict::Undecided),
        ("surts", "test,", rejected),
    ] {
        assert_eq!(verdict(kind, item), expected, "{kind} {item}");
    }
}

#[test]
fn stripping_leaves_a_tunnel_undecided() {
    fn undecided(rule: &str) -> (crawlgate::policy::decide::Verdict, String) {
        (Verdict::Undecided, rule.to_owned())
    }
    for (body, expected) in [
        (
            "options: { disposition: allow, follow: false, enforce_follow: strip }",
            undecided(""),
        ),
        (
            "options: { disposition: allow, index: false, enforce_index: strip }",
            undecided(""),
        ),
        (
            "options: { disposition: allow, index: false, enforce_index: meta }",
            (Verdict::Admit, "".into()),
        ),
        (
            "options: { disposition: allow, index: false, enforce_follow: strip }",
            (Verdict::Admit, "".into()),
        ),
        (
            "rules: [{ id: x, set: { follow: false, enforce_follow: strip } }]",
            undecided("x"),
        ),
        (
            "options: { disposition: allow, enforce_follow: strip }
rules: [{ id: x, when: { under: /a }, then: no-follow }]",
            undecided("x"),
        ),
        (
            "options: { disposition: allow, index: false }
rules: [{ id: x, when: { content_type: text/html }, set: { enforce_index: strip } }]",
            undecided("x"),
        ),
        (
            "options: { disposition: allow, index: false, enforce_index: strip }
rules: [{ id: x, when: { host: h.test }, set: { enforce_index: header } }]",
            (Verdict::Admit, "".into()),
        ),
    ] {
        let policy = compiled(body);
        let facts = json!({ "url": "https://h.test/", "tunnel": true });
        let facts = CaseFacts::from_json(facts.as_object().unwrap()).unwrap();
        let decision = OfflineEvaluation::new(&policy, &facts, Profile::Generic).decision;
        let rule = match decision.cause {
            Cause::Rule(rule) => policy.rules()[rule.0 as usize].id.to_string(),
            Cause::Default => String::new(),
        };
        assert_eq!((decision.verdict, rule), expected, "{body}");
    }
}

#[test]
fn a_refusal_by_options_alone_has_the_reason_default() {
    check(&[(
        "options: { disposition: allow, html_only: true }",
        json!({ "content_type": "image/gif" }),
        "response default - 451",
    )]);
}

#[test]
fn impossible_values_of_canonical_urls_are_reported() {
    for (rule, expected) in [
        ("forbid: { under: '/u/../v' }", "matches nothing: segments"),
        ("forbid: { path: '/./w' }", "matches nothing: segments"),
        (
            "forbid: { url_prefix: 'http://h.test/a/../b' }",
            "matches nothing: segments",
        ),
        (
            "forbid: { url_prefix: 'http://h.test/a#b' }",
            "without their fragment",
        ),
        (
            "forbid: { url: 'http://h.test/a#b' }",
            "without their fragment",
        ),
        ("set: { politeness: { rate: 5/5m } }", "expected a rate"),
        ("set: { politeness: { rate: 5/0s } }", "expected a rate"),
    ] {
        let body = format!("rules: [{{ id: x, {rule} }}]");
        let reported = match opened(&body) {
            Ok(compiled) => compiled.problems.iter().map(|p| p.render()).collect(),
            Err(problems) => problems,
        };
        assert!(reported.contains(expected), "{rule}: {reported}");
    }
}
