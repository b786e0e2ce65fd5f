//! `crawlgate import`: the words of the command, what it writes, and its exit codes. The importers have their own tests.

use std::fs;
use std::path::{Path, PathBuf};

use crawlgate_import::System;
use serde_json::Value as Json;

mod documentation;

use crate::support::command::crawlgate;
use crate::support::temp_dir::TempDir;

const SQUID: &str = "acl bad dstdomain .bad.example\nhttp_access deny bad\nhttp_access allow all\n";

/// A rule that depends on the hour is not converted.
const PARTLY: &str = "acl nightly time 22:00-06:00\nacl bad dstdomain .bad.example\nhttp_access deny nightly\nhttp_access deny bad\nhttp_access allow all\n";

fn source(system: &str, name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("tests/import").join(system).join(name)
}

#[test]
fn the_help_has_an_example_for_each_system() {
    let help = crawlgate(Path::new("."), "help import", "").stdout;
    for system in System::all() {
        assert!(help.contains(system.example()), "{}", system.example());
    }
}

#[test]
fn a_directory_gets_the_policy_the_report_and_a_proposal() {
    let folder = TempDir::new();
    folder.write("squid.conf", SQUID);
    let output = crawlgate(folder.path(), "import squid squid.conf -o policy", "");
    assert_eq!(output.code, 0, "{}", output.stderr);
    let read = |name: &str| fs::read_to_string(folder.path().join("policy").join(name)).unwrap();
    assert!(read("policy.yaml").contains("bad.example"));
    let report: Json = serde_json::from_str(&read("report.json")).unwrap();
    assert_eq!(report["lists"]["not_converted"], Json::Array(vec![]));
    assert!(read("configuration.yaml").starts_with("# A proposal"));
    let test = crawlgate(folder.path(), "test policy/policy.yaml --coverage", "");
    assert_eq!(test.code, 0, "{}", test.stdout);
    let again = crawlgate(folder.path(), "import squid squid.conf -o policy", "");
    assert_eq!(again.code, 2, "{}", again.stderr);
    let again = crawlgate(
        folder.path(),
        "import squid squid.conf -o policy --force",
        "",
    );
    assert_eq!(again.code, 0, "{}", again.stderr);
}

#[test]
fn without_a_directory_the_policy_is_on_standard_output_and_the_system_is_recognized() {
    let output = crawlgate(Path::new("."), "import -", SQUID);
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(output.stdout.contains("policy: 1"), "{}", output.stdout);
    assert!(output.stdout.contains("bad.example"), "{}", output.stdout);
    assert!(output.stderr.contains("read as a file of squid"));
    assert!(output.stderr.contains("converted"));
}

#[test]
fn each_source_is_recognized_or_the_systems_are_asked_for() {
    for (name, text, system) in [
        (
            "settings.py",
            "BOT_NAME = 'shop'\nEXTRA = r'\\bx\\b'\n",
            "scrapy",
        ),
        ("robots.txt", "User-agent: *\nDisallow: /a\\.b\n", "robots"),
        ("easylist.txt", "||ads.example^\n", "lists"),
        ("domains.txt", "ads.example\n", "lists"),
    ] {
        let folder = TempDir::new();
        folder.write(name, text);
        let output = crawlgate(
            folder.path(),
            format!("import {name} --lenient").as_str(),
            "",
        );
        let expected = format!("read as a file of {system}");
        assert!(output.stderr.contains(&expected), "{}", output.stderr);
    }
}

#[test]
fn nothing_is_written_if_something_is_not_converted() {
    let folder = TempDir::new();
    folder.write("squid.conf", PARTLY);
    let output = crawlgate(folder.path(), "import squid squid.conf -o policy", "");
    assert_eq!(output.code, 1, "{}", output.stderr);
    assert!(output.stderr.contains("without it more is allowed"));
    assert!(!folder.path().join("policy").exists());
    let command = "import squid squid.conf -o policy --lenient --report report.json --format json";
    let output = crawlgate(folder.path(), command, "");
    assert_eq!(output.code, 1, "{}", output.stderr);
    let policy = fs::read_to_string(folder.path().join("policy/policy.yaml")).unwrap();
    assert!(policy.contains("# not converted"), "{policy}");
    let report = fs::read(folder.path().join("report.json")).unwrap();
    let report: Json = serde_json::from_slice(&report).unwrap();
    assert_eq!(report["lists"]["not_converted"][0]["fails"], "lets_through");
}

#[test]
fn a_report_replaces_no_file_without_force_and_never_the_source() {
    let folder = TempDir::new();
    folder.write("squid.conf", SQUID);
    folder.write("report.txt", "kept\n");
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    for (command, code) in [
        ("import squid squid.conf --report report.txt", 2),
        ("import squid squid.conf --report ./squid.conf --force", 2),
        (
            "import squid squid.conf -o p --report squid.conf --force",
            2,
        ),
    ] {
        let output = crawlgate(folder.path(), command, "");
        assert_eq!(output.code, code, "{command}: {}", output.stderr);
        assert_eq!(read("report.txt"), "kept\n");
        assert_eq!(read("squid.conf"), SQUID);
    }
    let command = "import squid squid.conf --report report.txt --force";
    assert_eq!(crawlgate(folder.path(), command, "").code, 0);
    assert!(read("report.txt").contains("converted"));
    folder.write("policy.yaml", SQUID);
    let output = crawlgate(folder.path(), "import squid policy.yaml -o . --force", "");
    assert_eq!(output.code, 2, "{}", output.stderr);
    assert_eq!(read("policy.yaml"), SQUID);
}

/// Runs the command of each source in `tests/import`. An exclusion that is missing never goes unnoticed.
#[test]
fn what_is_not_converted_ends_with_exit_code_1_and_says_which_way_it_fails() {
    let mut missing = 0;
    for system in System::all() {
        let sources = fs::read_dir(source(system.name(), "")).unwrap();
        for path in sources.map(|entry| entry.unwrap().path()) {
            let Ok(words) = fs::read_to_string(path.join("command")) else {
                continue;
            };
            let report = fs::read(path.join("expected/report.json")).unwrap();
            let report: Json = serde_json::from_slice(&report).unwrap();
            let parts = report["lists"]["not_converted"].as_array().unwrap();
            let command = format!("import {} {}", system.name(), words.trim());
            let output = crawlgate(&path, &*command, "");
            let name = path.display();
            assert_eq!(
                output.code,
                i32::from(!parts.is_empty()),
                "{name}: {}",
                output.stderr
            );
            assert_eq!(output.stdout.is_empty(), !parts.is_empty(), "{name}");
            for part in parts {
                let sentence = match part["fails"].as_str().unwrap() {
                    "lets_through" => "without it more is allowed than before",
                    "keeps_out" => "without it less is allowed than before",
                    _ => "what is refused does not change",
                };
                let line = format!("{}: {sentence}", part["why"].as_str().unwrap());
                assert!(output.stderr.contains(&line), "{name}: {line}");
                missing += 1;
            }
        }
    }
    assert!(missing > 50, "{missing}");
}

#[test]
fn urls_are_checked_against_the_rules_of_the_source() {
    let folder = TempDir::new();
    folder.write("squid.conf", SQUID);
    let urls = "http://www.bad.example/\nhttps://good.example/a\nnot a URL\n";
    let output = crawlgate(
        folder.path(),
        "import squid squid.conf -o p --check -",
        urls,
    );
    assert_eq!(output.code, 0, "{}", output.stderr);
    let summary =
        "3 requests: 0 differ as the report announces, 0 differ otherwise, 1 cannot be evaluated\n";
    assert_eq!(output.stdout, summary);
    // Facts are those of the cases of a policy.
    let conf = "acl img rep_mime_type ^image/\nacl bot proxy_auth bot\nhttp_access deny !bot\nhttp_access allow all\nhttp_reply_access deny img\nhttp_reply_access allow all\n";
    folder.write("facts.conf", conf);
    let requests = concat!(
        r#"{"url": "http://a.example/", "crawler": "bot", "method": null}"#,
        "\n",
        r#"{"url": "http://a.example/", "crawler": "bot", "content_type": "image/png"}"#,
        "\n",
        r#"{"url": "https://a.example/", "crawler": "bot", "content_type": "image/png"}"#,
        "\n",
        r#"{"url": "http://a.example/", "colour": "red"}"#,
        "\n",
        r#"{"crawler": "bot"}"#,
        "\n{\n",
    );
    let output = crawlgate(
        folder.path(),
        "import squid facts.conf -o q --check -",
        requests,
    );
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(
        output
            .stdout
            .ends_with("6 requests: 1 differ as the report announces, 0 differ otherwise, 3 cannot be evaluated\n"),
        "{}",
        output.stdout
    );
    assert!(output.stdout.contains(r#"https://a.example/ {"crawler":"bot","content_type":"image/png"}: squid allows it, the policy refuses it by deny-img"#), "{}", output.stdout);
    for message in [
        "line 4: ",
        "line 5: the key `url` is missing",
        "line 6: not a JSON object",
    ] {
        assert!(output.stderr.contains(message), "{}", output.stderr);
    }
}

#[test]
fn options_of_single_systems_reach_their_importers() {
    let omnifind = source("omnifind", "traps");
    let words = fs::read_to_string(omnifind.join("command")).unwrap();
    let output = crawlgate(
        &omnifind,
        &*format!("import omnifind {} --lenient", words.trim()),
        "",
    );
    assert!(output.stdout.contains("global_space"), "{}", output.stderr);
    let robots = "User-agent: *\nDisallow: /private/\n";
    let folder = TempDir::new();
    folder.write("robots.txt", robots);
    let command = "import robots https://www.example.com=robots.txt --var agent=GoodBot";
    let output = crawlgate(folder.path(), command, "");
    assert_eq!(output.code, 0, "{}", output.stderr);
    assert!(
        output.stdout.contains("www.example.com"),
        "{}",
        output.stdout
    );
}

#[test]
fn the_tree_of_a_project_is_printed() {
    let folder = source("webcopy", "flags");
    let output = crawlgate(&folder, "import project.cwp --dump", "");
    assert_eq!(output.code, 0, "{}", output.stderr);
    let first = "Compound Cyotek.WebCopy.WebCopyProject\n";
    assert!(output.stdout.starts_with(first), "{}", output.stdout);
    let output = crawlgate(Path::new("."), "import squid - --dump", SQUID);
    assert_eq!(output.code, 2, "{}", output.stderr);
    assert!(output.stderr.contains("are text"), "{}", output.stderr);
}

#[test]
fn words_that_are_neither_a_system_nor_a_file_are_refused() {
    for (command, message) in [
        ("import squidd squid.conf", "did you mean `squid`?"),
        ("import squid", "name the files of squid"),
        ("import squid no-such-file.conf", "no-such-file.conf"),
        ("import -", "which system it is from"),
    ] {
        let output = crawlgate(Path::new("."), command, "nothing of any system");
        assert_eq!(output.code, 2, "{command}: {}", output.stderr);
        assert!(
            output.stderr.contains(message),
            "{command}: {}",
            output.stderr
        );
    }
}

#[test]
fn no_file_outside_of_the_directory_is_read() {
    let folder = TempDir::new();
    folder.write("secret.txt", ".secret.example\n");
    folder.write(
        "conf/squid.conf",
        "acl bad dstdomain \"../secret.txt\"\nhttp_access deny bad\n",
    );
    let output = crawlgate(folder.path(), "import squid conf/squid.conf --lenient", "");
    assert!(
        !output.stdout.contains("secret.example"),
        "{}",
        output.stdout
    );
    assert!(
        !output.stderr.contains("secret.example"),
        "{}",
        output.stderr
    );
}
