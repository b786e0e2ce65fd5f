//! The comparison for a pull request: Markdown for a comment, and annotations of a GitHub workflow.

use std::fmt::Write as _;

use crate::cli::annotation::{Annotation, AnnotationLevel};
use crate::cli::text::{group_digits, replace_controls};
use crate::policy::compare::{PolicyChange, PolicyChangeKind};

use super::DiffReport;
use super::change::{ChangeGroupKey, DecisionChangeKind};
use super::summary::DiffSubjectSummary;
use super::text_report::{rule_name, undecided_text};

/// The maximum number of rows of a table: a comment has at most 65,536 characters.
const MAX_ROWS: usize = 50;

pub(super) fn render(report: &DiffReport<'_>, examples: usize) -> String {
    let mut text = format!(
        "### Policy: {} → {}\n\n{}\n",
        code(&report.old.policy.name_and_revision()),
        code(&report.new.policy.name_and_revision()),
        report.headline()
    );
    let structure = report.structure.iter();
    for (title, changes) in structure.flat_map(|structure| {
        [
            ("Rules", &structure.rules),
            ("Options", &structure.options),
            ("Lists", &structure.lists),
        ]
    }) {
        let rows = changes.iter().map(structure_row).collect();
        push_table(&mut text, title, &["", "", ""], rows);
    }
    let groups = report.summary.kinds.iter().flat_map(|kind| &kind.groups);
    let rows = groups.map(|group| {
        let urls = group.urls.iter().map(|(url, _)| *url);
        change_row(&group.key, &group_digits(group.count), urls, examples)
    });
    push_table(
        &mut text,
        "Changed decisions",
        &CHANGE_COLUMNS,
        rows.collect(),
    );
    push_table(
        &mut text,
        "By host",
        &["host", "requests", "changes"],
        report.summary.hosts.iter().map(subject_row).collect(),
    );
    if report.left_out.is_some() {
        push_table(
            &mut text,
            "By crawler",
            &["crawler", "requests", "changes"],
            report.summary.crawlers.iter().map(subject_row).collect(),
        );
    }
    if let Some(exact) = &report.exact {
        let rows = exact.examples.iter().map(|(key, found)| {
            let urls = found.iter().map(|example| example.url.as_str());
            change_row(key, "", urls, examples)
        });
        let rows: Vec<Vec<String>> = rows.collect();
        if exact.is_equivalent() {
            text.push_str("\n**All URLs:** proved equivalent, no decision changes.\n");
        }
        push_table(&mut text, "All URLs", &CHANGE_COLUMNS, rows);
        for change in &exact.undecided {
            let _ = writeln!(text, "- not decided: {}", cell(&undecided_text(change)));
        }
    }
    for note in report.left_out_notes() {
        let _ = write!(text, "\n{note}\n");
    }
    let invalid_lines = report.invalid_lines.get(..MAX_ROWS);
    for invalid in invalid_lines.unwrap_or(report.invalid_lines) {
        let _ = writeln!(text, "- line {}: {}", invalid.line, cell(&invalid.error));
    }
    text
}

const CHANGE_COLUMNS: [&str; 5] = ["change", "requests", "before", "now", "examples"];

/// Writes a workflow command for each change and cause, at the new policy's file.
pub(super) fn render_annotations(report: &DiffReport<'_>) -> String {
    let mut text = String::new();
    let file = report.new.path.display().to_string();
    let groups = report.summary.kinds.iter().flat_map(|kind| &kind.groups);
    for group in groups {
        let example = group.urls.first().map_or("", |(url, _)| url);
        let message = format!(
            "{} by {} (before: {}), such as {example}",
            group_digits(group.count),
            rule_name(group.key.new_rule),
            rule_name(group.key.old_rule)
        );
        push_annotation(&mut text, &file, &group.key, &message);
    }
    for (key, found) in report.exact.iter().flat_map(|exact| &exact.examples) {
        let example = found.first().map_or("", |example| &example.url);
        let message = format!(
            "by {} (before: {}), such as {example}",
            rule_name(key.new_rule),
            rule_name(key.old_rule)
        );
        push_annotation(&mut text, &file, key, &message);
    }
    let summary = Annotation {
        level: AnnotationLevel::Notice,
        title: "crawlgate diff",
        message: &report.headline(),
        ..whole_file(&file)
    };
    let _ = writeln!(text, "{summary}");
    text
}

/// New access and new refusals are warnings, everything else is a notice.
fn push_annotation(text: &mut String, file: &str, key: &ChangeGroupKey<'_>, message: &str) {
    let level = match key.kind {
        DecisionChangeKind::Verdict(..) => AnnotationLevel::Warning,
        DecisionChangeKind::Refusal | DecisionChangeKind::Options | DecisionChangeKind::Rule => {
            AnnotationLevel::Notice
        }
    };
    let annotation = Annotation {
        level,
        title: &key.kind.headline(),
        message: &replace_controls(message),
        ..whole_file(file)
    };
    let _ = writeln!(text, "{annotation}");
}

fn whole_file(file: &str) -> Annotation<'_> {
    Annotation {
        level: AnnotationLevel::Notice,
        file,
        line: 0,
        column: 0,
        title: "",
        message: "",
    }
}

fn structure_row(change: &PolicyChange) -> Vec<String> {
    let (word, details) = match &change.kind {
        PolicyChangeKind::Added(text) => ("added", code(text)),
        PolicyChangeKind::Removed(text) => ("removed", code(text)),
        PolicyChangeKind::Moved => ("moved", String::new()),
        PolicyChangeKind::Changed(aspects) => {
            let aspects = aspects.iter().map(|aspect| {
                let change = format!("{} → {}", code(&aspect.old), code(&aspect.new));
                match aspect.name {
                    "" => change,
                    name => format!("{name}: {change}"),
                }
            });
            ("changed", aspects.collect::<Vec<_>>().join("<br>"))
        }
    };
    vec![word.to_owned(), code(&change.name), details]
}

fn change_row<'t>(
    key: &ChangeGroupKey<'_>,
    count: &str,
    urls: impl Iterator<Item = &'t str>,
    examples: usize,
) -> Vec<String> {
    let mut change = format!("**{}**", cell(&key.kind.headline()));
    for difference in &key.differences {
        let _ = write!(
            change,
            "<br>{}: {} → {}",
            cell(&difference.key),
            code(&difference.old),
            code(&difference.new)
        );
    }
    let urls: Vec<String> = urls.take(examples).map(code).collect();
    vec![
        change,
        count.to_owned(),
        code(rule_name(key.old_rule)),
        code(rule_name(key.new_rule)),
        urls.join("<br>"),
    ]
}

fn subject_row(subject: &DiffSubjectSummary<'_>) -> Vec<String> {
    vec![
        code(subject.name),
        group_digits(subject.count),
        cell(&subject.describe_kinds()),
    ]
}

fn push_table(text: &mut String, title: &str, columns: &[&str], rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        return;
    }
    let rule = "---|".repeat(columns.len());
    let _ = write!(
        text,
        "\n#### {title}\n\n| {} |\n|{rule}\n",
        columns.join(" | ")
    );
    let more = rows.len().saturating_sub(MAX_ROWS);
    for row in rows.into_iter().take(MAX_ROWS) {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    if more > 0 {
        let _ = write!(text, "\nand {more} more\n");
    }
}

/// Formats text as code in a cell; empty text stays empty.
fn code(text: &str) -> String {
    if text.is_empty() {
        return String::new();
    }
    let text = replace_controls(text);
    // A cell cannot contain a bar after a backslash.
    let text = text.replace("\\|", "\\¦").replace('|', "\\|");
    // Backticks in the text must not end the code.
    let fence = "`".repeat(longest_run(&text, '`') + 1);
    let space = if text.contains('`') { " " } else { "" };
    format!("{fence}{space}{text}{space}{fence}")
}

fn longest_run(text: &str, character: char) -> usize {
    let runs = text.split(|c| c != character);
    runs.map(str::len).max().unwrap_or_default()
}

/// Makes text fit for a cell of a table: it is no markup, and mentions nobody.
fn cell(text: &str) -> String {
    let mut cell = String::with_capacity(text.len());
    for character in replace_controls(text).chars() {
        match character {
            '&' | '<' | '|' | '`' | '[' | '@' | '\\' => {
                let _ = write!(cell, "&#{};", character as u32);
            }
            other => cell.push(other),
        }
    }
    cell
}
