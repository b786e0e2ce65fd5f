//! `--summary`: the number of decisions by rule, host, crawler or reason.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::io;

use indexmap::IndexMap;
use serde_json::{Value as Json, json};

use super::reader::DecisionConsumer;
use crate::cli::args::SummaryBy;
use crate::cli::text::{sanitize_text, truncate};
use crate::console::{ConsoleColors, Tone};
use crate::metrics::log::entry::{LogEntry, LogField};

/// The maximum number of names that are counted separately.
const MAX_NAMES: usize = 100_000;
/// The length to which names are cut.
const MAX_NAME_BYTES: usize = 512;
/// The name under which all further names are counted.
const OTHER: &str = "__other__";
/// The maximum width of a name in text.
const NAME_WIDTH: usize = 60;

/// The counts of decisions by name.
#[derive(Debug)]
pub(super) struct DecisionSummary {
    by: SummaryBy,
    tallies: IndexMap<Box<str>, DecisionTally>,
    others: DecisionTally,
    all: DecisionTally,
    first: String,
}

/// The counts of one name.
#[derive(Clone, Debug, Default)]
struct DecisionTally {
    decisions: u64,
    refused: u64,
    shadow: u64,
    last: String,
}

impl DecisionTally {
    fn count(&mut self, verdict: &str, ts: &str) {
        self.decisions += 1;
        self.refused += u64::from(verdict == "reject");
        self.shadow += u64::from(verdict == "shadow_reject");
        if *self.last < *ts {
            self.last.clear();
            self.last.push_str(ts);
        }
    }

    fn allowed(&self) -> u64 {
        self.decisions - self.refused
    }
}

impl DecisionSummary {
    pub(super) fn new(by: SummaryBy) -> Self {
        Self {
            by,
            tallies: IndexMap::new(),
            others: DecisionTally::default(),
            all: DecisionTally::default(),
            first: String::new(),
        }
    }

    fn field(&self) -> LogField {
        match self.by {
            SummaryBy::Rule => LogField::Rule,
            SummaryBy::Host => LogField::Host,
            SummaryBy::Crawler => LogField::Crawler,
            SummaryBy::Reason => LogField::Reason,
        }
    }

    fn label(&self) -> &'static str {
        match self.by {
            SummaryBy::Rule => "rule",
            SummaryBy::Host => "host",
            SummaryBy::Crawler => "crawler",
            SummaryBy::Reason => "reason",
        }
    }

    fn tally_mut(&mut self, name: &str) -> &mut DecisionTally {
        let index = match self.tallies.get_index_of(name) {
            Some(index) => index,
            None if self.tallies.len() >= MAX_NAMES => return &mut self.others,
            None => {
                self.tallies
                    .insert_full(name.into(), DecisionTally::default())
                    .0
            }
        };
        match self.tallies.get_index_mut(index) {
            Some((_, tally)) => tally,
            None => &mut self.others,
        }
    }

    /// Returns the names with the most decisions, and the number of names that are left out.
    fn rows(&self, limit: usize) -> (Vec<(&str, &DecisionTally)>, usize) {
        let named = self.tallies.iter().map(|(name, tally)| (&**name, tally));
        let mut rows: Vec<(&str, &DecisionTally)> = named.collect();
        if self.others.decisions > 0 {
            rows.push((OTHER, &self.others));
        }
        rows.sort_by_key(|(name, tally)| (Reverse(tally.decisions), *name));
        let left_out = rows.len().saturating_sub(limit);
        rows.truncate(limit);
        (rows, left_out)
    }

    fn share(&self, tally: &DecisionTally) -> f64 {
        tally.decisions as f64 / self.all.decisions.max(1) as f64
    }

    /// Formats the summary as text.
    pub(super) fn to_text(&self, limit: usize, colors: ConsoleColors) -> String {
        let (rows, left_out) = self.rows(limit);
        let width = rows
            .iter()
            .map(|(name, _)| name_cell(name).chars().count())
            .max()
            .unwrap_or(0)
            .max(self.label().len());
        let title = format!(
            "{:<width$}  {:>9}  {:>9}  {:>9}  {:>9}  {:>6}  last",
            self.label(),
            "decisions",
            "allowed",
            "refused",
            "in shadow",
            "share"
        );
        let mut text = format!("{}\n", colors.paint(Tone::Strong, title));
        for (name, tally) in rows {
            let DecisionTally {
                decisions,
                refused,
                shadow,
                last,
            } = tally;
            let allowed = tally.allowed();
            let share = format!("{:.1}%", self.share(tally) * 100.0);
            let _ = writeln!(
                text,
                "{:<width$}  {decisions:>9}  {allowed:>9}  {refused:>9}  {shadow:>9}  {share:>6}  {}",
                name_cell(name),
                sanitize_text(last)
            );
        }
        if left_out > 0 {
            let _ = writeln!(text, "{left_out} more (--limit)");
        }
        let DecisionTally {
            decisions,
            refused,
            last,
            ..
        } = &self.all;
        let _ = match decisions {
            0 => writeln!(text, "no decisions"),
            _ => writeln!(
                text,
                "{decisions} decisions, {refused} refused, from {} to {}",
                sanitize_text(&self.first),
                sanitize_text(last)
            ),
        };
        text
    }

    /// Formats the summary as JSON.
    pub(super) fn to_json(&self, limit: usize) -> Json {
        let (rows, left_out) = self.rows(limit);
        let rows: Vec<Json> = rows
            .into_iter()
            .map(|(name, tally)| {
                json!({
                    "name": Some(name).filter(|name| !name.is_empty()),
                    "decisions": tally.decisions,
                    "allowed": tally.allowed(),
                    "refused": tally.refused,
                    "shadow": tally.shadow,
                    "share": self.share(tally),
                    "last": tally.last,
                })
            })
            .collect();
        json!({
            "by": self.label(),
            "decisions": self.all.decisions,
            "refused": self.all.refused,
            "shadow": self.all.shadow,
            "first": self.first,
            "last": self.all.last,
            "rows": rows,
            "left_out": left_out,
        })
    }
}

impl DecisionConsumer for DecisionSummary {
    fn fields(&self) -> Vec<LogField> {
        vec![self.field()]
    }

    fn accept(&mut self, _: &[u8], entry: &LogEntry<'_>) -> io::Result<()> {
        let verdict = entry.text(LogField::Verdict);
        let ts = entry.text(LogField::Ts);
        let name = entry.text(self.field());
        let name = name
            .get(..name.floor_char_boundary(MAX_NAME_BYTES))
            .unwrap_or(&name);
        self.tally_mut(name).count(&verdict, &ts);
        self.all.count(&verdict, &ts);
        if self.first.is_empty() || *ts < *self.first {
            self.first.clear();
            self.first.push_str(&ts);
        }
        Ok(())
    }
}

/// Formats a name for text; an empty name is `-`.
fn name_cell(name: &str) -> String {
    if name.is_empty() {
        "-".to_owned()
    } else {
        truncate(&sanitize_text(name), NAME_WIDTH)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::log::entry::LogFieldSet;

    #[test]
    fn names_beyond_the_limit_are_counted_together() {
        let mut summary = DecisionSummary::new(SummaryBy::Host);
        let wanted = LogFieldSet::from_fields(summary.fields());
        for n in 0..MAX_NAMES + 50 {
            let line = format!("{{\"ts\":\"t\",\"verdict\":\"reject\",\"host\":\"h{n}\"}}");
            summary
                .accept(b"", &LogEntry::parse(line.as_bytes(), wanted).unwrap())
                .unwrap();
        }
        let (rows, left_out) = summary.rows(1);
        assert_eq!(
            (rows.len(), rows[0].0, rows[0].1.refused, left_out),
            (1, OTHER, 50, MAX_NAMES)
        );
        let long = format!(
            "{{\"ts\":\"{}\",\"verdict\":\"x\",\"host\":\"{}\"}}",
            "t".repeat(9),
            "h".repeat(9_999)
        );
        let mut summary = DecisionSummary::new(SummaryBy::Host);
        summary
            .accept(b"", &LogEntry::parse(long.as_bytes(), wanted).unwrap())
            .unwrap();
        assert_eq!(summary.rows(1).0[0].0.len(), MAX_NAME_BYTES);
        // A name is cut between characters.
        let wide = format!(
            "{{\"ts\":\"t\",\"verdict\":\"x\",\"host\":\"h{}\"}}",
            "ü".repeat(MAX_NAME_BYTES)
        );
        let mut summary = DecisionSummary::new(SummaryBy::Host);
        summary
            .accept(b"", &LogEntry::parse(wide.as_bytes(), wanted).unwrap())
            .unwrap();
        assert_eq!(summary.rows(1).0[0].0.len(), MAX_NAME_BYTES - 1);
        assert!(
            summary
                .to_text(1, ConsoleColors::Plain)
                .lines()
                .all(|line| line.chars().count() < 160)
        );
    }
}
