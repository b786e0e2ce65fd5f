//! `crawlgate check`: everything that is wrong with policies and configurations, in one run.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::config::load::{self, Environment, Overrides};
use crate::config::policy;
use crate::config::settings::{LedgerMode, PolicyOrigin, Settings};
use crate::diagnostics::problem::{Problem, Severity, SourceLocation};
use crate::diagnostics::problems::{Problems, SourceTexts};
use crate::model::reason::Reason;
use crate::pipeline::refusal::Refusal;
use crate::policy::Policy;
use crate::policy::fact::Facts;
use crate::policy::source::tree::LocatedText;
use crate::server::ledger::LEDGER_REQUIRED;
use crate::urls::target::HostTarget;
use crate::yaml::{YamlValue, parse};

use super::Exit;
use super::args::{CheckArgs, OutputFormat};
use super::color::{ConsoleColors, Tone};
use super::console::{self, print_problems};

/// Runs the command.
pub(super) fn run(args: &CheckArgs) -> Exit {
    let mut report = CheckReport::default();
    for path in &args.paths {
        match CheckInputKind::detect(path) {
            CheckInputKind::Policy => report.check_policy(&PolicyOrigin::Path(path.clone())),
            CheckInputKind::Configuration => report.check_configuration(Some(path.clone())),
        }
    }
    if args.paths.is_empty() {
        report.check_configuration(None);
    }
    report.advise_unconfigured();
    let exit = report.exit(args);
    match args.format {
        OutputFormat::Text => {
            print_problems(&report.problems);
            console::print(&report.summary(ConsoleColors::for_stdout()), exit)
        }
        OutputFormat::Json => console::print(&format!("{:#}\n", report.to_json()), exit),
    }
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckInputKind {
    Policy,
    Configuration,
}

/// Keys that only a policy has.
const POLICY_KEYS: [&str; 7] = [
    "name",
    "on_invalid_rule",
    "options",
    "lists",
    "rules",
    "cases",
    "spaces",
];

impl CheckInputKind {
    /// Tells a policy from a configuration by what is in it: `policy: 1` or one of a policy's own keys.
    ///
    /// A file that cannot be read or parsed gets the same messages either way.
    fn detect(path: &Path) -> Self {
        if path.is_dir() {
            return Self::Policy;
        }
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let tree = parse(&Arc::from(""), &text, &mut Problems::new());
        let Some(tree) = tree else {
            return Self::Configuration;
        };
        let version = tree
            .get("policy")
            .is_some_and(|node| matches!(node.value, YamlValue::Int(..) | YamlValue::Text(_)));
        if version || POLICY_KEYS.iter().any(|key| tree.get(key).is_some()) {
            Self::Policy
        } else {
            Self::Configuration
        }
    }
}

/// What was checked, and what was found.
#[derive(Default)]
struct CheckReport {
    /// One line a checked thing.
    summary_lines: Vec<String>,
    problems: Vec<Problem>,
    /// The policies that were checked, so that none is checked twice.
    policies: Vec<CheckedPolicy>,
}

/// A policy that was checked, and what a configuration that names it has to know.
struct CheckedPolicy {
    origin: PolicyOrigin,
    /// The crawlers that its rules name.
    crawlers: Vec<LocatedText>,
    /// That it refuses most tunnels, or all, if it does.
    undecided_tunnels: Option<Problem>,
    /// Whether it needs a ledger.
    needs_ledger: bool,
    /// Its files.
    texts: SourceTexts,
    /// Whether a configuration names it, which says what becomes of tunnels.
    in_configuration: bool,
}

impl CheckReport {
    /// A configuration, and the policies that it names.
    fn check_configuration(&mut self, path: Option<PathBuf>) {
        let overrides = Overrides {
            config: path.clone(),
            ..Overrides::default()
        };
        let loaded = match load::load(&overrides, &Environment::from_process()) {
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
        let place = SourceLocation::for_file(&Arc::from(name.as_str()));
        self.summary_lines.push(name);
        let tunnels = describe_tunnels(&loaded.settings);
        let opens_tunnels = tunnels.is_some();
        self.summary_lines.extend(tunnels);
        self.problems.extend(loaded.problems);
        self.problems.extend(
            loaded
                .settings
                .safety_errors()
                .into_iter()
                .map(|danger| Problem::error(&place, danger)),
        );
        let origin = &loaded.settings.policy.origin;
        self.check_policy(origin);
        if let Some(shadow) = &loaded.settings.policy.shadow {
            let shadow = PolicyOrigin::Path(shadow.clone());
            self.check_policy(&shadow);
            self.policies
                .iter_mut()
                .filter(|checked| checked.origin == shadow)
                .for_each(|c| c.in_configuration = true);
        }
        let Some(checked) = self
            .policies
            .iter_mut()
            .find(|checked| checked.origin == *origin)
        else {
            return;
        };
        checked.in_configuration = true;
        if opens_tunnels && !loaded.settings.tls.intercept {
            self.problems.extend(checked.undecided_tunnels.clone());
        }
        if checked.needs_ledger && loaded.settings.ledger.keep == LedgerMode::Never {
            self.problems.push(Problem::error(&place, LEDGER_REQUIRED));
        }
        if loaded.file.is_some() {
            let mut unknown =
                policy::unknown_crawlers(&checked.crawlers, &loaded.settings.crawlers);
            checked.texts.add_excerpts(&mut unknown);
            self.problems.extend(unknown);
        }
    }

    fn check_policy(&mut self, origin: &PolicyOrigin) {
        if self
            .policies
            .iter()
            .any(|checked| checked.origin == *origin)
        {
            return;
        }
        let opened = policy::open(origin).map(|compiled| {
            let mut failures = policy::failing_cases(&compiled.policy, &compiled.cases);
            compiled.texts.add_excerpts(&mut failures);
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
                self.summary_lines.push(format!(
                    "{place}: {name}@{revision}, {rules} rules, {cases} cases"
                ));
                let place = SourceLocation::for_file(&Arc::from(place.as_str()));
                self.policies.push(CheckedPolicy {
                    origin: origin.clone(),
                    crawlers: compiled.named_crawlers,
                    undecided_tunnels: find_undecided_tunnels(&compiled.policy, &place),
                    needs_ledger: compiled.policy.needs_ledger(),
                    texts: compiled.texts,
                    in_configuration: false,
                });
                self.problems.extend(compiled.problems);
                self.problems.extend(failures);
            }
            Err(problems) => {
                let origin = origin.clone();
                let (crawlers, texts) = (Vec::new(), SourceTexts::default());
                self.policies.push(CheckedPolicy {
                    origin,
                    crawlers,
                    undecided_tunnels: None,
                    needs_ledger: false,
                    texts,
                    in_configuration: false,
                });
                self.problems.extend(problems);
            }
        }
    }

    /// Of policies that no configuration names: that every tunnel is undecided under them, which is of no weight where
    /// TLS is looked into.
    fn advise_unconfigured(&mut self) {
        let alone = self
            .policies
            .iter()
            .filter(|checked| !checked.in_configuration);
        let doubts = alone.filter_map(|checked| checked.undecided_tunnels.clone());
        let every = doubts.filter(|problem| problem.severity == Severity::Warning);
        self.problems.extend(every.map(|problem| Problem {
            severity: Severity::Advice,
            ..problem
        }));
    }

    fn count(&self, severity: Severity) -> usize {
        self.problems
            .iter()
            .filter(|p| p.severity == severity)
            .count()
    }

    fn exit(&self, args: &CheckArgs) -> Exit {
        match (self.count(Severity::Error), self.count(Severity::Warning)) {
            (0, 0) => Exit::Success,
            (0, _) if args.strict => Exit::Negative,
            (0, _) => Exit::Success,
            (_, _) => Exit::Invalid,
        }
    }

    fn summary(&self, paint: ConsoleColors) -> String {
        let mut text: String = self
            .summary_lines
            .iter()
            .map(|line| format!("{line}\n"))
            .collect();
        let (errors, warnings) = (self.count(Severity::Error), self.count(Severity::Warning));
        let tone = match (errors, warnings) {
            (0, 0) => Tone::Good,
            (0, _) => Tone::Warning,
            (_, _) => Tone::Bad,
        };
        let counts = format!(
            "{}, {}",
            pluralize(errors, "error"),
            pluralize(warnings, "warning")
        );
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

/// Where tunnels may go, and what reaches inside.
fn describe_tunnels(settings: &Settings) -> Option<String> {
    let tunnels = &settings.tunnels;
    let has_port =
        |ranges: &[RangeInclusive<u16>], port| ranges.iter().any(|range| range.contains(&port));
    let tls = (1..=u16::MAX).any(|port| {
        has_port(&tunnels.connect_ports, port)
            && has_port(&settings.egress.ports, port)
            && has_port(&tunnels.tls_ports, port)
    });
    tls.then(|| {
        let ports: Vec<String> = tunnels.tls_ports.iter().map(format_port_range).collect();
        let judged = if settings.tls.intercept {
            "looked into (tls.intercept), so that robots.txt and rules on URLs reach inside; where a rule sets \
             `tls: tunnel`, judged by host, address and pace only"
        } else {
            "judged by host, address and pace; robots.txt and rules on URLs do not reach inside, except where a rule sets \
             `tls: intercept`"
        };
        format!("tunnels to port {}: {judged}", ports.join(", "))
    })
}

fn format_port_range(range: &RangeInclusive<u16>) -> String {
    if range.start() == range.end() {
        range.start().to_string()
    } else {
        format!("{}-{}", range.start(), range.end())
    }
}

/// Whether a tunnel to a host that no rule names is refused because the policy judges what it hides: that is most hosts.
fn find_undecided_tunnels(policy: &Policy, place: &SourceLocation) -> Option<Problem> {
    let host = HostTarget::parse_authority("a-host-that-no-rule-names.invalid:443").ok()?;
    let (trail, decision) = policy.decide(&Facts::for_tunnel(&host));
    let refusal = Refusal::from_decision(policy, &trail, &decision)?;
    let undecided = refusal.reason == Reason::Undecided;
    let rule = refusal
        .rule
        .as_ref()
        .map_or("the policy".to_owned(), |rule| {
            format!("rule `{}`", rule.as_str())
        });
    let problem = if policy.treats_tunnels_alike() {
        let message = format!(
            "every tunnel (CONNECT) is refused as undecided, since {rule} judges what it hides"
        );
        Problem::warning(place, message)
    } else {
        let message = format!(
            "tunnels (CONNECT) are refused as undecided, since {rule} judges what they hide"
        );
        Problem::advice(place, message)
    };
    let help = "set `tunnel_undecided: allow` where such tunnels may pass, or look into TLS (`tls.intercept`)";
    undecided.then(|| problem.with_help(help))
}

fn pluralize(number: usize, word: &str) -> String {
    if number == 1 {
        format!("1 {word}")
    } else {
        format!("{number} {word}s")
    }
}
