//! `Crawl-Redirect`: the policy's decision about the target of a redirect, for a page or for a part of one.

use super::{LedgerBench, bare, path, policy};

const RULES: &str = "rules:
  - { id: private, forbid: { under: /private } }
  - { id: parts, when: { under: /parts }, rules: [ { id: no-embed, forbid: { dest: embed } } ] }
  - { id: posted, forbid: { under: /form, method: POST } }
";

#[test]
fn a_redirect_to_a_refused_url_is_marked() {
    let bench = LedgerBench::new(&policy("", RULES), |head| {
        let (status, location) = path(head)[1..].split_once('/')?;
        bare(status.parse().ok()?, &format!("Location: {location}\r\n"))
    });
    for (asked, fields, marked) in [
        ("/301//private/x", "", "reject; rule=private; reason=rule"),
        ("/302//open", "", ""),
        ("/307//private", "", "reject; rule=private; reason=rule"),
        ("/201//private", "", ""),
        ("/304//private", "If-None-Match: \"x\"\r\n", ""),
        ("/302//parts/x", "", ""),
        ("/302//parts/x", "Sec-Fetch-Dest: document\r\n", ""),
        (
            "/302//parts/x",
            "Sec-Fetch-Dest: image\r\n",
            "reject; rule=no-embed; reason=rule",
        ),
        ("/302/mailto:x@a.test", "", "reject; reason=scheme_denied"),
        ("/302/http:////", "", ""),
    ] {
        let answer = bench.get_with(asked, fields);
        assert_eq!(
            answer.value("crawl-redirect"),
            marked,
            "{asked} {fields}: {}",
            answer
        );
    }
    for (asked, marked) in [
        ("/302//form", ""),
        ("/307//form", "reject; rule=posted; reason=rule"),
    ] {
        assert_eq!(
            bench.send("POST", asked).value("crawl-redirect"),
            marked,
            "{asked}"
        );
    }
}

#[test]
fn a_site_cannot_say_it_itself() {
    let bench = LedgerBench::new(&policy("", RULES), |_| {
        bare(
            302,
            "Location: /open\r\nCrawl-Redirect: reject\r\nCrawl-Tag: duplicate\r\nCrawl-Error: permanent\r\n",
        )
    });
    let answer = bench.get_with("/p", "");
    assert_eq!(
        (answer.value("crawl-redirect"), answer.value("crawl-tag")),
        ("", "")
    );
    assert_eq!(answer.value("crawl-error"), "");
}
