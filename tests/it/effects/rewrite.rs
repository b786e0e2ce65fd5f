//! `strip_params` and `replace` with `rewrite: true`, and traps, over real sockets.

use crate::effects::Site;
use crate::support::client::get_with;
use crate::support::policy::allow_all;
use crate::support::proxy::CONFIG;

fn last(site: &Site) -> String {
    site.origin.heads().last().cloned().unwrap_or_default()
}

const REWRITES: &str = "  strip_params: { names: [sid, utm_*], rewrite: true }";

#[test]
fn a_rewritten_url_is_fetched_and_evaluated() {
    let rules = "  - { id: old, when: { under: /old }, set: { replace: [{ regex: '/old', with: '/new', rewrite: true }] } }
  - { id: secret, forbid: { under: /new/secret } }
  - { id: asked, forbid: { in_query: utm_campaign } }";
    let site = Site::new(&allow_all(REWRITES, rules), |_| None);
    for (path, fetched) in [
        ("/a?sid=1&b=2", "/a?b=2"),
        ("/a?b=2", "/a?b=2"),
        ("/old/x", "/new/x"),
        ("/old/x?sid=1", "/new/x"),
        // The second time nothing is rewritten, so that the redirects end.
        ("/old/old", "/new/new"),
    ] {
        let answer = site.get(path);
        assert_eq!(answer.status, 200, "{path}");
        let line = format!("GET {fetched} HTTP/1.1");
        assert!(last(&site).starts_with(&line), "{path}: {}", last(&site));
    }
    // Conditions see the requested URL first, and then the rewritten one.
    for (path, rule) in [("/a?utm_campaign=x", "asked"), ("/old/secret", "secret")] {
        let answer = site.get(path);
        assert_eq!(answer.status, 451, "{path}");
        assert_eq!(answer.value("crawl-rule"), rule, "{path}");
    }
}

#[test]
fn credentials_do_not_follow_a_rewrite_to_another_host() {
    let replace = "  replace: [{ regex: '//a\\.test', with: '//b.test', rewrite: true }]";
    let site = Site::new(&allow_all(replace, "  - { set: { index: true } }"), |_| {
        None
    });
    let secret = "Cookie: a=b\r\nAuthorization: Basic eA==\r\nX-Other: 1\r\n";
    assert_eq!(site.get_with("/", secret).status, 200);
    let head = last(&site).to_ascii_lowercase();
    assert!(head.contains("host: b.test:"), "{head}");
    assert!(head.contains("x-other"), "{head}");
    assert!(!head.contains("cookie"), "{head}");
    assert!(!head.contains("authorization"), "{head}");
    let url = format!("http://b.test:{}/", site.origin.port);
    assert_eq!(get_with(site.gate.proxy, &url, secret).status, 200);
    assert!(
        last(&site).to_ascii_lowercase().contains("cookie"),
        "{}",
        last(&site)
    );
}

#[test]
fn redirects_are_resolved_against_the_fetched_url() {
    let replace = "  replace: [{ regex: '//a\\.test(:\\d+)/old', with: '//b.test$1/new/', rewrite: true }, { regex: \
                   '/mv/', with: '/moved/deep/', rewrite: true }]";
    let site = Site::new(
        &allow_all(
            replace,
            "  - { id: secret, forbid: { under: /new/secret } }",
        ),
        |path| {
            let location = path.rsplit_once('~')?.1.replace('!', "#");
            Some(format!(
                "HTTP/1.1 302 Found\r\nLocation: {location}\r\nSet-Cookie: a=b\r\nContent-Length: 0\r\n\r\n"
            ))
        },
    );
    let a = format!("http://a.test:{}", site.origin.port);
    let b = format!("http://b.test:{}", site.origin.port);
    for (asked, location, cookie, marked) in [
        ("/old~next".to_owned(), format!("{b}/new/next"), "", ""),
        ("/old~/x!part".into(), format!("{b}/x#part"), "", ""),
        (
            "/old~secret".into(),
            format!("{b}/new/secret"),
            "",
            "reject; rule=secret; reason=rule",
        ),
        (
            "/old~http://c.test/x!y".into(),
            "http://c.test/x#y".into(),
            "",
            "",
        ),
        (
            "/old~mailto:x@a.test".into(),
            "mailto:x@a.test".into(),
            "",
            "reject; reason=scheme_denied",
        ),
        ("/mv/~../up".into(), format!("{a}/moved/deep/up"), "a=b", ""),
        // The client sees the same.
        ("/mv/~/top".into(), "/top".into(), "a=b", ""),
        ("/any/~../up".into(), "../up".into(), "a=b", ""),
    ] {
        let answer = site.get(&asked);
        assert_eq!(answer.value("location"), location, "{asked}: {}", answer);
        assert_eq!(answer.value("set-cookie"), cookie, "{asked}");
        assert_eq!(answer.value("crawl-redirect"), marked, "{asked}");
    }
}

#[test]
fn a_trap_names_itself_in_the_answer() {
    let site = Site::with_config(
        CONFIG,
        &allow_all(
            "  traps: builtin",
            "  - { id: t, about: no loops, when: { under: /t }, set: { traps: repeated_run } }",
        ),
        |_| None,
    );
    for (path, rule, detail) in [
        (
            "/a/x/a/y/a",
            "",
            "trap repeated_segment: a path segment occurs three times or more",
        ),
        (
            "/t/a/a/a",
            "t",
            "trap repeated_run: a run of path segments occurs three times in a row; no loops",
        ),
    ] {
        let answer = site.get(path);
        assert_eq!(answer.status, 451);
        assert_eq!(answer.value("crawl-reason"), "trap");
        assert_eq!(answer.value("crawl-status"), "REJECTED_TRAP");
        assert_eq!(answer.value("crawl-retry"), "policy-change");
        assert_eq!(answer.value("crawl-rule"), rule);
        assert!(answer.body.contains(detail), "{}", answer.body);
    }
    assert_eq!(site.get("/t/a/b/a/c/a").status, 200);
}
