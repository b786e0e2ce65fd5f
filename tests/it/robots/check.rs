//! `crawlgate robots check` as scripts use it.

use serde_json::{Value as Json, json};

use crate::support::command::{CommandOutput, crawlgate};
use crate::support::temp_dir::TempDir;

const FILE: &str = "User-agent: NewsBot\nDisallow: /x\nAllow: /x/y\nCrawl-delay: 2.5\n\nUser-agent: *\nDisallow: /\n";

fn run(arguments: &[&str], input: &str) -> CommandOutput {
    let folder = TempDir::new();
    folder.write("robots.txt", FILE);
    crawlgate(
        folder.path(),
        &[&["robots", "check"], arguments].concat(),
        input,
    )
}

#[test]
fn words() {
    let output = run(
        &[
            "--file",
            "robots.txt",
            "--agent",
            "newsbot/1.0",
            "http://a.example/x",
            "/x/y/z",
            "/q",
        ],
        "",
    );
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(
        lines,
        [
            "disallow  http://a.example/x  line 2: Disallow: /x  (group NewsBot)  crawl-delay 2500ms",
            "allow     /x/y/z  line 3: Allow: /x/y  (group NewsBot)  crawl-delay 2500ms",
            "allow     /q  no rule matches  (group NewsBot)  crawl-delay 2500ms"
        ]
    );
}

#[test]
fn paths_may_begin_with_two_slashes_and_urls_have_fragments() {
    let file = "User-agent: *\nDisallow: //y\nDisallow: /x\nAllow: /x$\n";
    let arguments = [
        "--file",
        "-",
        "--agent",
        "*",
        "//",
        "//y",
        "/x#part",
        "http://a.example/x/1#part",
        "http://user:pass@a.example/x/1",
    ];
    let output = run(&arguments, file);
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(
        lines,
        [
            "allow     //  no rule matches  (group *)",
            "disallow  //y  line 2: Disallow: //y  (group *)",
            "allow     /x#part  line 4: Allow: /x$  (group *)",
            "disallow  http://a.example/x/1#part  line 3: Disallow: /x  (group *)",
            "disallow  http://user:pass@a.example/x/1  line 3: Disallow: /x  (group *)",
        ],
        "{}",
        output.stderr
    );
    assert_eq!(output.code, 0);
}

/// The token that is used is shown if `--agent` is not just a token.
#[test]
fn a_user_agent_is_reduced_to_its_token() {
    let file = "User-agent: GoodBot\nDisallow: /good\n\nUser-agent: Mozilla\nDisallow: /mozilla\n";
    let agent = "Mozilla/5.0 (compatible; GoodBot/2.1; +http://good.example/)";
    let output = run(
        &["--file", "-", "--agent", agent, "/good", "/mozilla", "/"],
        file,
    );
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(
        lines,
        [
            "agent     GoodBot (and Mozilla: the stricter answer counts)",
            "disallow  /good  line 2: Disallow: /good  (group GoodBot)",
            "disallow  /mozilla  line 5: Disallow: /mozilla  (group Mozilla)",
            "allow     /  no rule matches  (group GoodBot)",
        ],
        "{}",
        output.stderr
    );
    let output = run(
        &["--file", "-", "--agent", agent, "--format", "json", "/good"],
        file,
    );
    let json: Json = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(json["agent"], "GoodBot");
}

/// The verdict is that of RFC 9309 on the path as given; a further line says that the proxy is stricter.
#[test]
fn a_disallowed_reading_adds_a_line() {
    let arguments = ["--file", "robots.txt", "--agent", "newsbot", "//x/1", "//q"];
    let output = run(&arguments, "");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(
        lines,
        [
            "allow     //x/1  no rule matches  (group NewsBot)  crawl-delay 2500ms",
            "refused   by the proxy: servers that decode escapes and merge slashes read it as /x/1, line 2: Disallow: /x",
            "allow     //q  no rule matches  (group NewsBot)  crawl-delay 2500ms"
        ]
    );
}

#[test]
fn json_from_standard_input() {
    let output = run(
        &[
            "--file",
            "robots.txt",
            "--agent",
            "other",
            "--format",
            "json",
        ],
        "/x\nhttp:\n/robots.txt\n",
    );
    assert_eq!(output.code, 1);
    let lines: Vec<Json> = output
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        lines[0],
        json!({
            "url": "/x", "agent": "other", "allow": false, "line": 7, "rule": "Disallow: /", "group": "*",
            "crawl_delay": null, "request_rate": null, "usage": {},
        })
    );
    assert!(lines[1]["error"].is_string(), "{}", lines[1]);
    assert!(lines[1]["input"] == "http:", "{}", lines[1]);
    assert_eq!(
        (&lines[2]["allow"], &lines[2]["line"]),
        (&json!(true), &Json::Null)
    );
}

#[test]
fn the_file_from_standard_input() {
    let output = run(
        &["--file", "-", "--agent", "x", "/a"],
        "User-agent: *\nDisallow: /a\n",
    );
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (0, "disallow  /a  line 2: Disallow: /a  (group *)\n")
    );
}

#[test]
fn extensions_of_a_file_are_listed() {
    let file = "Host: a.example\nUser-agent: *\nContent-Usage: /a train-ai=n, search=y\nContent-Signal: ai-input=no\n\
                Visit-time: 0600-0845\nClean-param: sid /shop\nLicense: https://a.example/l.xml\nSitemap: http://a.example/s.xml\nDisallow: /x\n";
    let output = run(&["--file", "-", "--agent", "x", "/a", "/x"], file);
    assert_eq!(
        output.stdout.lines().collect::<Vec<_>>(),
        [
            "sitemap   http://a.example/s.xml",
            "visit     0600-0845",
            "clean     sid /shop",
            "host      a.example",
            "license   https://a.example/l.xml",
            "allow     /a  no rule matches  (group *)  usage train-ai=deny (line 3), search=allow (line 3), \
             ai-input=deny (line 4)",
            "disallow  /x  line 9: Disallow: /x  (group *)  usage ai-input=deny (line 4)"
        ]
    );
    let output = run(
        &["--file", "-", "--agent", "x", "--format", "json", "/x"],
        file,
    );
    let json: Json = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(
        json["usage"],
        json!({ "ai-input": { "preference": "deny", "line": 4 } })
    );
    assert_eq!(json["sitemaps"], Json::Null, "told once, by `fetch`");
}

#[test]
fn the_request_rate_of_a_group_is_shown() {
    let file = "User-agent: *\nRequest-rate: 30/1m\n";
    let output = run(&["--file", "-", "--agent", "x", "/a"], file);
    assert_eq!(
        output.stdout,
        "allow     /a  no rule matches  (group *)  request-rate 1/2s\n"
    );
    let output = run(
        &["--file", "-", "--agent", "x", "--format", "json", "/a"],
        file,
    );
    assert_eq!(
        serde_json::from_str::<Json>(&output.stdout).unwrap()["request_rate"],
        "1/2s"
    );
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let file = "Sitemap: /\u{202e}lmx\u{200b}\nUser-agent: *\nDisallow: /\u{1b}[2J\n";
    let output = run(&["--file", "-", "--agent", "x", "/a"], file);
    assert!(
        output
            .stdout
            .starts_with("sitemap   /\\u{202e}lmx\\u{200b}\n"),
        "{:?}",
        output.stdout
    );
    assert!(!output.stdout.contains('\u{1b}'), "{:?}", output.stdout);
}

#[test]
fn wrong_usage() {
    for arguments in [
        &["--file", "none.txt", "--agent", "x", "/a"][..],
        &["--file", "robots.txt", "--agent", "(x)", "/a"],
        &["--file", "-", "--agent", "x"],
        &["--file", "robots.txt", "/a"],
    ] {
        assert_eq!(run(arguments, "").code, 2, "{arguments:?}");
    }
}
