//! The comparison for people: how many decisions change, to what, by which rules, with examples, and on which hosts.

use crate::policy::compare::{self, ChangeKind, Structure};

use super::super::paint::{Paint, Tone, fitted, printable};
use super::Report;
use super::change::Kind;
use super::summary::{Group, OfHost, OfKind};

/// The most hosts that are listed.
const HOSTS: usize = 10;
/// The most lines that could not be read which are shown.
const UNREAD: usize = 5;

/// The whole report.
pub(super) fn of(report: &Report<'_>, examples: usize, paint: Paint, width: usize) -> String {
    let mut page = Page {
        text: String::new(),
        paint,
        width,
    };
    page.head(report);
    if let Some(structure) = &report.structure {
        page.structure(structure);
    }
    report
        .summary
        .kinds
        .iter()
        .for_each(|kind| page.kind(kind, examples));
    page.hosts(&report.summary.hosts);
    page.unread(report);
    page.text
}

struct Page {
    text: String,
    paint: Paint,
    width: usize,
}

impl Page {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    fn headline(&mut self, words: &str) {
        let words = self.paint.paint(Tone::Strong, words);
        self.line("");
        self.line(&words);
    }

    fn head(&mut self, report: &Report<'_>) {
        for (word, side) in [("old", &report.old), ("new", &report.new)] {
            self.line(&format!(
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
            Tone::Doubt
        };
        let counts = match (report.asked, changed) {
            (0, _) => format!("no {what}s to judge"),
            (asked, 0) => format!("{}: no decision changes", counted(asked, what)),
            (asked, 1) => format!("{}: 1 decision changes", counted(asked, what)),
            (asked, n) => format!("{}: {} decisions change", counted(asked, what), grouped(n)),
        };
        self.line(&self.paint.paint(tone, counts));
    }

    fn structure(&mut self, structure: &Structure) {
        for (name, changes) in [
            ("Rules", &structure.rules),
            ("Options", &structure.options),
            ("Lists", &structure.lists),
        ] {
            if changes.is_empty() {
                continue;
            }
            self.headline(name);
            let names = changes
                .iter()
                .map(|change| change.name.chars().count())
                .max()
                .unwrap_or(0)
                .min(32);
            changes
                .iter()
                .for_each(|change| self.written(change, names));
        }
    }

    fn written(&mut self, change: &compare::Change, names: usize) {
        let (tone, word, details) = match &change.kind {
            ChangeKind::Added(words) => (Tone::Good, "added", vec![words.clone()]),
            ChangeKind::Removed(words) => (Tone::Bad, "removed", vec![words.clone()]),
            ChangeKind::Moved => (Tone::Doubt, "moved", Vec::new()),
            ChangeKind::Changed(aspects) => (
                Tone::Doubt,
                "changed",
                aspects.iter().flat_map(aspect).collect(),
            ),
        };
        let indent = 2 + 7 + 2 + names + 2;
        let room = self.width.saturating_sub(indent).max(24);
        let mut details = details
            .iter()
            .map(|detail| fitted(&printable(detail), room));
        let word = self.paint.paint(tone, format!("{word:7}"));
        let first = details.next().unwrap_or_default();
        let row = format!("  {word}  {:names$}  {first}", change.name);
        let rest: Vec<String> = details
            .map(|detail| format!("{:indent$}{detail}", ""))
            .collect();
        self.line(&row);
        rest.iter().for_each(|line| self.line(line));
    }

    fn kind(&mut self, kind: &OfKind<'_>, examples: usize) {
        let tone = match kind.kind {
            Kind::Verdict(_, "allow" | "undecided and let through") => Tone::Good,
            Kind::Verdict(_, "reject" | "undecided and refused") => Tone::Bad,
            Kind::Verdict(..) | Kind::Refusal | Kind::Options | Kind::Rule => Tone::Doubt,
        };
        let words = self.paint.paint(tone, kind.kind.in_words());
        self.line("");
        self.line(&format!("{words}  {}", grouped(kind.count)));
        kind.groups
            .iter()
            .for_each(|group| self.group(group, examples));
    }

    fn group(&mut self, group: &Group<'_>, examples: usize) {
        let (old, new) = (named(group.old_rule), named(group.new_rule));
        let by = if old == new {
            format!("by {old}")
        } else {
            format!("{old} -> {new}")
        };
        self.line(&format!("  {:>7}  {by}", grouped(group.count)));
        for one in &group.differences {
            let line = format!("{}: {} -> {}", one.key, one.old, one.new);
            self.line(&format!(
                "           {}",
                fitted(&printable(&line), self.width.saturating_sub(11).max(24))
            ));
        }
        for url in group.urls.iter().take(examples) {
            let url = fitted(&printable(url), self.width.saturating_sub(13).max(24));
            let url = self.paint.paint(Tone::Faint, url);
            self.line(&format!("             {url}"));
        }
    }

    fn hosts(&mut self, hosts: &[OfHost<'_>]) {
        if hosts.is_empty() {
            return;
        }
        self.headline("Hosts");
        let longest = hosts
            .iter()
            .take(HOSTS)
            .map(|host| host.host.len())
            .max()
            .unwrap_or(0)
            .min(40);
        for host in hosts.iter().take(HOSTS) {
            let kinds: Vec<String> = host
                .kinds
                .iter()
                .map(|(kind, count)| format!("{} {}", kind.in_words(), grouped(*count)))
                .collect();
            self.line(&format!(
                "  {:>7}  {:longest$}  {}",
                grouped(host.count),
                host.host,
                kinds.join(", ")
            ));
        }
        if let Some(more) = hosts.len().checked_sub(HOSTS).filter(|more| *more > 0) {
            self.line(&format!("           and {}", counted(more, "more host")));
        }
    }

    fn unread(&mut self, report: &Report<'_>) {
        if report.unread.is_empty() {
            return;
        }
        let words = format!("{} could not be read", counted(report.unread.len(), "line"));
        self.line("");
        self.line(&self.paint.paint(Tone::Bad, words));
        for unread in report.unread.iter().take(UNREAD) {
            self.line(&format!(
                "  line {}: {}",
                unread.line,
                printable(&unread.error)
            ));
        }
    }
}

fn aspect(aspect: &compare::Aspect) -> Vec<String> {
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

fn named(rule: Option<&str>) -> &str {
    rule.unwrap_or("(default)")
}

fn counted(number: usize, word: &str) -> String {
    if number == 1 {
        format!("1 {word}")
    } else {
        format!("{} {word}s", grouped(number))
    }
}

/// `10,000`.
fn grouped(number: usize) -> String {
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
            assert_eq!(grouped(number), shown);
        }
    }
}
