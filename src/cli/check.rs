//! `crawlgate check`: reports all problems of policies and configurations in one run.

mod paths;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value as Json, json};

use crate::config::crawler_fit;
use crate::config::load::{self, Environment, Overrides};
use crate::config::policy::{self, CaseProblems};
use crate::config::settings::{LedgerMode, PolicyOrigin, Settings};
use crate::diagnostics::problem::{Problem, Severity, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::model::reason::Reason;
use crate::pipeline::crawlers::CrawlerRegistration;
use crate::pipeline::destination::format_ports;
use crate::pipeline::refusal::Refusal;
use crate::policy::Policy;
use crate::policy::compile::CompiledPolicy;
use crate::policy::exact::ExactCheck;
use crate::policy::fact::Facts;
use crate::proxy::destination::LOOPBACK_WARNING;
use crate::server::ledger::LEDGER_REQUIRED;
use crate::urls::target::HostTarget;
use crate::yaml::{YamlValue, parse};

use super::Exit;
use super::annotation::{Annotation, AnnotationLevel};
use super::args::{CheckArgs, CheckFormat};
use super::console::{self, print_problems};
use super::text::pluralize;
use crate::console::{ConsoleColors, Tone};

pub(super) fn run(args: &CheckArgs) -> Exit {
    let mut report = CheckReport {
        exact: args.exact.then(ExactRuleTotals::default),
        ..CheckReport::default()
    };
    for path in args.paths.iter().chain(&args.config) {
        match CheckInputKind::detect(path) {
            CheckInputKind::Empty => report.problems.push(Problem::error(
                &SourceLocation::for_file(&path.display().to_string().into()),
                "the file says nothing: it is neither a policy nor a configuration",
            )),
            CheckInputKind::Policy => report.check_policy(&PolicyOrigin::Path(path.clone())),
            CheckInputKind::Configuration => report.check_configuration(Some(path.clone())),
        }
    }
    if args.paths.is_empty() && args.config.is_none() {
        report.check_configuration(None);
    }
    report.compare_crawlers();
    report.advise_unconfigured();
    let exit = report.exit(args);
    match args.format {
        CheckFormat::Text => {
            print_problems(&report.problems);
            console::print(&report.summary(ConsoleColors::for_stdout()), exit)
        }
        CheckFormat::Json => {
            for line in &report.summary_lines {
                console::note(line);
            }
            console::print(&format!("{:#}\n", report.to_json()), exit)
        }
        CheckFormat::Github => console::print(&report.annotations(), exit),
    }
}

/// The kind of a file to check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckInputKind {
    Policy,
    Configuration,
    /// Neither; a proxy would run with it as with no configuration.
    Empty,
}

/// Keys that occur only in policies.
const POLICY_KEYS: [&str; 8] = [
    "name",
    "on_invalid_rule",
    "options",
    "lists",
    "hosts",
    "rules",
    "cases",
    "spaces",
];

impl CheckInputKind {
    /// Detects the kind by the content: a policy has `policy: 1` or one of the [`POLICY_KEYS`].
    ///
    /// The result does not matter for a file that cannot be read or parsed: both kinds report the same errors.
    fn detect(path: &Path) -> Self {
        if path.is_dir() {
            return Self::Policy;
        }
        let Ok(text) = std::fs::read_to_string(path) else {
            return Self::Configuration;
        };
        let mut problems = Problems::new();
        let tree = parse(&Arc::from(""), text.as_str(), &mut problems);
        let Some(tree) = tree.filter(|tree| !matches!(tree.value, YamlValue::Null)) else {
            return if problems.has_errors() {
                Self::Configuration
            } else {
                Self::Empty
            };
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

#[derive(Default)]
struct CheckReport {
    /// One line per checked file.
    summary_lines: Vec<String>,
    problems: Vec<Problem>,
    /// The checked policies, so that none is checked twice.
    policies: Vec<CheckedPolicy>,
    /// The crawlers of the configurations; `None` if there is no configuration file.
    crawlers: Option<Vec<CrawlerRegistration>>,
    /// The answers of the exact analysis; `None` without `--exact`.
    exact: Option<ExactRuleTotals>,
    /// The answers to the assertions among the cases; `None` if there are none.
    assertions: Option<ExactTotals>,
}

/// The numbers of answers of the exact analysis.
#[derive(Default)]
struct ExactTotals {
    proved: usize,
    refuted: usize,
    undecided: usize,
}

impl ExactTotals {
    fn render(&self, subject: &str) -> String {
        format!(
            "{subject}: {} proved, {} refuted by a URL, {} not decided\n",
            self.proved, self.refuted, self.undecided
        )
    }

    fn to_json(&self) -> Json {
        json!({ "proved": self.proved, "refuted": self.refuted, "undecided": self.undecided })
    }
}

/// The results of the exact analysis: its answers, and the rules that they are about.
#[derive(Default)]
struct ExactRuleTotals {
    answers: ExactTotals,
    deciding_rules: usize,
    dead_rules: usize,
}

impl ExactRuleTotals {
    fn add(&mut self, check: &ExactCheck) {
        self.answers.proved += check.proved;
        self.answers.refuted += check.refuted;
        self.answers.undecided += check.undecided;
        self.deciding_rules += check.deciding_rules;
        self.dead_rules += check.dead_rules;
    }

    fn render(&self) -> String {
        let Self {
            answers,
            deciding_rules,
            dead_rules,
        } = self;
        format!(
            "exact analysis: {} can decide, {dead_rules} can never decide, {} not decided\n",
            pluralize(*deciding_rules, "rule"),
            pluralize(answers.undecided, "question")
        )
    }

    fn to_json(&self) -> Json {
        let mut answers = self.answers.to_json();
        if let Json::Object(keys) = &mut answers {
            keys.insert("deciding_rules".into(), self.deciding_rules.into());
            keys.insert("dead_rules".into(), self.dead_rules.into());
        }
        answers
    }
}

/// A checked policy.
struct CheckedPolicy {
    origin: PolicyOrigin,
    /// The name of its file or directory in messages.
    location: SourceLocation,
    /// The policy; `None` if it has errors.
    compiled: Option<CompiledPolicy>,
    /// The problem that it refuses most or all tunnels, if it does.
    undecided_tunnels: Option<Problem>,
    /// `true` if the crawlers that it names were compared with those of a configuration.
    has_compared_crawlers: bool,
    /// `true` if a configuration names the policy; the configuration decides how tunnels are handled.
    in_configuration: bool,
}

impl CheckReport {
    /// Checks a configuration, and the policies that it names.
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
        if path.is_none()
            && loaded.file.is_none()
            && loaded.settings.policy.origin == PolicyOrigin::BuiltIn
        {
            self.problems.push(nothing_to_check());
            return;
        }
        let name = match &loaded.file {
            Some(file) => file.display().to_string(),
            None => "no configuration file: all settings have their defaults".to_owned(),
        };
        let location = SourceLocation::for_file(&Arc::from(name.as_str()));
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
                .map(|error| Problem::error(&location, error)),
        );
        self.problems
            .extend(paths::find_problems(&loaded.settings, &location));
        if loaded.settings.egress.allow_loopback {
            let problem = Problem::warning(&location, LOOPBACK_WARNING)
                .with_help("remove `egress.allow_loopback` unless this is a trial on one machine");
            self.problems.push(problem);
        }
        if loaded.file.is_some() {
            let crawlers = self.crawlers.get_or_insert_default();
            crawlers.extend(loaded.settings.crawlers.iter().cloned());
        }
        let origin = &loaded.settings.policy.origin;
        self.check_policy(origin);
        if let Some(shadow) = &loaded.settings.policy.shadow {
            let shadow = PolicyOrigin::Path(shadow.clone());
            self.check_policy(&shadow);
            self.policies
                .iter_mut()
                .filter(|checked| checked.origin == shadow)
                .for_each(|checked| checked.in_configuration = true);
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
        let Some(compiled) = &checked.compiled else {
            return;
        };
        if compiled.policy.needs_ledger() && loaded.settings.ledger.keep == LedgerMode::Never {
            self.problems
                .push(Problem::error(&location, LEDGER_REQUIRED));
        }
        if loaded.file.is_some() {
            checked.has_compared_crawlers = true;
            let crawlers = &loaded.settings.crawlers;
            let mut problems = policy::unknown_crawlers(&compiled.named_crawlers, crawlers);
            problems.extend(policy::unknown_parents(
                compiled,
                &checked.location,
                &loaded.settings.parents,
            ));
            problems.extend(crawler_fit::find_problems(
                compiled,
                &checked.location,
                &loaded.settings,
            ));
            compiled.texts.add_excerpts(&mut problems);
            self.problems.extend(problems);
        }
    }

    /// Compares the crawlers that other policies name, such as the next one, with those of the configurations.
    fn compare_crawlers(&mut self) {
        let Some(crawlers) = &self.crawlers else {
            return;
        };
        for checked in &self.policies {
            if let Some(compiled) = &checked.compiled
                && !checked.has_compared_crawlers
            {
                let mut problems = policy::unknown_crawlers(&compiled.named_crawlers, crawlers);
                compiled.texts.add_excerpts(&mut problems);
                self.problems.extend(problems);
            }
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
        let name = match origin {
            PolicyOrigin::Path(path) => path.display().to_string(),
            PolicyOrigin::BuiltIn => "the built-in policy".to_owned(),
        };
        let location = SourceLocation::for_file(&Arc::from(name.as_str()));
        let compiled = match policy::open(origin) {
            Ok(mut compiled) => {
                let policy = &compiled.policy;
                self.summary_lines.push(format!(
                    "{name}: {}, {}, {}",
                    policy.name_and_revision(),
                    pluralize(policy.rules().len(), "rule"),
                    pluralize(compiled.cases.len(), "case")
                ));
                self.check_cases(&compiled);
                if let Some(totals) = &mut self.exact {
                    let exact = ExactCheck::new(&compiled);
                    totals.add(&exact);
                    self.problems.extend(exact.problems);
                    let incomplete = compiled.incomplete_lint.take();
                    compiled
                        .problems
                        .retain(|problem| Some(problem) != incomplete.as_ref());
                }
                self.problems.append(&mut compiled.problems);
                self.problems.extend(compiled.inert_rules.iter().cloned());
                Some(compiled)
            }
            Err(problems) => {
                self.problems.extend(problems);
                None
            }
        };
        self.policies.push(CheckedPolicy {
            origin: origin.clone(),
            undecided_tunnels: compiled
                .as_ref()
                .and_then(|compiled| find_undecided_tunnels(&compiled.policy, &location)),
            location,
            compiled,
            has_compared_crawlers: false,
            in_configuration: false,
        });
    }

    fn check_cases(&mut self, compiled: &CompiledPolicy) {
        let cases = CaseProblems::new(compiled);
        if !compiled.assertions.is_empty() {
            let totals = self.assertions.get_or_insert_default();
            totals.proved += cases.proved;
            totals.refuted += cases.refuted;
            totals.undecided += cases.undecided.len();
        }
        self.problems.extend(cases.failures);
        let undecided = cases.undecided.into_iter().map(|problem| Problem {
            severity: Severity::Warning,
            ..problem
        });
        self.problems.extend(undecided);
    }

    /// Adds an advice for each policy that leaves every tunnel undecided and that no configuration names.
    ///
    /// It is not a warning, since tunnels are decided if the proxy intercepts TLS.
    fn advise_unconfigured(&mut self) {
        let problems = self
            .policies
            .iter()
            .filter(|checked| !checked.in_configuration)
            .filter_map(|checked| checked.undecided_tunnels.clone())
            .filter(|problem| problem.severity == Severity::Warning);
        self.problems.extend(problems.map(|problem| Problem {
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
        let undecided = self
            .exact
            .as_ref()
            .map_or(0, |exact| exact.answers.undecided);
        match (self.count(Severity::Error), self.count(Severity::Warning)) {
            (0, 0) if args.strict && undecided > 0 => Exit::Negative,
            (0, 0) => Exit::Success,
            (0, _) if args.strict => Exit::Negative,
            (0, _) => Exit::Success,
            (_, _) => Exit::Invalid,
        }
    }

    /// Returns a workflow command for each problem, in one line.
    fn annotations(&self) -> String {
        let lines = self.problems.iter().map(|problem| {
            let (level, title) = match problem.severity {
                Severity::Error => (AnnotationLevel::Error, "error in a policy"),
                Severity::Warning => (AnnotationLevel::Warning, "warning about a policy"),
                Severity::Advice => (AnnotationLevel::Notice, "advice about a policy"),
            };
            let annotation = Annotation {
                level,
                file: &problem.location.file,
                line: problem.location.line,
                column: problem.location.column,
                title,
                message: &problem.describe(),
            };
            format!("{annotation}\n")
        });
        lines.collect()
    }

    fn summary(&self, colors: ConsoleColors) -> String {
        let mut text: String = self
            .summary_lines
            .iter()
            .map(|line| format!("{line}\n"))
            .collect();
        let errors = self.count(Severity::Error);
        let warnings = self.count(Severity::Warning);
        if let Some(totals) = &self.assertions {
            text.push_str(&totals.render("assertions"));
        }
        if let Some(totals) = &self.exact {
            text.push_str(&totals.render());
        }
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
        text.push_str(&colors.paint(tone, counts));
        text.push('\n');
        text
    }

    fn to_json(&self) -> Json {
        let mut report = json!({
            "errors": self.count(Severity::Error),
            "warnings": self.count(Severity::Warning),
            "problems": self.problems.iter().map(Problem::to_json).collect::<Vec<_>>(),
        });
        let totals = [
            (
                "assertions",
                self.assertions.as_ref().map(ExactTotals::to_json),
            ),
            ("exact", self.exact.as_ref().map(ExactRuleTotals::to_json)),
        ];
        for (key, totals) in totals {
            if let (Some(totals), Json::Object(keys)) = (totals, &mut report) {
                keys.insert(key.into(), totals);
            }
        }
        report
    }
}

/// Returns the error of a directory without a configuration and a policy. The proxy would start there, but a check that
/// passes in any wrong directory checks nothing.
fn nothing_to_check() -> Problem {
    let location = SourceLocation::for_file(&Arc::from(load::DEFAULT_CONFIG_PATH));
    Problem::error(
        &location,
        "there is nothing to check: neither this configuration nor a policy exists",
    )
    .with_help("name a file, set $CRAWLGATE_CONFIG, or run the command in the directory of the configuration")
}

/// Returns the ports that tunnels for TLS may use, and the rules that apply to them; `None` if there are no such ports.
fn describe_tunnels(settings: &Settings) -> Option<String> {
    let tunnels = &settings.tunnels;
    let opens_tls = (1..=u16::MAX).any(|port| {
        contains_port(&tunnels.connect_ports, port)
            && contains_port(&settings.egress.ports, port)
            && contains_port(&tunnels.tls_ports, port)
    });
    if !opens_tls {
        return None;
    }
    let ports = format_ports(&tunnels.tls_ports);
    let rules = if settings.tls.intercept {
        "intercepted (tls.intercept): robots.txt and rules on URLs apply; where a rule sets `tls: tunnel`, only host, \
         address and pace are checked"
    } else {
        "only host, address and pace are checked; robots.txt and rules on URLs do not apply, except where a rule sets \
         `tls: intercept`"
    };
    Some(format!("tunnels to port {ports}: {rules}"))
}

fn contains_port(ranges: &[RangeInclusive<u16>], port: u16) -> bool {
    ranges.iter().any(|range| range.contains(&port))
}

/// Returns a problem if a tunnel to a host that no rule names, as most hosts are, is refused as undecided.
fn find_undecided_tunnels(policy: &Policy, location: &SourceLocation) -> Option<Problem> {
    let host = HostTarget::parse_authority("a-host-that-no-rule-names.invalid:443").ok()?;
    let (trail, decision) = policy.decide(&Facts::for_tunnel(&host));
    let refusal = Refusal::from_decision(policy, &trail, &decision)?;
    if refusal.reason != Reason::Undecided {
        return None;
    }
    let rule = refusal
        .rule
        .as_ref()
        .map_or("the policy".to_owned(), |rule| {
            format!("rule `{}`", rule.as_str())
        });
    let problem = if policy.treats_tunnels_alike() {
        let message = format!(
            "every tunnel (CONNECT) is refused as undecided, since {rule} depends on what it hides"
        );
        Problem::warning(location, message)
    } else {
        let message = format!(
            "tunnels (CONNECT) are refused as undecided, since {rule} depends on what they hide"
        );
        Problem::advice(location, message)
    };
    Some(problem.with_help(
        "set `tunnel_undecided: allow` where such tunnels are acceptable, or intercept TLS (`tls.intercept`)",
    ))
}
