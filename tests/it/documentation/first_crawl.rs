//! The rule and the case of docs/first-crawl.md, added to the shipped policy as that page says.

use std::fs;
use std::path::Path;

use crate::support::command::crawlgate;
use crate::support::temp_dir::TempDir;

#[test]
fn its_rule_and_its_case_fit_into_the_shipped_policy() {
    let page = fs::read_to_string("docs/first-crawl.md").unwrap();
    let mut added = page.lines().filter(|line| line.starts_with("  - { "));
    let (rule, case) = (added.next().unwrap(), added.next().unwrap());
    let shipped = fs::read_to_string("config/policy.yaml").unwrap();
    assert_eq!(shipped.matches("\ncases:\n").count(), 1);
    let policy = shipped.replace("\ncases:\n", &format!("\n{}\ncases:\n{}\n", rule, case));
    let folder = TempDir::new();
    folder.write("policy.yaml", policy);
    fs::create_dir(folder.path().join("lists")).unwrap();
    let list = Path::new("lists/browser-noise.txt");
    fs::copy(Path::new("config").join(list), folder.path().join(list)).unwrap();
    for command in ["check policy.yaml", "test policy.yaml"] {
        let output = crawlgate(folder.path(), command, "");
        assert_eq!(output.code, 0, "{command}: {output:?}");
    }
    // Without the rule the case fails: it is not allowed by accident.
    let without = fs::read_to_string(folder.path().join("policy.yaml")).unwrap();
    folder.write("policy.yaml", without.replace(rule, ""));
    let output = crawlgate(folder.path(), "test policy.yaml", "");
    assert_ne!(output.code, 0, "{output:?}");
}
