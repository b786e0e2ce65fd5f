//! `crawlgate shadow`: what rules and policies in shadow would change in a running proxy.

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::Exit;
use super::admin_client;
use super::args::{OutputFormat, ShadowArgs};
use super::color::{ConsoleColors, Tone};
use super::console::{self, report_cannot_run};
use super::inputs;

/// Examples that are shown of each change.
const MAX_EXAMPLES: usize = 5;

/// Runs the command.
pub(super) fn run(args: &ShadowArgs) -> Exit {
    let overrides = args.proxy.overrides();
    let settings = match inputs::load_settings(&overrides) {
        Ok(loaded) => loaded.settings,
        Err(exit) => return exit,
    };
    let document = match admin_client::get(&settings.admin, "/api/v1/shadow") {
        Ok(document) => document,
        Err(why) => return report_cannot_run(&why),
    };
    let text = match args.format {
        OutputFormat::Json => format!("{document:#}\n"),
        OutputFormat::Text => report_text(&document, ConsoleColors::for_stdout()),
    };
    console::print(&text, Exit::Success)
}

fn report_text(document: &Json, paint: ConsoleColors) -> String {
    let rules = get_or_null(document, "rules")
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let shadow = Some(get_or_null(document, "shadow_policy")).filter(|shadow| !shadow.is_null());
    let live = format!(
        "policy {}@{}",
        get_string(document, "policy"),
        get_string(document, "revision")
    );
    if rules.is_empty() && shadow.is_none() {
        return format!(
            "{live}: nothing stands in shadow (`mode: shadow` of a rule, `policy.shadow`)\n"
        );
    }
    let mut text = format!("{}\n", paint.paint(Tone::Strong, live));
    let mut rows = vec![ShadowTableRow::header()];
    rows.extend(
        rules
            .iter()
            .map(|rule| ShadowTableRow::from_entry(get_string(rule, "rule"), rule)),
    );
    if let Some(shadow) = shadow {
        let name = format!(
            "policy {}@{}",
            get_string(shadow, "policy"),
            get_string(shadow, "revision")
        );
        rows.push(ShadowTableRow::from_entry(name, shadow));
    }
    let widths: Vec<usize> = (0..COLUMNS)
        .map(|at| rows.iter().map(|row| row.width(at)).max().unwrap_or(0))
        .collect();
    for row in &rows {
        text.push_str(&row.render(&widths));
    }
    for (of, entry) in rules
        .iter()
        .map(|rule| (get_string(rule, "rule"), rule))
        .chain(shadow.map(|shadow| (get_string(shadow, "policy"), shadow)))
    {
        write_examples(&mut text, &of, entry, paint);
    }
    text
}

const COLUMNS: usize = 5;

/// One line of the table.
struct ShadowTableRow([String; COLUMNS]);

impl ShadowTableRow {
    fn header() -> Self {
        Self(["in shadow", "judged", "would refuse", "would admit", "why"].map(str::to_owned))
    }

    fn from_entry(name: String, entry: &Json) -> Self {
        let (refuse, admit) = (
            get_or_null(entry, "would_refuse"),
            get_or_null(entry, "would_admit"),
        );
        let why = [("refuse", refuse), ("admit", admit)]
            .into_iter()
            .filter_map(|(what, tally)| {
                let counts = [
                    count_texts(get_or_null(tally, "reasons")),
                    count_texts(get_or_null(tally, "rules")),
                ]
                .concat();
                (!counts.is_empty()).then(|| format!("{what}: {}", counts.join(", ")))
            });
        let why = why.collect::<Vec<_>>().join("; ");
        Self([
            name,
            format_number(get_or_null(entry, "judged")),
            format_number(get_or_null(refuse, "total")),
            format_number(get_or_null(admit, "total")),
            why,
        ])
    }

    fn width(&self, at: usize) -> usize {
        self.0.get(at).map_or(0, |cell| cell.chars().count())
    }

    /// Names to the left, numbers to the right; nothing is padded behind the last one.
    fn render(&self, widths: &[usize]) -> String {
        let mut line = String::new();
        for (at, (cell, width)) in self.0.iter().zip(widths).enumerate() {
            let _ = match at {
                0 => write!(line, "{cell:<width$}"),
                1..4 => write!(line, "  {cell:>width$}"),
                _ => write!(line, "  {cell}"),
            };
        }
        format!("{}\n", line.trim_end())
    }
}

/// `rule 3`.
fn count_texts(map: &Json) -> Vec<String> {
    let entries = map.as_object().into_iter().flatten();
    entries
        .map(|(name, count)| format!("{name} {}", format_number(count)))
        .collect()
}

fn write_examples(text: &mut String, of: &str, entry: &Json, paint: ConsoleColors) {
    for (what, key, tone) in [
        ("would refuse", "would_refuse", Tone::Bad),
        ("would admit", "would_admit", Tone::Good),
    ] {
        let examples = get_or_null(get_or_null(entry, key), "examples")
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        if examples.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{of} {}, at last:", paint.paint(tone, what));
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
                get_string(example, "at"),
                paint.paint(Tone::Faint, rule)
            );
        }
    }
}

/// What is at a key; nothing at all counts as null.
fn get_or_null<'j>(entry: &'j Json, key: &str) -> &'j Json {
    entry.get(key).unwrap_or(&Json::Null)
}

fn get_string(entry: &Json, key: &str) -> String {
    get_or_null(entry, key)
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn format_number(value: &Json) -> String {
    value.as_u64().unwrap_or_default().to_string()
}
