//! The examples of the documentation: each YAML code block of `docs/policy/*.md` is compiled as a policy.
//!
//! | info string | expectation |
//! |---|---|
//! | `yaml policy` | it compiles, has cases, and the cases pass; each comment `# warning: …` is part of a reported warning |
//! | `yaml policy error` | it is refused; each comment `# error: …` is part of a reported error |
//! | `yaml imported` | what `crawlgate import` writes; `import/documentation.rs` compares it |
//! | `yaml` | keys of a document or a list of rules, which compile after the usual head |

use std::fs;
use std::path::Path;

use crawlgate::policy::source::MemoryFileSystem;

use super::{compiled, failing, files, render};

/// A fenced code block.
struct Fence {
    /// The file and the line of the info string.
    place: String,
    info: String,
    text: String,
}

fn fences(path: &Path) -> Vec<Fence> {
    let text = fs::read_to_string(path).unwrap();
    let mut fences: Vec<Fence> = vec![];
    let mut is_open = false;
    for (line, number) in text.lines().zip(1..) {
        match line.strip_prefix("```") {
            Some(_) if is_open => is_open = false,
            Some(info) => {
                is_open = true;
                let place = format!("{}:{number}", path.display());
                fences.push(Fence {
                    place,
                    info: info.trim().to_owned(),
                    text: String::new(),
                });
            }
            None if is_open => fences
                .last_mut()
                .unwrap()
                .text
                .push_str(&format!("{line}\n")),
            None => {}
        }
    }
    assert!(!is_open, "{}: a fence is not closed", path.display());
    fences
}

impl Fence {
    /// Returns the example as a complete policy.
    fn policy_text(&self) -> String {
        const HEAD: &str = "policy: 1\nname: part\noptions: { disposition: allow }\n";
        match self.info.as_str() {
            "yaml" if self.text.starts_with('-') => format!("{HEAD}rules:\n{}", self.text),
            "yaml" => format!("{HEAD}{}", self.text),
            _ => self.text.clone(),
        }
    }

    /// Returns the problem of the example, if it has one.
    fn fault(&self) -> Option<String> {
        let files = MemoryFileSystem::new().with_file("policy.yaml", self.policy_text());
        let compiled = compiled(&files, "policy.yaml");
        let fault = match (self.info.as_str(), compiled) {
            ("yaml policy", Err(errors)) => Some(errors),
            ("yaml policy", Ok(compiled)) if compiled.cases.is_empty() => Some("no cases".into()),
            ("yaml policy", Ok(compiled)) => {
                let missing = self.missing("# warning: ", &render(&compiled.problems));
                Some(
                    missing
                        .into_iter()
                        .chain(failing(&compiled))
                        .collect::<Vec<_>>()
                        .join("\n"),
                )
            }
            ("yaml policy error", Ok(_)) => Some("is accepted".into()),
            ("yaml policy error", Err(_)) if !self.text.contains("# error: ") => {
                Some("names no message".into())
            }
            ("yaml policy error", Err(errors)) => {
                Some(self.missing("# error: ", &errors).join("\n"))
            }
            ("yaml", Ok(_)) => None,
            ("yaml", Err(errors)) => Some(errors),
            _ => Some("YAML is `yaml`, `yaml policy` or `yaml policy error`".into()),
        };
        fault
            .filter(|fault| !fault.is_empty())
            .map(|fault| format!("{}: {fault}", self.place))
    }

    /// Returns the messages that the comments of the example name, but that are not reported.
    fn missing(&self, mark: &str, reported: &str) -> Vec<String> {
        self.text
            .lines()
            .filter_map(|line| line.split_once(mark))
            .filter(|(_, message)| !reported.contains(message.trim()))
            .map(|(_, message)| format!("missing: {message}\n{reported}"))
            .collect()
    }
}

#[test]
fn every_documented_example_behaves_as_described() {
    let all: Vec<Fence> = files("docs/policy", "md")
        .iter()
        .flat_map(|path| fences(path))
        .collect();
    let policies: Vec<&Fence> = all
        .iter()
        .filter(|fence| fence.info.starts_with("yaml") && fence.info != "yaml imported")
        .collect();
    println!("{} examples", policies.len());
    assert!(!policies.is_empty());
    let faults: Vec<String> = policies.iter().filter_map(|fence| fence.fault()).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
