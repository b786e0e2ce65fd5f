//! `--summary`: how many decisions were made, by rule, host, crawler or reason.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::io;

use indexmap::IndexMap;
use serde_json::{Value as Json, json};

use super::reading::Sink;
use crate::cli::args::SummaryBy;
use crate::cli::harmless::harmless;
use crate::cli::paint::{Paint, Tone, fitted};
use crate::metrics::log::entry::{Entry, Field};

/// Names that are counted apart; more of them are counted together.
const NAMES: usize = 100_000;
/// Bytes of a name that tell it from others.
const NAME: usize = 512;
/// Where those are counted that find no room.
const OTHER: &str = "__other__";
/// Columns of a name.
const WIDTH: usize = 60;

/// Counts decisions.
#[derive(Debug)]
pub(super) struct Summary {
    by: SummaryBy,
    tallies: IndexMap<Box<str>, Tally>,
    others: Tally,
    all: Tally,
    first: String,
}

/// Counts of one name.
#[derive(Clone, Debug, Default)]
struct Tally {
    decisions: u64,
    refused: u64,
    shadow: u64,
    last: String,
}

impl Tally {
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

impl Summary {
    pub(super) fn new(by: SummaryBy) -> Self {
        let (others, all) = (Tally::default(), Tally::default());
        Self {
            by,
            tallies: IndexMap::new(),
            others,
            all,
            first: String::new(),
        }
    }

    fn field(&self) -> Field {
        match self.by {
            SummaryBy::Rule => Field::Rule,
            SummaryBy::Host => Field::Host,
            SummaryBy::Crawler => Field::Crawler,
            SummaryBy::Reason => Field::Reason,
        }
    }

    fn word(&self) -> &'static str {
        match self.by {
            SummaryBy::Rule => "rule",
            SummaryBy::Host => "host",
            SummaryBy::Crawler => "crawler",
            SummaryBy::Reason => "reason",
        }
    }

    fn tally(&mut self, name: &str) -> &mut Tally {
        let place = match self.tallies.get_index_of(name) {
            Some(place) => place,
            None if self.tallies.len() >= NAMES => return &mut self.others,
            None => self.tallies.insert_full(name.into(), Tally::default()).0,
        };
        match self.tallies.get_index_mut(place) {
            Some((_, tally)) => tally,
            None => &mut self.others,
        }
    }

    /// The names with the most decisions, what is left out summed up behind them.
    fn rows(&self, limit: usize) -> (Vec<(&str, &Tally)>, usize) {
        let named = self.tallies.iter().map(|(name, tally)| (&**name, tally));
        let mut rows: Vec<(&str, &Tally)> = named.collect();
        if self.others.decisions > 0 {
            rows.push((OTHER, &self.others));
        }
        rows.sort_by_key(|(name, tally)| (Reverse(tally.decisions), *name));
        let left_out = rows.len().saturating_sub(limit);
        rows.truncate(limit);
        (rows, left_out)
    }

    fn share(&self, tally: &Tally) -> f64 {
        tally.decisions as f64 / self.all.decisions.max(1) as f64
    }

    /// For people.
    pub(super) fn text(&self, limit: usize, paint: Paint) -> String {
        let (rows, left_out) = self.rows(limit);
        let shown = |name: &str| {
            fitted(
                &if name.is_empty() {
                    "-".into()
                } else {
                    harmless(name)
                },
                WIDTH,
            )
        };
        let width = rows
            .iter()
            .map(|(name, _)| shown(name).chars().count())
            .max()
            .unwrap_or(0);
        let width = width.max(self.word().len());
        let title = format!(
            "{:<width$}  {:>9}  {:>9}  {:>9}  {:>9}  {:>6}  last",
            self.word(),
            "decisions",
            "allowed",
            "refused",
            "in shadow",
            "share"
        );
        let mut text = format!("{}\n", paint.paint(Tone::Strong, title));
        for (name, tally) in rows {
            let Tally {
                decisions,
                refused,
                shadow,
                last,
            } = tally;
            let (name, allowed, last) = (shown(name), tally.allowed(), harmless(last));
            let share = format!("{:.1}%", self.share(tally) * 100.0);
            let counts =
                format!("{decisions:>9}  {allowed:>9}  {refused:>9}  {shadow:>9}  {share:>6}");
            let _ = writeln!(text, "{name:<width$}  {counts}  {last}");
        }
        if left_out > 0 {
            let _ = writeln!(text, "{left_out} more (--limit)");
        }
        let Tally {
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
                harmless(&self.first),
                harmless(last)
            ),
        };
        text
    }

    /// For programs.
    pub(super) fn json(&self, limit: usize) -> Json {
        let (rows, left_out) = self.rows(limit);
        let row = |name: Json, tally: &Tally| {
            json!({
                "name": name,
                "decisions": tally.decisions,
                "allowed": tally.allowed(),
                "refused": tally.refused,
                "shadow": tally.shadow,
                "share": self.share(tally),
                "last": tally.last,
            })
        };
        let rows = rows.into_iter();
        let rows: Vec<Json> = rows
            .map(|(name, tally)| {
                row(
                    if name.is_empty() {
                        Json::Null
                    } else {
                        name.into()
                    },
                    tally,
                )
            })
            .collect();
        json!({
            "by": self.word(),
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

impl Sink for Summary {
    fn fields(&self) -> Vec<Field> {
        vec![self.field()]
    }

    fn take(&mut self, _: &[u8], entry: &Entry<'_>) -> io::Result<()> {
        let (verdict, ts, name) = (
            entry.text(Field::Verdict),
            entry.text(Field::Ts),
            entry.text(self.field()),
        );
        let name = name.get(..name.floor_char_boundary(NAME)).unwrap_or(&name);
        self.tally(name).count(&verdict, &ts);
        self.all.count(&verdict, &ts);
        if self.first.is_empty() || *ts < *self.first {
            self.first.clear();
            self.first.push_str(&ts);
        }
        Ok(())
    }

    fn pause(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::log::entry::Wanted;

    #[test]
    fn names_beyond_the_bound_are_counted_together() {
        let mut summary = Summary::new(SummaryBy::Host);
        let wanted = Wanted::of(summary.fields());
        for n in 0..NAMES + 50 {
            let line = format!("{{\"ts\":\"t\",\"verdict\":\"reject\",\"host\":\"h{n}\"}}");
            summary
                .take(b"", &Entry::read(line.as_bytes(), wanted).unwrap())
                .unwrap();
        }
        let (rows, left_out) = summary.rows(1);
        assert_eq!(
            (rows.len(), rows[0].0, rows[0].1.refused, left_out),
            (1, OTHER, 50, NAMES)
        );
        let long = format!(
            "{{\"ts\":\"{}\",\"verdict\":\"x\",\"host\":\"{}\"}}",
            "t".repeat(9),
            "h".repeat(9_999)
        );
        let mut summary = Summary::new(SummaryBy::Host);
        summary
            .take(b"", &Entry::read(long.as_bytes(), wanted).unwrap())
            .unwrap();
        assert_eq!(summary.rows(1).0[0].0.len(), NAME);
        // Cut between characters.
        let wide = format!(
            "{{\"ts\":\"t\",\"verdict\":\"x\",\"host\":\"h{}\"}}",
            "ü".repeat(NAME)
        );
        let mut summary = Summary::new(SummaryBy::Host);
        summary
            .take(b"", &Entry::read(wide.as_bytes(), wanted).unwrap())
            .unwrap();
        assert_eq!(summary.rows(1).0[0].0.len(), NAME - 1);
        assert!(
            summary
                .text(1, Paint::Plain)
                .lines()
                .all(|line| line.chars().count() < 160)
        );
    }
}
