//! The comparison as text: the changed decisions by kind, rule and host, with examples.

use std::borrow::Cow;

use crate::policy::compare::{self, PolicyChangeKind, PolicyDiff};
use crate::policy::exact::{ExactDifference, UndecidedChange};

use crate::cli::text::{ReportText, group_digits, pluralize, replace_controls, truncate};
use crate::console::{ConsoleColors, Tone};

use super::DiffReport;
use super::change::{ChangeGroupKey, DecisionChangeKind};
use super::summary::{DiffKindSummary, DiffSubjectSummary};

/// The maximum number of hosts or crawlers to list.
const MAX_SUBJECTS: usize = 10;
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
    for kind in &report.summary.kinds {
        text.write_kind(kind);
    }
    text.write_subjects("Hosts", "host", &report.summary.hosts);
    if report.left_out.is_some() {
        text.write_subjects("Crawlers", "crawler", &report.summary.crawlers);
    }
    if let Some(exact) = &report.exact {
        text.write_exact(exact);
    }
    text.write_left_out(report);
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
            self.report.push_line(&format!(
                "{label}  {}  ({path})",
                side.policy.name_and_revision()
            ));
        }
        let tone = if report.changes.is_empty() {
            Tone::Good
        } else {
            Tone::Warning
        };
        let summary = report.headline();
        self.report.push_line(&self.paint(tone, &summary));
        if let Some(exact) = &report.exact {
            self.write_exact_summary(exact);
        }
    }

    fn write_exact_summary(&mut self, exact: &ExactDifference<ChangeGroupKey<'_>>) {
        let open = exact.undecided.len();
        let (tone, answer) = match (exact.examples.is_empty(), open) {
            (true, 0) => (
                Tone::Good,
                "proved equivalent, no decision changes".to_owned(),
            ),
            (true, n) => (
                Tone::Warning,
                format!("{} not decided", pluralize(n, "change")),
            ),
            (false, 0) => (Tone::Warning, "decisions change".to_owned()),
            (false, n) => {
                let open = pluralize(n, "change");
                (
                    Tone::Warning,
                    format!("decisions change, {open} not decided"),
                )
            }
        };
        let line = self.paint(tone, &format!("all URLs: {answer}"));
        self.report.push_line(&line);
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

    /// Writes examples of changed decisions among all URLs, and what is not decided.
    fn write_exact(&mut self, exact: &ExactDifference<ChangeGroupKey<'_>>) {
        if exact.is_equivalent() {
            return;
        }
        self.report.push_headline("All URLs");
        let mut last = None;
        for (key, examples) in &exact.examples {
            if last != Some(key.kind) {
                let headline = self.paint(kind_tone(key.kind), &key.kind.headline());
                self.report.push_line(&format!("  {headline}"));
                last = Some(key.kind);
            }
            let examples: Vec<String> = examples
                .iter()
                .map(|example| format!("{}{}", example.url, example.describe_details()))
                .collect();
            let examples = examples.into_iter().map(|example| (Cow::Owned(example), 1));
            self.write_group(None, key, examples);
        }
        if !exact.undecided.is_empty() {
            let headline = self.paint(Tone::Warning, "not decided");
            self.report.push_line(&format!("  {headline}"));
        }
        for change in &exact.undecided {
            let line = self.fit(&undecided_text(change), 11);
            self.report.push_line(&format!("           {line}"));
        }
    }

    fn write_kind(&mut self, kind: &DiffKindSummary<'_>) {
        let headline = self.paint(kind_tone(kind.kind), &kind.kind.headline());
        self.report.push_line("");
        self.report
            .push_line(&format!("{headline}  {}", group_digits(kind.count)));
        for group in &kind.groups {
            let urls = group.urls.iter();
            let urls = urls.map(|(url, count)| (Cow::Borrowed(*url), *count));
            self.write_group(Some(group.count), &group.key, urls);
        }
    }

    /// Writes the number of changes with the same cause, if it is known, with examples.
    fn write_group<'t>(
        &mut self,
        count: Option<usize>,
        key: &ChangeGroupKey<'_>,
        urls: impl Iterator<Item = (Cow<'t, str>, usize)>,
    ) {
        let old = rule_name(key.old_rule);
        let new = rule_name(key.new_rule);
        let rules = if old == new {
            format!("by {old}")
        } else {
            format!("{old} -> {new}")
        };
        let count = count.map(group_digits).unwrap_or_default();
        self.report.push_line(&format!("  {count:>7}  {rules}"));
        for difference in &key.differences {
            let line = format!(
                "{}: {} -> {}",
                difference.key, difference.old, difference.new
            );
            let line = self.fit(&line, 11);
            self.report.push_line(&format!("           {line}"));
        }
        for (url, count) in urls.take(self.examples) {
            let url = match count {
                1 => url,
                _ => format!("{url} ({} requests)", group_digits(count)).into(),
            };
            let url = self.paint(Tone::Faint, &self.fit(&url, 13));
            self.report.push_line(&format!("             {url}"));
        }
    }

    fn write_subjects(&mut self, title: &str, noun: &str, subjects: &[DiffSubjectSummary<'_>]) {
        if subjects.is_empty() {
            return;
        }
        self.report.push_headline(title);
        let shown = subjects.get(..MAX_SUBJECTS).unwrap_or(subjects);
        let longest = shown
            .iter()
            .map(|subject| subject.name.len())
            .max()
            .unwrap_or(0)
            .min(40);
        for subject in shown {
            self.report.push_line(&format!(
                "  {:>7}  {:longest$}  {}",
                group_digits(subject.count),
                subject.name,
                subject.describe_kinds()
            ));
        }
        let more = subjects.len() - shown.len();
        if more > 0 {
            let more = pluralize(more, &format!("more {noun}"));
            self.report.push_line(&format!("           and {more}"));
        }
    }

    fn write_left_out(&mut self, report: &DiffReport<'_>) {
        for note in report.left_out_notes() {
            let note = self.paint(Tone::Warning, &note);
            self.report.push_line(&note);
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

fn kind_tone(kind: DecisionChangeKind) -> Tone {
    match kind {
        DecisionChangeKind::Verdict(_, "allow" | "undecided and allowed") => Tone::Good,
        DecisionChangeKind::Verdict(_, "reject" | "undecided and refused") => Tone::Bad,
        DecisionChangeKind::Verdict(..)
        | DecisionChangeKind::Refusal
        | DecisionChangeKind::Options
        | DecisionChangeKind::Rule => Tone::Warning,
    }
}

/// Returns the question about a change that is not decided, with the reason.
pub(super) fn undecided_text(change: &UndecidedChange) -> String {
    let UndecidedChange { name, reason, .. } = change;
    let question = match (
        change.changes_decisions,
        change.verdicts.new_access,
        change.verdicts.new_refusal,
    ) {
        (false, ..) => "changes any decision",
        (true, true, false) => "allows more URLs",
        (true, false, true) => "refuses more URLs",
        (true, ..) => "allows or refuses more URLs",
    };
    format!("whether {name} {question}: {reason}")
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

pub(super) fn rule_name(rule: Option<&str>) -> &str {
    rule.unwrap_or("(default)")
}
