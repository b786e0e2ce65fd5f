//! `crawlgate shadow`: shows what rules and policies in shadow mode would change in a running proxy.

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::Exit;
use super::admin_client::{get_array, get_or_null, get_str, get_u64};
use super::args::{OutputFormat, ShadowArgs};
use super::console::{self, report_cannot_run};
use super::running_proxy::RunningProxy;
use crate::console::{ConsoleColors, Tone};

/// The maximum number of examples for each change.
const MAX_EXAMPLES: usize = 5;

pub(super) fn run(args: &ShadowArgs) -> Exit {
    let proxy = match RunningProxy::find(&args.proxy) {
        Ok(proxy) => proxy,
        Err(exit) => return exit,
    };
    let document = match proxy.get("/api/v1/shadow") {
        Ok(document) => document,
        Err(error) => return report_cannot_run(&error),
    };
    let text = match args.format {
        OutputFormat::Json => format!("{document:#}\n"),
        OutputFormat::Text => report_text(&document, ConsoleColors::for_stdout()),
    };
    console::print(&text, Exit::Success)
}

fn report_text(document: &Json, colors: ConsoleColors) -> String {
    let rules = get_array(document, "rules");
    let shadow = Some(get_or_null(document, "shadow_policy")).filter(|shadow| !shadow.is_null());
    let active = policy_name(document);
    if rules.is_empty() && shadow.is_none() {
        return format!("{active}: no rule has `mode: shadow`, and `policy.shadow` is not set\n");
    }
    let mut text = format!("{}\n", colors.paint(Tone::Strong, active));
    let mut rows = vec![ShadowTableRow::header()];
    for rule in rules {
        let name = get_str(rule, "rule").to_owned();
        rows.push(ShadowTableRow::from_entry(name, rule));
    }
    if let Some(shadow) = shadow {
        rows.push(ShadowTableRow::from_entry(policy_name(shadow), shadow));
    }
    let widths: Vec<usize> = (0..COLUMNS)
        .map(|column| rows.iter().map(|row| row.width(column)).max().unwrap_or(0))
        .collect();
    for row in &rows {
        text.push_str(&row.render(&widths));
    }
    for rule in rules {
        write_examples(&mut text, get_str(rule, "rule"), rule, colors);
    }
    if let Some(shadow) = shadow {
        write_examples(&mut text, get_str(shadow, "policy"), shadow, colors);
    }
    text
}

fn policy_name(entry: &Json) -> String {
    format!(
        "policy {}@{}",
        get_str(entry, "policy"),
        get_str(entry, "revision")
    )
}

const COLUMNS: usize = 5;

struct ShadowTableRow([String; COLUMNS]);

impl ShadowTableRow {
    fn header() -> Self {
        Self(
            [
                "in shadow",
                "evaluated",
                "would refuse",
                "would admit",
                "reasons",
            ]
            .map(str::to_owned),
        )
    }

    fn from_entry(name: String, entry: &Json) -> Self {
        let refuse = get_or_null(entry, "would_refuse");
        let admit = get_or_null(entry, "would_admit");
        let mut reasons = Vec::new();
        for (verb, tally) in [("refuse", refuse), ("admit", admit)] {
            let counts = [
                count_texts(get_or_null(tally, "reasons")),
                count_texts(get_or_null(tally, "rules")),
            ]
            .concat();
            if !counts.is_empty() {
                reasons.push(format!("{verb}: {}", counts.join(", ")));
            }
        }
        Self([
            name,
            get_u64(entry, "judged").to_string(),
            get_u64(refuse, "total").to_string(),
            get_u64(admit, "total").to_string(),
            reasons.join("; "),
        ])
    }

    fn width(&self, column: usize) -> usize {
        self.0.get(column).map_or(0, |cell| cell.chars().count())
    }

    /// Formats the row with names aligned to the left and numbers to the right, without padding at its end.
    fn render(&self, widths: &[usize]) -> String {
        let mut line = String::new();
        for (column, (cell, width)) in self.0.iter().zip(widths).enumerate() {
            let _ = match column {
                0 => write!(line, "{cell:<width$}"),
                1..4 => write!(line, "  {cell:>width$}"),
                _ => write!(line, "  {cell}"),
            };
        }
        format!("{}\n", line.trim_end())
    }
}

/// Formats each name of a map with its count, such as `rule 3`.
fn count_texts(map: &Json) -> Vec<String> {
    map.as_object()
        .into_iter()
        .flatten()
        .map(|(name, count)| format!("{name} {}", count.as_u64().unwrap_or_default()))
        .collect()
}

fn write_examples(text: &mut String, name: &str, entry: &Json, colors: ConsoleColors) {
    for (verb, key, tone) in [
        ("would refuse", "would_refuse", Tone::Bad),
        ("would admit", "would_admit", Tone::Good),
    ] {
        let examples = get_array(get_or_null(entry, key), "examples");
        if examples.is_empty() {
            continue;
        }
        let _ = writeln!(
            text,
            "\n{name} {}, most recently:",
            colors.paint(tone, verb)
        );
        for example in examples.iter().take(MAX_EXAMPLES) {
            let subject = get_or_null(example, "url")
                .as_str()
                .or(get_or_null(example, "host").as_str())
                .unwrap_or("(not recorded)");
            let rule = get_or_null(example, "rule")
                .as_str()
                .map_or(String::new(), |rule| format!("  rule={rule}"));
            let _ = writeln!(
                text,
                "  {}  {subject}{}",
                get_str(example, "at"),
                colors.paint(Tone::Faint, rule)
            );
        }
    }
}
