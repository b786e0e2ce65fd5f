//! Statements of sites on uses, and for other robots, through the whole proxy: `robots.usage`, `usage.NAME` and `X-Robots-Tag`.

use super::gate::{gate, get_as};
use crate::support::origin::{Reply, ScriptedOrigin, response};

const FILE: &str = "Content-Signal: search=yes\nUser-agent: *\nContent-Usage: /art train-ai=n\nDisallow: /private\n\n\
                    User-agent: friend\nContent-Usage: train-ai=y\n";

/// A site with a robots.txt; a page has the fields that its path spells: `/h/Name:value`.
fn site() -> ScriptedOrigin {
    ScriptedOrigin::respond(|request| {
        let path = request.path();
        if path == "/robots.txt" {
            return Reply::Bytes(response(200, "Content-Type: text/plain\r\n", FILE));
        }
        let fields: Vec<String> = path
            .split("/h/")
            .skip(1)
            .map(|field| field.replace('+', " "))
            .collect();
        let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
        let status = if path.contains("missing") { 404 } else { 200 };
        Reply::Bytes(response(
            status,
            &format!("Content-Type: text/html\r\n{fields}"),
            "page",
        ))
    })
}

#[test]
fn a_use_denied_by_robots_txt_is_refused_without_a_fetch() {
    let origin = site();
    let gate = gate("{ usage: [search, AI-Train] }", "");
    fn get(
        gate: &crate::support::proxy::TestProxy,
        origin: &ScriptedOrigin,
        path: &str,
        agent: &str,
    ) -> crate::support::client::Response {
        get_as(gate, &origin.url("a.test", path), agent)
    }
    get(&gate, &origin, "/open", "bot").check(200, &["page"]);
    get(&gate, &origin, "/art/1", "bot").check(
        451,
        &[
            "crawl-status: REJECTED_USAGE",
            "crawl-reason: usage",
            "crawl-retry: policy-change",
            "details=\"usage; line=3\"",
            "\"stage\":\"robots\"",
            "line 3 of the host's robots.txt denies the use train-ai",
        ],
    );
    get(&gate, &origin, "/art/1", "Friend/1.0").check(200, &["page"]);
    get(&gate, &origin, "/private", "bot").check(451, &["crawl-reason: robots_txt"]);
    let heads = origin.heads();
    assert_eq!(
        heads
            .iter()
            .filter(|head| head.starts_with("GET /art/1 "))
            .count(),
        1
    );
}

#[test]
fn a_use_that_an_answer_denies_is_refused_with_its_body() {
    let origin = site();
    let gate = gate("{ usage: [train-ai] }", "");
    fn get(
        gate: &crate::support::proxy::TestProxy,
        origin: &ScriptedOrigin,
        path: &str,
    ) -> crate::support::client::Response {
        get_as(gate, &origin.url("a.test", path), "bot")
    }
    for path in [
        "/h/Content-Usage:train-ai=n",
        "/h/Content-Signal:search=yes,+ai-train=NO",
        "/x/h/Content-Usage:train-ai=y/h/Content-Signal:ai-train=no",
    ] {
        let answer = get(&gate, &origin, path);
        answer.check(
            451,
            &[
                "crawl-reason: usage",
                "\"stage\":\"response\"",
                "crawl-status: REJECTED_USAGE",
                "the answer denies a use",
            ],
        );
        assert!(!answer.body.ends_with("page"), "{answer}");
    }
    for path in [
        "/h/Content-Usage:train-ai=y,search=n",
        "/h/Content-Usage:train-ai=%22n%22",
        "/missing/h/Content-Usage:train-ai=n",
    ] {
        let answer = get(&gate, &origin, path);
        assert!(answer.body.ends_with("page"), "{answer}");
    }
}

/// A rule on answers declares the use, so robots.txt was not asked about it before.
#[test]
fn the_source_of_a_denied_use_is_reported() {
    let rule = "{ id: late, when: { status: 200 }, set: { robots: { usage: [train-ai] } } }";
    let origin = site();
    let gate = gate("{}", rule);
    fn get(
        gate: &crate::support::proxy::TestProxy,
        origin: &ScriptedOrigin,
        path: &str,
    ) -> crate::support::client::Response {
        get_as(gate, &origin.url("a.test", path), "bot")
    }
    get(&gate, &origin, "/art/1").check(
        451,
        &[
            "\"stage\":\"response\"",
            "usage; rule=late; line=3",
            "line 3 of the host's robots.txt denies the use train-ai",
        ],
    );
    get(&gate, &origin, "/h/Content-Usage:train-ai=n")
        .check(451, &["\"stage\":\"response\"", "the answer denies a use"]);
}

#[test]
fn reservations_of_text_and_data_mining_and_noai_deny_uses() {
    let origin = site();
    let trains = gate("{ usage: [train-ai] }", "");
    let mines = gate("{ usage: [tdm] }", "");
    let searches = gate("{ usage: [search] }", "");
    let get = |gate: &crate::support::proxy::TestProxy, fields: &str| {
        get_as(gate, &origin.url("a.test", fields), "bot")
    };
    for (fields, training, mining) in [
        ("/h/TDM-Reservation:1", 451, 451),
        ("/h/TDM-Reservation:0", 200, 200),
        ("/h/TDM-Reservation:0/h/TDM-Reservation:1", 451, 451),
        ("/h/X-Robots-Tag:noai,+noimageai", 451, 200),
        ("/h/X-Robots-Tag:other:+noai", 200, 200),
        ("/h/X-Robots-Tag:bot:+noai", 451, 200),
        ("/h/X-Robots-Tag:noimageai", 200, 200),
        ("/missing/h/TDM-Reservation:1", 404, 404),
    ] {
        let reason: &[&str] = match training {
            451 => &["crawl-reason: usage", "the answer denies a use"],
            _ => &[],
        };
        get(&trains, fields).check(training, reason);
        get(&mines, fields).check(mining, &[]);
        let open = if fields.contains("missing") { 404 } else { 200 };
        get(&searches, fields).check(open, &[]);
    }
}

#[test]
fn the_terms_of_a_site_are_tagged() {
    let origin = ScriptedOrigin::respond(|request| match request.path() {
        "/robots.txt" => Reply::Bytes(response(
            200,
            "Content-Type: text/plain\r\n",
            "User-agent: *\nContent-Usage: search=n\nLicense: https://a.test/license.xml\n",
        )),
        "/paid" => Reply::Bytes(response(402, "Crawler-Price: USD 0.05\r\n", "pay")),
        "/linked" => Reply::Bytes(response(
            200,
            "Link: </other.xml>; rel=\"license\"; type=\"application/rsl+xml\"\r\n\
             Crawler-Price: USD 0.05\r\nTDM-Reservation: 1\r\n",
            "page",
        )),
        "/missing" => Reply::Bytes(response(404, "", "none")),
        _ => Reply::Bytes(response(200, "", "page")),
    });
    let rules = "{ id: note, when: { usage.tdm: deny, usage.search: deny }, set: { source: reserved } }, \
                 { id: priced, when: { header.crawler-price: { prefix: USD }, status: 402 }, set: { source: priced } }, \
                 { id: sold, when: { license: 'https://a.test/license.xml', path: /sold }, then: exclude }";
    let gate = gate("{}", rules);
    for (path, status, expected, absent) in [
        (
            "/page",
            200,
            &[
                "crawl-tag: licensed; by=https://a.test/license.xml",
                "crawl-tag: denied; use=search",
            ][..],
            &["priced", "use=tdm"][..],
        ),
        (
            "/linked",
            200,
            &[
                "crawl-tag: licensed; by=/other.xml",
                "crawl-tag: denied; use=search",
                "crawl-tag: denied; use=tdm",
                "crawl-source: reserved",
            ],
            &["license.xml", "crawl-tag: priced"],
        ),
        (
            "/paid",
            402,
            &[
                "crawl-tag: licensed; by=https://a.test/license.xml",
                "crawl-tag: priced; at=USD 0.05",
                "crawl-source: priced",
                "crawler-price: USD 0.05",
            ],
            &["denied"],
        ),
        ("/missing", 404, &[], &["crawl-tag"]),
        ("/sold", 451, &["crawl-rule: sold"], &["crawl-tag"]),
    ] {
        let answer = get_as(&gate, &origin.url("a.test", path), "bot");
        answer.check(status, expected);
        for text in absent {
            assert!(!answer.head.contains(text), "{path}: {text}\n{answer}");
        }
    }
}

#[test]
fn a_policy_that_does_not_obey_ignores_usage() {
    let origin = site();
    let gate = gate("{ usage: [train-ai], obey: false }", "");
    get_as(&gate, &origin.url("a.test", "/art/1"), "bot").check(200, &["page"]);
    get_as(
        &gate,
        &origin.url("a.test", "/h/Content-Usage:train-ai=n"),
        "bot",
    )
    .check(200, &["page"]);
}

#[test]
fn rules_match_usage_of_robots_txt_and_headers() {
    let rules = "{ id: no-training, forbid: { usage.train-ai: deny } }, \
                 { id: tell, when: { usage.search: allow, usage.other: unset }, set: { source: searchable } }";
    let origin = site();
    let gate = gate("{}", rules);
    fn get(
        gate: &crate::support::proxy::TestProxy,
        origin: &ScriptedOrigin,
        path: &str,
        agent: &str,
    ) -> crate::support::client::Response {
        get_as(gate, &origin.url("a.test", path), agent)
    }
    get(&gate, &origin, "/art/1", "bot")
        .check(451, &["crawl-rule: no-training", "crawl-reason: rule"]);
    get(&gate, &origin, "/art/1", "friend").check(200, &["crawl-source: searchable"]);
    get(&gate, &origin, "/h/Content-Usage:train-ai=n", "friend")
        .check(451, &["crawl-rule: no-training"]);
    assert!(
        !get(&gate, &origin, "/h/Content-Usage:search=n", "bot")
            .head
            .contains("crawl-source")
    );
}

#[test]
fn directives_for_other_robots_are_ignored() {
    let rules = "{ id: no-index, forbid: { meta_robots: { regex: '(?i)noindex|none' } } }";
    let origin = site();
    let by_agent = gate("{}", rules);
    let named = gate("{ agent: mine }", rules);
    let get = |gate: &crate::support::proxy::TestProxy, field| {
        get_as(
            gate,
            &origin.url("a.test", &format!("/h/X-Robots-Tag:{field}")),
            "Bot/1.0",
        )
    };
    for field in [
        "noindex",
        "nofollow,+bot:+NONE",
        "otherbot:+all,+bot:+noindex",
        "*:none",
        "otherbot:all/h/X-Robots-Tag:none",
    ] {
        get(&by_agent, field).check(451, &["crawl-rule: no-index"]);
    }
    for field in [
        "googlebot:+noindex",
        "googlebot:+noindex,+nofollow,+otherbot:+none",
        "nofollow,+other:+none,+noindex",
    ] {
        get(&by_agent, field).check(200, &["page"]);
    }
    get(&named, "bot:+noindex").check(200, &["page"]);
    get(&named, "mine:+noindex").check(451, &["crawl-rule: no-index"]);
}

#[test]
fn spaces_give_crawlers_agents_of_their_own() {
    let config = "listen: 127.0.0.1:0\nadmin: { listen: 127.0.0.1:0 }\nlogs: { decisions: none }\n\
                  policy: { path: policy.yaml, watch: false }\n\
                  crawlers: [{ name: near, sources: [127.0.0.2/32] }, { name: here, sources: [127.0.0.1/32] }]\n\
                  egress: { allow_loopback: true, ports: [1-65535], hosts: { a.test: 127.0.0.1 } }\n";
    fn policy(agent: &str) -> String {
        format!(
            "policy: 1\nname: p\noptions: {{ disposition: allow, robots: {{ usage: [train-ai] }} }}\nspaces:\n  - \
             {{ name: s, crawlers: [here], options: {{ robots: {{ agent: {agent} }} }} }}\n  - \
             {{ name: t, crawlers: [near] }}\n"
        )
    }
    let origin = site();
    for (agent, status) in [("friend", 200), ("foe", 451)] {
        let gate = crate::support::proxy::TestProxy::start(config, &policy(agent));
        get_as(&gate, &origin.url("a.test", "/art/1"), "whoever").check(status, &[]);
    }
}
