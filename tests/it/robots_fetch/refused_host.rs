//! The robots.txt of a host that the policy refuses as a whole, or that an operator has stopped: it forbids everything only
//! if the refusal means "never", and the origin is not contacted.

use crate::support::client::get;
use crate::support::origin::{ScriptedOrigin, response};
use crate::support::proxy::TestProxy;

const FILE: &str = "User-agent: *\nDisallow: /private\n";
const DISALLOW_ALL: &str = "User-agent: *\nDisallow: /\n";
const ALLOW_ALL: &str = "User-agent: *\nDisallow:\n";

const CONFIG: &str = "listen: 127.0.0.1:0
admin: { listen: 127.0.0.1:0 }
policy: { path: policy.yaml, watch: false }
logs: { decisions: log.json }
egress:
  ports: [1-65535]
  allow_loopback: true
  hosts: { deny.test: 127.0.0.1, gone.test: 127.0.0.1, keep.test: 127.0.0.1, later.test: 127.0.0.1, mixed.test: 127.0.0.1 }
";

fn proxy(rules: &str) -> TestProxy {
    TestProxy::start(CONFIG, &policy(rules))
}

fn policy(rules: &str) -> String {
    format!(
        "policy: 1\nname: p\noptions: {{ disposition: allow, politeness: {{ delay: 0s }} }}\nrules: [{rules}]\n"
    )
}

fn site() -> ScriptedOrigin {
    ScriptedOrigin::respond(|request| match request.path() {
        "/robots.txt" => response(200, "Content-Type: text/plain\r\n", FILE),
        _ => response(200, "", "page"),
    })
}

const BY_INTENT: &str = "
  { id: deny, forbid: { host: deny.test } },
  { id: gone, forbid: { host: gone.test }, reject: gone },
  { id: keep, forbid: { host: keep.test }, reject: keep },
  { id: later, forbid: { host: later.test }, reject: later },
  { id: some, forbid: { all: [ { host: mixed.test }, { under: /news } ] }, reject: keep },
  { id: rest, forbid: { host: mixed.test } }";

#[test]
fn only_a_final_refusal_forbids_everything() {
    let origin = site();
    let proxy = proxy(BY_INTENT);
    for (host, rule, body) in [
        ("deny.test", "deny", DISALLOW_ALL),
        ("gone.test", "gone", DISALLOW_ALL),
        ("keep.test", "keep", ALLOW_ALL),
        // Some of its pages are to stay in the index.
        ("mixed.test", "rest", ALLOW_ALL),
    ] {
        let answer = get(proxy.proxy, &origin.url(host, "/robots.txt"));
        answer.check(
            200,
            &[
                "crawl-reason: rule",
                &format!("crawl-rule: {rule}"),
                "cache-control: no-store",
                "content-type: text/plain",
            ],
        );
        assert_eq!(answer.body, body, "{host}");
    }
    let answer = get(proxy.proxy, &origin.url("later.test", "/robots.txt"));
    answer.check(503, &["crawl-reason: rule", "retry-after: 5"]);
    get(proxy.proxy, &origin.url("keep.test", "/")).check(451, &["crawl-rule: keep"]);
    get(proxy.proxy, &origin.url("mixed.test", "/news/")).check(451, &["crawl-rule: some"]);
    assert_eq!(
        origin.connections(),
        0,
        "nothing is asked of a refused host"
    );
}

/// A 4xx that a rule sets as the status would mean that everything is allowed.
#[test]
fn a_refusal_for_later_is_a_503_whatever_status_pages_get() {
    let origin = site();
    let rule = "{ id: later, forbid: { host: later.test }, reject: later, reject_status: 404 }";
    let proxy = proxy(rule);
    get(proxy.proxy, &origin.url("later.test", "/")).check(404, &[]);
    get(proxy.proxy, &origin.url("later.test", "/robots.txt")).check(503, &["retry-after: 5"]);
}

#[test]
fn a_refused_host_keeps_the_robots_txt_that_is_known() {
    let origin = site();
    let proxy = proxy("");
    for host in ["deny.test", "keep.test", "later.test"] {
        get(proxy.proxy, &origin.url(host, "/robots.txt")).check(200, &[FILE]);
    }
    proxy.write("policy.yaml", &policy(BY_INTENT));
    proxy.admin("POST /api/v1/reload").check(200, &[]);
    for (host, body) in [
        ("deny.test", DISALLOW_ALL),
        ("keep.test", FILE),
        ("later.test", FILE),
    ] {
        let answer = get(proxy.proxy, &origin.url(host, "/robots.txt"));
        answer.check(200, &["crawl-reason: rule", "cache-control: no-store"]);
        assert_eq!(answer.body, body, "{host}");
    }
    assert_eq!(origin.requests().len(), 3, "those before the reload");
}
