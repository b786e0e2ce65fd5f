//! The comparison for people: how many decisions change, to what, by which rules, with examples, and on which hosts.

use crate::policy::compare::{self, PolicyChangeKind, PolicyDiff};

use super::super::color::{ConsoleColors, Tone, replace_controls, truncate};
use super::DiffReport;
use super::change::DecisionChangeKind;
use super::summary::{ChangeGroup, DiffHostSummary, DiffKindSummary};

/// The most hosts that are listed.
const MAX_HOSTS: usize = 10;
/// The most lines that could not be read which are shown.
const MAX_INVALID_LINES: usize = 5;

/// The whole report.
pub(super) fn render(
    report: &DiffReport<'_>,
    examples: usize,
    paint: ConsoleColors,
    width: usize,
) -> String {
    let mut page = DiffText {
        text: String::new(),
        paint,
        width,
    };
    page.write_header(report);
    if let Some(structure) = &report.structure {
        page.write_structure(structure);
    }
    report
        .summary
        .kinds
        .iter()
        .for_each(|kind| page.write_kind(kind, examples));
    page.write_hosts(&report.summary.hosts);
    page.write_invalid_lines(report);
    page.text
}

struct DiffText {
    text: String,
    paint: ConsoleColors,
    width: usize,
}

impl DiffText {
    fn push_line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn push_headline(&mut self, words: &str) {
        let words = self.paint.paint(Tone::Strong, words);
        self.push_line("");
        self.push_line(&words);
    }

    fn write_header(&mut self, report: &DiffReport<'_>) {
        for (word, side) in [("old", &report.old), ("new", &report.new)] {
            self.push_line(&format!(
                "{word}  {}  ({})",
                side.name(),
                side.path.display()
            ));
        }
        let what = if report.structure.is_some() {
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
        let counts = match (report.request_count, changed) {
            (0, _) => format!("no {what}s to judge"),
            (asked, 0) => format!("{}: no decision changes", pluralize(asked, what)),
            (asked, 1) => format!("{}: 1 decision changes", pluralize(asked, what)),
            (asked, n) => format!(
                "{}: {} decisions change",
                pluralize(asked, what),
                group_digits(n)
            ),
        };
        self.push_line(&self.paint.paint(tone, counts));
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
            self.push_headline(name);
            let names = changes
                .iter()
                .map(|change| change.name.chars().count())
                .max()
                .unwrap_or(0)
                .min(32);
            changes
                .iter()
                .for_each(|change| self.write_structure_change(change, names));
        }
    }

    fn write_structure_change(&mut self, change: &compare::PolicyChange, names: usize) {
        let (tone, word, details) = match &change.kind {
            PolicyChangeKind::Added(words) => (Tone::Good, "added", vec![words.clone()]),
            PolicyChangeKind::Removed(words) => (Tone::Bad, "removed", vec![words.clone()]),
            PolicyChangeKind::Moved => (Tone::Warning, "moved", Vec::new()),
            PolicyChangeKind::Changed(aspects) => (
                Tone::Warning,
                "changed",
                aspects.iter().flat_map(aspect_lines).collect(),
            ),
        };
        let indent = 2 + 7 + 2 + names + 2;
        let room = self.width.saturating_sub(indent).max(24);
        let mut details = details
            .iter()
            .map(|detail| truncate(&replace_controls(detail), room));
        let word = self.paint.paint(tone, format!("{word:7}"));
        let first = details.next().unwrap_or_default();
        let row = format!("  {word}  {:names$}  {first}", change.name);
        let rest: Vec<String> = details
            .map(|detail| format!("{:indent$}{detail}", ""))
            .collect();
        self.push_line(&row);
        rest.iter().for_each(|line| self.push_line(line));
    }

    fn write_kind(&mut self, kind: &DiffKindSummary<'_>, examples: usize) {
        let tone = match kind.kind {
            DecisionChangeKind::Verdict(_, "allow" | "undecided and let through") => Tone::Good,
            DecisionChangeKind::Verdict(_, "reject" | "undecided and refused") => Tone::Bad,
            DecisionChangeKind::Verdict(..)
            | DecisionChangeKind::Refusal
            | DecisionChangeKind::Options
            | DecisionChangeKind::Rule => Tone::Warning,
        };
        let words = self.paint.paint(tone, kind.kind.headline());
        self.push_line("");
        self.push_line(&format!("{words}  {}", group_digits(kind.count)));
        kind.groups
            .iter()
            .for_each(|group| self.write_group(group, examples));
    }

    fn write_group(&mut self, group: &ChangeGroup<'_>, examples: usize) {
        let (old, new) = (rule_name(group.old_rule), rule_name(group.new_rule));
        let by = if old == new {
            format!("by {old}")
        } else {
            format!("{old} -> {new}")
        };
        self.push_line(&format!("  {:>7}  {by}", group_digits(group.count)));
        for one in &group.differences {
            let line = format!("{}: {} -> {}", one.key, one.old, one.new);
            self.push_line(&format!(
                "           {}",
                truncate(
                    &replace_controls(&line),
                    self.width.saturating_sub(11).max(24)
                )
            ));
        }
        for url in group.urls.iter().take(examples) {
            let url = truncate(
                &replace_controls(url),
                self.width.saturating_sub(13).max(24),
            );
            let url = self.paint.paint(Tone::Faint, url);
            self.push_line(&format!("             {url}"));
        }
    }

    fn write_hosts(&mut self, hosts: &[DiffHostSummary<'_>]) {
        if hosts.is_empty() {
            return;
        }
        self.push_headline("Hosts");
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
            self.push_line(&format!(
                "  {:>7}  {:longest$}  {}",
                group_digits(host.count),
                host.host,
                kinds.join(", ")
            ));
        }
        if let Some(more) = hosts.len().checked_sub(MAX_HOSTS).filter(|more| *more > 0) {
            self.push_line(&format!("           and {}", pluralize(more, "more host")));
        }
    }

    fn write_invalid_lines(&mut self, report: &DiffReport<'_>) {
        if report.invalid_lines.is_empty() {
            return;
        }
        let words = format!(
            "{} could not be read",
            pluralize(report.invalid_lines.len(), "line")
        );
        self.push_line("");
        self.push_line(&self.paint.paint(Tone::Bad, words));
        for unread in report.invalid_lines.iter().take(MAX_INVALID_LINES) {
            self.push_line(&format!(
                "  line {}: {}",
                unread.line,
                replace_controls(&unread.error)
            ));
        }
    }
}

fn aspect_lines(aspect: &compare::AspectChange) -> Vec<String> {
    let words = |text: &str| {
        if text.is_empty() {
            "(nothing)".to_owned()
        } else {
            text.to_owned()
        }
    };
    match aspect.name {
        "" => vec![format!("{} -> {}", words(&aspect.old), words(&aspect.new))],
        name => vec![
            format!("{name}: {}", words(&aspect.old)),
            format!("-> {}", words(&aspect.new)),
        ],
    }
}

fn rule_name(rule: Option<&str>) -> &str {
    rule.unwrap_or("(default)")
}

fn pluralize(number: usize, word: &str) -> String {
    if number == 1 {
        format!("1 {word}")
    } else {
        format!("{} {word}s", group_digits(number))
    }
}

/// `10,000`.
fn group_digits(number: usize) -> String {
    let digits = number.to_string();
    let places = (1..=digits.len()).rev();
    let comma = |place: usize| place > 1 && place % 3 == 1;
    digits
        .chars()
        .zip(places)
        .flat_map(|(digit, place)| [Some(digit), comma(place).then_some(',')])
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_grouped() {
        for (number, shown) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(group_digits(number), shown);
        }
    }
}
