//! `crawlgate shadow`: what rules and policies in shadow would change in a running proxy.

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::Exit;
use super::admin;
use super::args::{Format, ShadowArgs};
use super::open;
use super::out::{self, say_and_fail};
use super::paint::{Paint, Tone};

/// Examples that are shown of each change.
const SHOWN: usize = 5;

/// Runs the command.
pub(super) fn run(args: &ShadowArgs) -> Exit {
    let overrides = args.proxy.overrides();
    let settings = match open::settings(&overrides) {
        Ok(loaded) => loaded.settings,
        Err(exit) => return exit,
    };
    let document = match admin::get(&settings.admin, "/api/v1/shadow") {
        Ok(document) => document,
        Err(why) => return say_and_fail(&why),
    };
    let text = match args.format {
        Format::Json => format!("{document:#}\n"),
        Format::Text => report(&document, Paint::for_stdout()),
    };
    out::write(&text, Exit::Success)
}

fn report(document: &Json, paint: Paint) -> String {
    let rules = part(document, "rules")
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    let shadow = Some(part(document, "shadow_policy")).filter(|shadow| !shadow.is_null());
    let live = format!(
        "policy {}@{}",
        word(document, "policy"),
        word(document, "revision")
    );
    if rules.is_empty() && shadow.is_none() {
        return format!(
            "{live}: nothing stands in shadow (`mode: shadow` of a rule, `policy.shadow`)\n"
        );
    }
    let mut text = format!("{}\n", paint.paint(Tone::Strong, live));
    let mut rows = vec![Row::titles()];
    rows.extend(rules.iter().map(|rule| Row::of(word(rule, "rule"), rule)));
    if let Some(shadow) = shadow {
        let name = format!(
            "policy {}@{}",
            word(shadow, "policy"),
            word(shadow, "revision")
        );
        rows.push(Row::of(name, shadow));
    }
    let widths: Vec<usize> = (0..COLUMNS)
        .map(|at| rows.iter().map(|row| row.width(at)).max().unwrap_or(0))
        .collect();
    for row in &rows {
        text.push_str(&row.line(&widths));
    }
    for (of, entry) in rules
        .iter()
        .map(|rule| (word(rule, "rule"), rule))
        .chain(shadow.map(|shadow| (word(shadow, "policy"), shadow)))
    {
        examples(&mut text, &of, entry, paint);
    }
    text
}

const COLUMNS: usize = 5;

/// One line of the table.
struct Row([String; COLUMNS]);

impl Row {
    fn titles() -> Self {
        Self(["in shadow", "judged", "would refuse", "would admit", "why"].map(str::to_owned))
    }

    fn of(name: String, entry: &Json) -> Self {
        let (refuse, admit) = (part(entry, "would_refuse"), part(entry, "would_admit"));
        let why = [("refuse", refuse), ("admit", admit)]
            .into_iter()
            .filter_map(|(what, tally)| {
                let counts =
                    [counts(part(tally, "reasons")), counts(part(tally, "rules"))].concat();
                (!counts.is_empty()).then(|| format!("{what}: {}", counts.join(", ")))
            });
        let why = why.collect::<Vec<_>>().join("; ");
        Self([
            name,
            number(part(entry, "judged")),
            number(part(refuse, "total")),
            number(part(admit, "total")),
            why,
        ])
    }

    fn width(&self, at: usize) -> usize {
        self.0.get(at).map_or(0, |cell| cell.chars().count())
    }

    /// Names to the left, numbers to the right; nothing is padded behind the last one.
    fn line(&self, widths: &[usize]) -> String {
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
fn counts(map: &Json) -> Vec<String> {
    let entries = map.as_object().into_iter().flatten();
    entries
        .map(|(name, count)| format!("{name} {}", number(count)))
        .collect()
}

fn examples(text: &mut String, of: &str, entry: &Json, paint: Paint) {
    for (what, key, tone) in [
        ("would refuse", "would_refuse", Tone::Bad),
        ("would admit", "would_admit", Tone::Good),
    ] {
        let examples = part(part(entry, key), "examples")
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        if examples.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{of} {}, at last:", paint.paint(tone, what));
        for example in examples.iter().take(SHOWN) {
            let subject = part(example, "url")
                .as_str()
                .or(part(example, "host").as_str())
                .unwrap_or("(not recorded)");
            let rule = part(example, "rule")
                .as_str()
                .map_or(String::new(), |rule| format!("  rule={rule}"));
            let _ = writeln!(
                text,
                "  {}  {subject}{}",
                word(example, "at"),
                paint.paint(Tone::Faint, rule)
            );
        }
    }
}

/// What is at a key; nothing at all counts as null.
fn part<'j>(entry: &'j Json, key: &str) -> &'j Json {
    entry.get(key).unwrap_or(&Json::Null)
}

fn word(entry: &Json, key: &str) -> String {
    part(entry, key).as_str().unwrap_or_default().to_owned()
}

fn number(value: &Json) -> String {
    value.as_u64().unwrap_or_default().to_string()
}
