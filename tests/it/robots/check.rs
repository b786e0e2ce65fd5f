//! `crawlgate robots check` as scripts meet it.

use serde_json::{Value as Json, json};

use crate::support::command::{Said, crawlgate};
use crate::support::folder::Folder;

const FILE: &str =
    "User-agent: NewsBot\nDisallow: /x\nAllow: /x/y\nCrawl-delay: 2.5\n\nUser-agent: *\nDisallow: /\n";

fn run(arguments: &[&str], input: &str) -> Said {
    let folder = Folder::new();
    folder.write("robots.txt", FILE);
    crawlgate(folder.path(), &[&["robots", "check"], arguments].concat(), input)
}

#[test]
fn words() {
    let said =
        run(&["--file", "robots.txt", "--agent", "newsbot/1.0", "http://a.example/x", "/x/y/z", "/q"], "");
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(
        lines,
        [
            "disallow  http://a.example/x  line 2: Disallow: /x  (group NewsBot)  crawl-delay 2500ms",
            "allow     /x/y/z  line 3: Allow: /x/y  (group NewsBot)  crawl-delay 2500ms",
            "allow     /q  no rule matches  (group NewsBot)  crawl-delay 2500ms",
        ]
    );
}

#[test]
fn json_from_standard_input() {
    let said =
        run(&["--file", "robots.txt", "--agent", "other", "--format", "json"], "/x\nhttp:\n/robots.txt\n");
    assert_eq!(said.code, 1);
    let lines: Vec<Json> = said.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        lines[0],
        json!({ "url": "/x", "allow": false, "line": 7, "rule": "Disallow: /", "group": "*", "crawl_delay": null })
    );
    assert!(lines[1]["error"].is_string() && lines[1]["input"] == "http:", "{}", lines[1]);
    assert_eq!((&lines[2]["allow"], &lines[2]["line"]), (&json!(true), &Json::Null));
}

#[test]
fn the_file_from_standard_input() {
    let said = run(&["--file", "-", "--agent", "x", "/a"], "User-agent: *\nDisallow: /a\n");
    assert_eq!((said.code, said.out.as_str()), (0, "disallow  /a  line 2: Disallow: /a  (group *)\n"));
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
