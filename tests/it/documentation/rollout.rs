//! The commands of docs/rollout.md, run in their order with a running proxy.

use std::fs;

use crate::support::client::get_with;
use crate::support::command::crawlgate;
use crate::support::origin::ScriptedOrigin;
use crate::support::proxy::{CONFIG, TestProxy};
use crate::support::temp_dir::TempDir;
use crate::support::wait::wait_until;

/// The lines of the example that the branch adds.
const ADDED: [&str; 2] = ["id: no-shop", "rule: no-shop"];

#[test]
fn its_commands_lead_from_a_branch_into_force_and_back() {
    let page = fs::read_to_string("docs/rollout.md").unwrap();
    let example = page.split("```yaml\n").nth(1).unwrap();
    let next = example.split("```").next().unwrap();
    let old: String = next
        .lines()
        .filter(|line| !ADDED.iter().any(|added| line.contains(added)))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(next.lines().count() - old.lines().count(), 2);

    let folder = TempDir::new();
    folder.write("policy/policy.yaml", &old);
    folder.write("token", "correct-horse-battery\n");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let config = CONFIG
        .replace(
            "path: policy.yaml",
            &format!("path: {}", path("policy/policy.yaml")),
        )
        .replace(
            "decisions: log.json",
            &format!("decisions: {}", path("log.json")),
        )
        .replace(
            "listen: 127.0.0.1:0 }",
            &format!("listen: 127.0.0.1:0, token_file: {} }}", path("token")),
        )
        + &format!("store: {{ path: {} }}\n", path("store"));
    folder.write("crawlgate.yaml", &config);
    let proxy = TestProxy::start(&config, &old);
    let origin = ScriptedOrigin::ok();
    let shop = || {
        get_with(
            proxy.proxy,
            &format!("http://a.test:{}/shop/cart", origin.port),
            "",
        )
        .status
    };
    assert_eq!(shop(), 200);
    wait_until("the request is logged", || {
        fs::read_to_string(folder.path().join("log.json"))
            .is_ok_and(|log| log.contains("/shop/cart"))
    });

    let admin = proxy.admin.to_string();
    let mut outputs = vec![];
    let commands = page.lines().filter_map(|line| line.strip_prefix("$ "));
    for command in commands {
        let output = match command.split_once(' ').unwrap() {
            ("mkdir", name) => {
                fs::create_dir(folder.path().join(name)).unwrap();
                continue;
            }
            ("cp", _) => {
                folder.write("next/policy.yaml", next);
                continue;
            }
            ("crawlgate", arguments) => run(&folder, &admin, arguments),
            _ => panic!("{command}: this test does not know it"),
        };
        outputs.push((command.to_owned(), output, shop()));
    }
    let found = |part: &str| {
        let found = outputs.iter().find(|(command, ..)| command.contains(part));
        let (_, output, status) = found.unwrap_or_else(|| panic!("no command {part}"));
        (output.as_str(), *status)
    };
    assert!(
        found("diff policy/policy.yaml next/policy.yaml --log")
            .0
            .contains("no-shop")
    );
    assert!(found("shadow set").0.contains("is the shadow policy"));
    assert_eq!(found("shadow set").1, 200, "in shadow nothing is refused");
    // The request after `shadow set` is the one that it would refuse.
    assert!(outputs.iter().any(|(command, output, _)| {
        command.as_str() == "crawlgate shadow" && output.contains("no-shop")
    }));
    assert_eq!(found("shadow promote").1, 451);
    assert_eq!(found("policy rollback").1, 200);
    let (_, history, _) = outputs.last().unwrap();
    let lines: Vec<&str> = history.lines().collect();
    assert_eq!(lines.len(), 3, "{history}");
    assert!(
        lines[0].contains("ticket 8: the shop is a customer"),
        "{history}"
    );
    assert!(lines[1].contains("ticket 7: a day in shadow"), "{history}");
}

/// Runs a command, in which quotes are as in a shell, and returns its standard output.
fn run(folder: &TempDir, admin: &str, arguments: &str) -> String {
    let mut words: Vec<String> = vec![];
    for (index, part) in arguments.split('"').enumerate() {
        if index % 2 == 1 {
            words.push(part.to_owned());
        } else {
            words.extend(part.split_whitespace().map(str::to_owned));
        }
    }
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    if matches!(words[0], "shadow" | "policy") {
        words.extend(["--config", "crawlgate.yaml", "--admin", admin]);
    }
    let output = crawlgate(folder.path(), &words, "");
    // `diff` reports differences by its code.
    let expected = i32::from(words[0] == "diff");
    assert_eq!(output.code, expected, "{arguments}: {output:?}");
    output.stdout
}
