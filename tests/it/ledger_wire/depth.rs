//! Depth: by `Crawl-Depth`, by `Referer`, by redirections; the least counts, and unknown matches nothing.

use crawlgate::model::crawl_status::CrawlStatus;

use super::{LedgerBench, bare, path, policy};

fn referer(bench: &LedgerBench, path: &str) -> String {
    format!("Referer: {}\r\n", bench.url("a.test", path))
}

#[test]
fn links_are_counted_from_a_start() {
    let rules = "rules:\n  - { id: second, when: { depth: 2 }, set: { source: second } }";
    let bench = LedgerBench::new(&policy("  max_depth: 2", rules), |_| None);
    bench.get("/");
    assert_eq!(bench.record("news", "/").unwrap().depth, Some(0));
    for (path, from, status, depth) in [
        ("/1", "/", 200, Some(1)),
        ("/2", "/1", 200, Some(2)),
        ("/3", "/2", 451, Some(3)),
    ] {
        let answer = bench.get_with(path, &referer(&bench, from));
        assert_eq!(answer.status, status, "{path}: {}", answer);
        if status == 451 {
            assert_eq!(answer.value("crawl-status"), "REJECTED_TOO_DEEP");
            assert_eq!(answer.value("crawl-reason"), "too_deep");
            bench.until_record(path, "is remembered", |record| !record.is_known());
        } else {
            bench.until_known("news", path);
            assert_eq!(
                answer.value("crawl-source"),
                if depth == Some(2) { "second" } else { "" },
                "{path}"
            );
        }
        assert_eq!(
            bench.record("news", path).and_then(|record| record.depth),
            depth,
            "{path}"
        );
    }
    // A shorter path to it.
    assert_eq!(
        bench
            .get_with("/2", &referer(&bench, "/"))
            .value("crawl-source"),
        ""
    );
    bench.until_record("/2", "is less deep", |record| record.depth == Some(1));
    assert_eq!(bench.get_with("/3", &referer(&bench, "/2")).status, 200);
    bench.until_record("/3", "is known", |record| record.depth == Some(2));
    // The longer path does not change it.
    assert_eq!(bench.get_with("/2", &referer(&bench, "/3")).status, 200);
    // Nothing is known for another crawler.
    let other = bench.ask_as("shop", &bench.url("a.test", "/9"), &referer(&bench, "/3"));
    assert_eq!(other.status, 200);
}

#[test]
fn an_unknown_depth_matches_no_rule() {
    let rules = "rules:\n  - { id: any, forbid: { depth: { min: 0 } } }";
    let bench = LedgerBench::new(&policy("  max_depth: 0", rules), |_| None);
    for fields in [
        "Referer: http://elsewhere.test/\r\n",
        "Referer: nonsense\r\n",
        "Referer: nonsense\r\nCrawl-Depth: 7\r\n",
    ] {
        assert_eq!(bench.get_with("/p", fields).status, 200, "{fields}");
    }
    bench.until_known("news", "/p");
    assert_eq!(
        bench.get_with("/p", "").status,
        200,
        "a URL that is known already is no start"
    );
    assert_eq!(bench.get_with("/q", &referer(&bench, "/p")).status, 200);
    bench.until_known("news", "/q");
    assert_eq!(bench.record("news", "/p").unwrap().depth, None);
    assert_eq!(bench.record("news", "/q").unwrap().depth, None);
}

#[test]
fn rules_see_the_depth_that_is_recorded() {
    let rules = "rules:\n  - { id: start, when: { depth: 0 }, set: { source: start } }";
    let bench = LedgerBench::new(&policy("  max_depth: 5", rules), |_| None);
    for _ in 0..2 {
        assert_eq!(bench.get("/").value("crawl-source"), "start");
        assert_eq!(bench.record("news", "/").unwrap().depth, Some(0));
    }
    let forbid = "rules:\n  - { id: start, forbid: { depth: 0 } }";
    bench.reload(&policy("  max_depth: 5", forbid));
    assert_eq!(bench.get_with("/", "").value("crawl-rule"), "start");
    assert_eq!(bench.get_with("/new", "").value("crawl-rule"), "start");
}

#[test]
fn a_request_without_a_referer_lowers_no_depth() {
    let bench = LedgerBench::new(&policy("  max_depth: 1", ""), |_| None);
    bench.get("/");
    assert_eq!(bench.get_with("/1", &referer(&bench, "/")).status, 200);
    bench.until_known("news", "/1");
    assert_eq!(
        bench
            .get_with("/2", &referer(&bench, "/1"))
            .value("crawl-reason"),
        "too_deep"
    );
    bench.until_record("/2", "is remembered", |record| record.depth == Some(2));
    // A retry, a page with `Referrer-Policy: no-referrer`, a crawler without Referer.
    assert_eq!(bench.get_with("/2", "").value("crawl-reason"), "too_deep");
    assert!(!bench.record("news", "/2").unwrap().is_known());
    assert_eq!(
        bench
            .get_with("/3", &referer(&bench, "/2"))
            .value("crawl-reason"),
        "too_deep",
        "links of a refused URL are counted"
    );
    assert_eq!(bench.get_with("/1", "").status, 200);
    assert_eq!(
        bench
            .get_with("/4", &referer(&bench, "/1"))
            .value("crawl-reason"),
        "too_deep"
    );
    assert_eq!(bench.record("news", "/1").unwrap().depth, Some(1));
    // A shorter path still counts.
    assert_eq!(bench.get_with("/2", &referer(&bench, "/")).status, 200);
}

#[test]
fn a_refused_url_is_not_remembered_where_the_policy_records_no_urls() {
    for record in ["none", "host"] {
        let options = format!("  max_depth: 0\n  record: {record}");
        let bench = LedgerBench::new(&policy(&options, ""), |_| None);
        bench.get("/");
        assert_eq!(
            bench
                .get_with("/1", &referer(&bench, "/"))
                .value("crawl-reason"),
            "too_deep"
        );
        assert_eq!(bench.record("news", "/1"), None, "{record}");
    }
}

#[test]
fn a_permitted_crawler_gives_its_depth() {
    let bench = LedgerBench::new(&policy("  max_depth: 3", ""), |_| None);
    let ask = |path, fields: &str| bench.ask_as("shop", &bench.url("a.test", path), fields);
    assert_eq!(ask("/p", "Crawl-Depth: 3\r\n").status, 200);
    assert_eq!(bench.until_known("shop", "/p").depth, Some(3));
    assert_eq!(
        ask("/q", "Crawl-Depth: 4\r\n").value("crawl-reason"),
        "too_deep"
    );
    assert_eq!(
        ask("/q", &referer(&bench, "/p")).value("crawl-reason"),
        "too_deep"
    );
    // The given depth precedes that of the Referer; a smaller recorded depth wins.
    assert_eq!(
        ask(
            "/q",
            &format!("Crawl-Depth: 1\r\n{}", referer(&bench, "/p"))
        )
        .status,
        200
    );
    bench.until_known("shop", "/q");
    assert_eq!(ask("/q", "Crawl-Depth: 9\r\n").status, 200);
}

#[test]
fn a_redirection_to_a_url_that_is_rewritten_has_a_depth() {
    let options = "  max_depth: 1\n  strip_params: { names: [sid], rewrite: true }";
    let bench = LedgerBench::new(&policy(options, ""), |head| match path(head) {
        "/old" => bare(301, "Location: /new?sid=1\r\n"),
        _ => None,
    });
    bench.get("/");
    assert_eq!(bench.get_with("/old", &referer(&bench, "/")).status, 301);
    bench.until_known("news", "/old");
    assert_eq!(bench.get_with("/new?sid=1", "").status, 200);
    assert_eq!(bench.until_known("news", "/new").depth, Some(1));
    assert_eq!(
        bench
            .get_with("/deeper", &referer(&bench, "/new"))
            .value("crawl-reason"),
        "too_deep"
    );
}

#[test]
fn a_redirection_is_no_link() {
    let bench = LedgerBench::new(&policy("  max_depth: 1", ""), |head| match path(head) {
        "/old" => bare(301, "Location: /new\r\n"),
        _ => None,
    });
    bench.get("/");
    assert_eq!(bench.get_with("/old", &referer(&bench, "/")).status, 301);
    assert_eq!(bench.until_known("news", "/old").depth, Some(1));
    // Some crawlers send the redirecting URL as the Referer.
    assert_eq!(bench.get_with("/new", &referer(&bench, "/old")).status, 200);
    assert_eq!(bench.until_known("news", "/new").depth, Some(1));
    assert_eq!(
        bench
            .get_with("/deeper", &referer(&bench, "/new"))
            .value("crawl-reason"),
        "too_deep"
    );
    assert_eq!(
        bench.record("news", "/new").unwrap().status.0,
        CrawlStatus::Accepted
    );
}

#[test]
fn only_listed_seeds_are_starts_if_the_policy_says_so() {
    let bench = LedgerBench::new(&policy("  max_depth: 1", ""), |_| None);
    bench.folder.write(
        "seeds.txt",
        format!("# of the crawl\n{}\n", bench.url("a.test", "/start")),
    );
    bench.reload(&policy(
        "  max_depth: 1\n  depth: { start: seeds }",
        "spaces:\n  - { name: all, seeds: seeds.txt }",
    ));
    for (path, fields, status, depth) in [
        ("/start", "", 200, Some(0)),
        ("/1", &*referer(&bench, "/start"), 200, Some(1)),
        ("/2", &*referer(&bench, "/1"), 451, Some(2)),
        ("/other", "", 200, None),
        ("/linked", &*referer(&bench, "/other"), 200, None),
    ] {
        assert_eq!(bench.get_with(path, fields).status, status, "{path}");
        bench.until_record(path, "has its depth", |record| record.depth == depth);
    }
    // A seed is one however it is reached, and `Crawl-Depth: 0` still counts.
    assert_eq!(bench.get_with("/start", &referer(&bench, "/2")).status, 200);
    let url = bench.url("a.test", "/stated");
    assert_eq!(bench.ask_as("shop", &url, "Crawl-Depth: 0\r\n").status, 200);
    assert_eq!(bench.until_known("shop", "/stated").depth, Some(0));
}

#[test]
fn only_the_header_counts_if_the_policy_says_so() {
    let options = "  max_depth: 0\n  depth: { start: header }";
    let bench = LedgerBench::new(&policy(options, ""), |_| None);
    assert_eq!(bench.get("/").status, 200);
    assert_eq!(bench.record("news", "/").unwrap().depth, None);
    assert_eq!(bench.get_with("/1", &referer(&bench, "/")).status, 200);
    // A crawler that may not send the field has no depth at all.
    let stated = "Crawl-Depth: 0\r\n";
    assert_eq!(bench.get_with("/2", stated).status, 200);
    assert_eq!(bench.until_known("news", "/2").depth, None);
    let ask = |path, fields: &str| bench.ask_as("shop", &bench.url("a.test", path), fields);
    assert_eq!(ask("/", stated).status, 200);
    assert_eq!(bench.until_known("shop", "/").depth, Some(0));
    let linked = ask("/1", &referer(&bench, "/"));
    assert_eq!(linked.value("crawl-reason"), "too_deep");
}
