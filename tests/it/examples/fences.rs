//! The examples of the documentation: every fence of `docs/policy/*.md` with YAML in it is a policy, and is run.
//!
//! | info string | what must hold |
//! |---|---|
//! | `yaml policy` | it compiles, has cases, and they pass; what its comments `# warning: …` tell is said |
//! | `yaml policy error` | it is refused; what its comments `# error: …` tell is said |
//! | `yaml` | a part of a policy, keys of a document or a list of rules: with the usual head it compiles |

use std::fs;
use std::path::Path;

use crawlgate::policy::source::MemoryFileSystem;

use super::{compiled, failing, files, said};

/// One fence.
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
    /// The example as a whole policy.
    fn whole(&self) -> String {
        const HEAD: &str = "policy: 1\nname: part\noptions: { disposition: allow }\n";
        match self.info.as_str() {
            "yaml" if self.text.starts_with('-') => format!("{HEAD}rules:\n{}", self.text),
            "yaml" => format!("{HEAD}{}", self.text),
            _ => self.text.clone(),
        }
    }

    /// What is wrong with the example.
    fn fault(&self) -> Option<String> {
        let files = MemoryFileSystem::new().with_file("policy.yaml", self.whole());
        let compiled = compiled(&files, "policy.yaml");
        let fault = match (self.info.as_str(), compiled) {
            ("yaml policy", Err(said)) => Some(said),
            ("yaml policy", Ok(compiled)) if compiled.cases.is_empty() => Some("no cases".into()),
            ("yaml policy", Ok(compiled)) => {
                let missing = self.missing("# warning: ", &said(&compiled.problems));
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
            ("yaml policy error", Err(said)) => Some(self.missing("# error: ", &said).join("\n")),
            ("yaml", Ok(_)) => None,
            ("yaml", Err(said)) => Some(said),
            _ => Some("YAML is `yaml`, `yaml policy` or `yaml policy error`".into()),
        };
        fault
            .filter(|fault| !fault.is_empty())
            .map(|fault| format!("{}: {fault}", self.place))
    }

    /// The messages that its comments promise and that are not said.
    fn missing(&self, mark: &str, said: &str) -> Vec<String> {
        let promised = self.text.lines().filter_map(|line| line.split_once(mark));
        let missing = promised.filter(|(_, message)| !said.contains(message.trim()));
        missing
            .map(|(_, message)| format!("not said: {message}\n{said}"))
            .collect()
    }
}

#[test]
fn every_example_of_the_documentation_does_what_it_says() {
    let all: Vec<Fence> = files("docs/policy", "md")
        .iter()
        .flat_map(|path| fences(path))
        .collect();
    let policies: Vec<&Fence> = all
        .iter()
        .filter(|fence| fence.info.starts_with("yaml"))
        .collect();
    println!("{} examples", policies.len());
    assert!(!policies.is_empty());
    let faults: Vec<String> = policies.iter().filter_map(|fence| fence.fault()).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
