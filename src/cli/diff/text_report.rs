//! The comparison as text: the changed decisions by kind, rule and host, with examples.

use crate::policy::compare::{self, PolicyChangeKind, PolicyDiff};
use crate::policy::exact::{DifferenceKind, ExactDifference};

use crate::cli::text::{ReportText, group_digits, pluralize, replace_controls, truncate};
use crate::console::{ConsoleColors, Tone};

use super::DiffReport;
use super::change::DecisionChangeKind;
use super::summary::{ChangeGroup, DiffHostSummary, DiffKindSummary};

/// The maximum number of hosts to list.
const MAX_HOSTS: usize = 10;
/// The maximum number of lines that could not be read to list.
const MAX_INVALID_LINES: usize = 5;
const MIN_COLUMNS: usize = 24;

pub(super) fn render(
    report: &DiffReport<'_>,
    examples: usize,
    colors: ConsoleColors,
    width: usize,
) -> String {
    let mut text = DiffText {
        report: ReportText::new(colors, width),
        examples,
    };
    text.write_header(report);
    if let Some(structure) = &report.structure {
        text.write_structure(structure);
    }
    if let Some(exact) = &report.exact {
        text.write_exact(exact);
    }
    for kind in &report.summary.kinds {
        text.write_kind(kind);
    }
    text.write_hosts(&report.summary.hosts);
    text.write_invalid_lines(report);
    text.report.into_string()
}

struct DiffText {
    report: ReportText,
    /// The maximum number of example URLs for each change.
    examples: usize,
}

impl DiffText {
    fn write_header(&mut self, report: &DiffReport<'_>) {
        for (label, side) in [("old", &report.old), ("new", &report.new)] {
            let path = side.path.display();
            self.report
                .push_line(&format!("{label}  {}  ({path})", side.name()));
        }
        let noun = if report.structure.is_some() {
            "case"
        } else {
            "URL"
        };
        let changed = report.changes.len();
        let tone = if changed == 0 {
            Tone::Good
        } else {
            Tone::Warning
        };
        let requests = pluralize(report.request_count, noun);
        let summary = match (report.request_count, changed) {
            (0, _) => format!("no {noun}s to compare"),
            (_, 0) => format!("{requests}: no decision changes"),
            (_, 1) => format!("{requests}: 1 decision changes"),
            (_, n) => format!("{requests}: {} decisions change", group_digits(n)),
        };
        self.report.push_line(&self.paint(tone, &summary));
    }

    fn paint(&self, tone: Tone, text: &str) -> String {
        self.report.colors.paint(tone, text)
    }

    /// Cuts a text to the columns that are left after an indent.
    fn fit(&self, text: &str, indent: usize) -> String {
        let columns = self.report.width.saturating_sub(indent).max(MIN_COLUMNS);
        truncate(&replace_controls(text), columns)
    }

    fn write_structure(&mut self, structure: &PolicyDiff) {
        for (name, changes) in [
            ("Rules", &structure.rules),
            ("Options", &structure.options),
            ("Lists", &structure.lists),
        ] {
            if changes.is_empty() {
                continue;
            }
            self.report.push_headline(name);
            let names = changes
                .iter()
                .map(|change| change.name.chars().count())
                .max()
                .unwrap_or(0)
                .min(32);
            for change in changes {
                self.write_structure_change(change, names);
            }
        }
    }

    fn write_structure_change(&mut self, change: &compare::PolicyChange, names: usize) {
        let (tone, word, details) = match &change.kind {
            PolicyChangeKind::Added(text) => (Tone::Good, "added", vec![text.clone()]),
            PolicyChangeKind::Removed(text) => (Tone::Bad, "removed", vec![text.clone()]),
            PolicyChangeKind::Moved => (Tone::Warning, "moved", Vec::new()),
            PolicyChangeKind::Changed(aspects) => (
                Tone::Warning,
                "changed",
                aspects.iter().flat_map(aspect_lines).collect(),
            ),
        };
        let indent = 2 + 7 + 2 + names + 2;
        let mut details = details.iter().map(|detail| self.fit(detail, indent));
        let first = details.next().unwrap_or_default();
        let rest: Vec<String> = details.collect();
        let word = self.paint(tone, &format!("{word:7}"));
        self.report
            .push_line(&format!("  {word}  {:names$}  {first}", change.name));
        for detail in rest {
            self.report.push_line(&format!("{:indent$}{detail}", ""));
        }
    }

    fn write_exact(&mut self, exact: &ExactDifference) {
        if exact.is_equivalent() {
            let line = self.paint(
                Tone::Good,
                "proved equivalent: no decision differs for any request",
            );
            self.report.push_line(&line);
            return;
        }
        for (kind, examples) in &exact.examples {
            let headline = match kind {
                DifferenceKind::NewAccess => "now allowed",
                DifferenceKind::NewRefusal => "now refused",
                DifferenceKind::Cause => "decided by another rule",
            };
            self.report.push_headline(headline);
            for example in examples.iter().take(self.examples) {
                let line = format!("{}{}", example.url, example.describe_details());
                let line = self.fit(&line, 2);
                self.report.push_line(&format!("  {line}"));
            }
        }
        for (change, reason) in &exact.undecided {
            let line = format!("{change}: not decided whether a decision differs: {reason}");
            let line = self.paint(Tone::Warning, &line);
            self.report.push_line(&line);
        }
    }

    fn write_kind(&mut self, kind: &DiffKindSummary<'_>) {
        let tone = match kind.kind {
            DecisionChangeKind::Verdict(_, "allow" | "undecided and allowed") => Tone::Good,
            DecisionChangeKind::Verdict(_, "reject" | "undecided and refused") => Tone::Bad,
            DecisionChangeKind::Verdict(..)
            | DecisionChangeKind::Refusal
            | DecisionChangeKind::Options
            | DecisionChangeKind::Rule => Tone::Warning,
        };
        let headline = self.paint(tone, &kind.kind.headline());
        self.report.push_line("");
        self.report
            .push_line(&format!("{headline}  {}", group_digits(kind.count)));
        for group in &kind.groups {
            self.write_group(group);
        }
    }

    fn write_group(&mut self, group: &ChangeGroup<'_>) {
        let old = rule_name(group.old_rule);
        let new = rule_name(group.new_rule);
        let rules = if old == new {
            format!("by {old}")
        } else {
            format!("{old} -> {new}")
        };
        self.report
            .push_line(&format!("  {:>7}  {rules}", group_digits(group.count)));
        for difference in &group.differences {
            let line = format!(
                "{}: {} -> {}",
                difference.key, difference.old, difference.new
            );
            let line = self.fit(&line, 11);
            self.report.push_line(&format!("           {line}"));
        }
        for url in group.urls.iter().take(self.examples) {
            let url = self.paint(Tone::Faint, &self.fit(url, 13));
            self.report.push_line(&format!("             {url}"));
        }
    }

    fn write_hosts(&mut self, hosts: &[DiffHostSummary<'_>]) {
        if hosts.is_empty() {
            return;
        }
        self.report.push_headline("Hosts");
        let longest = hosts
            .iter()
            .take(MAX_HOSTS)
            .map(|host| host.host.len())
            .max()
            .unwrap_or(0)
            .min(40);
        for host in hosts.iter().take(MAX_HOSTS) {
            let kinds: Vec<String> = host
                .kinds
                .iter()
                .map(|(kind, count)| format!("{} {}", kind.headline(), group_digits(*count)))
                .collect();
            self.report.push_line(&format!(
                "  {:>7}  {:longest$}  {}",
                group_digits(host.count),
                host.host,
                kinds.join(", ")
            ));
        }
        if let Some(more) = hosts.len().checked_sub(MAX_HOSTS).filter(|more| *more > 0) {
            self.report
                .push_line(&format!("           and {}", pluralize(more, "more host")));
        }
    }

    fn write_invalid_lines(&mut self, report: &DiffReport<'_>) {
        if report.invalid_lines.is_empty() {
            return;
        }
        let count = pluralize(report.invalid_lines.len(), "line");
        let summary = self.paint(Tone::Bad, &format!("{count} could not be read"));
        self.report.push_line("");
        self.report.push_line(&summary);
        for invalid in report.invalid_lines.iter().take(MAX_INVALID_LINES) {
            let error = replace_controls(&invalid.error);
            self.report
                .push_line(&format!("  line {}: {error}", invalid.line));
        }
    }
}

fn aspect_lines(aspect: &compare::AspectChange) -> Vec<String> {
    let old = text_or_nothing(&aspect.old);
    let new = text_or_nothing(&aspect.new);
    match aspect.name {
        "" => vec![format!("{old} -> {new}")],
        name => vec![format!("{name}: {old}"), format!("-> {new}")],
    }
}

fn text_or_nothing(text: &str) -> &str {
    if text.is_empty() { "(nothing)" } else { text }
}

fn rule_name(rule: Option<&str>) -> &str {
    rule.unwrap_or("(default)")
}
