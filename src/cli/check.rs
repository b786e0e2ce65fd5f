//! `crawlgate check`: everything that is wrong with policies and configurations, in one run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::config::load::{self, Overrides, Surroundings};
use crate::config::policy;
use crate::config::settings::PolicyOrigin;
use crate::policy::source::tree::Text;
use crate::vocab::problem::{Place, Problem, Severity};
use crate::vocab::problems::Problems;
use crate::yaml::{Value, parse};

use super::Exit;
use super::args::{CheckArgs, Format};
use super::out::{self, tell};
use super::paint::{Paint, Tone};

/// Runs the command.
pub(super) fn run(args: &CheckArgs) -> Exit {
    let mut report = Report::default();
    for path in &args.paths {
        match Kind::of(path) {
            Kind::Policy => report.policy(&PolicyOrigin::Path(path.clone())),
            Kind::Configuration => report.configuration(Some(path.clone())),
        }
    }
    if args.paths.is_empty() {
        report.configuration(None);
    }
    let exit = report.exit(args);
    match args.format {
        Format::Text => {
            tell(&report.problems);
            out::write(&report.summary(Paint::for_stdout()), exit)
        }
        Format::Json => out::write(&format!("{:#}\n", report.to_json()), exit),
    }
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Policy,
    Configuration,
}

/// Keys that only a policy has.
const POLICY_KEYS: [&str; 7] = ["name", "on_invalid_rule", "options", "lists", "rules", "cases", "spaces"];

impl Kind {
    /// Tells a policy from a configuration by what is in it: `policy: 1` or one of a policy's own keys.
    ///
    /// A file that cannot be read or parsed gets the same messages either way.
    fn of(path: &Path) -> Self {
        if path.is_dir() {
            return Self::Policy;
        }
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let tree = parse(&Arc::from(""), &text, &mut Problems::new());
        let Some(tree) = tree else { return Self::Configuration };
        let version =
            tree.get("policy").is_some_and(|node| matches!(node.value, Value::Int(..) | Value::Text(_)));
        if version || POLICY_KEYS.iter().any(|key| tree.get(key).is_some()) {
            Self::Policy
        } else {
            Self::Configuration
        }
    }
}

/// What was checked, and what was found.
#[derive(Default)]
struct Report {
    /// One line a checked thing.
    checked: Vec<String>,
    problems: Vec<Problem>,
    /// The policies that were checked, so that none is checked twice, with the crawlers that each names.
    policies: Vec<(PolicyOrigin, Vec<Text>)>,
}

impl Report {
    /// A configuration, and the policy that it names.
    fn configuration(&mut self, path: Option<PathBuf>) {
        let overrides = Overrides { config: path.clone(), ..Overrides::default() };
        let loaded = match load::load(&overrides, &Surroundings::of_process()) {
            Ok(loaded) => loaded,
            Err(problems) => {
                self.problems.extend(problems);
                return;
            }
        };
        let name = match &loaded.file {
            Some(file) => file.display().to_string(),
            None => "no configuration: all defaults".to_owned(),
        };
        let place = Place::of_file(&Arc::from(name.as_str()));
        self.checked.push(name);
        self.problems.extend(loaded.problems);
        self.problems
            .extend(loaded.settings.dangers().into_iter().map(|danger| Problem::error(&place, danger)));
        let origin = &loaded.settings.policy.origin;
        self.policy(origin);
        if loaded.file.is_some() {
            let named = self.policies.iter().filter(|(policy, _)| policy == origin).map(|(_, named)| named);
            let unknown = named.flat_map(|named| policy::unknown_crawlers(named, &loaded.settings.crawlers));
            self.problems.extend(unknown);
        }
    }

    fn policy(&mut self, origin: &PolicyOrigin) {
        if self.policies.iter().any(|(policy, _)| policy == origin) {
            return;
        }
        let opened = policy::open(origin).map(|compiled| {
            let failures = policy::failing_cases(&compiled.policy, &compiled.cases);
            (compiled, failures)
        });
        match opened {
            Ok((compiled, failures)) => {
                let policy = &compiled.policy;
                let (rules, cases) = (policy.rules().len(), compiled.cases.len());
                let (name, revision) = (policy.name(), policy.revision());
                let place = match origin {
                    PolicyOrigin::Path(path) => path.display().to_string(),
                    PolicyOrigin::BuiltIn => "the built-in policy".to_owned(),
                };
                self.checked.push(format!("{place}: {name}@{revision}, {rules} rules, {cases} cases"));
                self.policies.push((origin.clone(), compiled.crawlers));
                self.problems.extend(compiled.problems);
                self.problems.extend(failures);
            }
            Err(problems) => {
                self.policies.push((origin.clone(), Vec::new()));
                self.problems.extend(problems);
            }
        }
    }

    fn count(&self, severity: Severity) -> usize {
        self.problems.iter().filter(|p| p.severity == severity).count()
    }

    fn exit(&self, args: &CheckArgs) -> Exit {
        match (self.count(Severity::Error), self.count(Severity::Warning)) {
            (0, 0) => Exit::Success,
            (0, _) if args.strict => Exit::Negative,
            (0, _) => Exit::Success,
            (_, _) => Exit::Invalid,
        }
    }

    fn summary(&self, paint: Paint) -> String {
        let mut text: String = self.checked.iter().map(|line| format!("{line}\n")).collect();
        let (errors, warnings) = (self.count(Severity::Error), self.count(Severity::Warning));
        let tone = match (errors, warnings) {
            (0, 0) => Tone::Good,
            (0, _) => Tone::Doubt,
            (_, _) => Tone::Bad,
        };
        let counts = format!("{}, {}", counted(errors, "error"), counted(warnings, "warning"));
        text.push_str(&paint.paint(tone, counts));
        text.push('\n');
        text
    }

    fn to_json(&self) -> Json {
        json!({
            "errors": self.count(Severity::Error),
            "warnings": self.count(Severity::Warning),
            "problems": self.problems.iter().map(Problem::to_json).collect::<Vec<_>>(),
        })
    }
}

fn counted(number: usize, word: &str) -> String {
    if number == 1 { format!("1 {word}") } else { format!("{number} {word}s") }
}
