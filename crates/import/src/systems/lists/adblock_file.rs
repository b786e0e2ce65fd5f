//! Files of adblock filters, with those that they include.

use std::collections::{BTreeMap, HashSet};

use crate::input::{ImportError, ImportInput, MAX_RULE_FILE, Place, SourceText};
use crate::report::{MissingPart, Report};

use super::adblock::{AdblockFilter, FilterLine, read_line};

/// The maximum number of files that include each other.
const MAX_DEPTH: usize = 10;
/// The maximum number of files that a list includes.
const MAX_FILES: usize = 1_000;

/// Lines of a kind that are counted and not listed.
struct CountedLines {
    place: Place,
    lines: u32,
}

/// The reader of a list and of the files that it includes.
pub(super) struct AdblockReader<'a> {
    pub report: &'a mut Report,
    pub input: &'a ImportInput<'a>,
    counted: BTreeMap<&'static str, CountedLines>,
    /// The filters, each with its line.
    filters: Vec<(AdblockFilter, String)>,
    /// The lines that `$badfilter` cancels.
    cancelled: HashSet<String>,
    /// The files that are being read.
    open: Vec<String>,
    files: usize,
    /// The number of `!#if` without their `!#endif`.
    conditions: usize,
    /// The file is included under a condition.
    in_condition: bool,
}

impl<'a> AdblockReader<'a> {
    pub(super) fn new(report: &'a mut Report, input: &'a ImportInput<'a>) -> Self {
        Self {
            report,
            input,
            counted: BTreeMap::new(),
            filters: Vec::new(),
            cancelled: HashSet::new(),
            open: Vec::new(),
            files: 0,
            conditions: 0,
            in_condition: false,
        }
    }

    /// Reads a list.
    pub(super) fn read(mut self, source: &SourceText) -> Vec<AdblockFilter> {
        self.lines(source);
        for (reason, counted) in self.counted {
            let text = format!("{} lines: {reason}", counted.lines);
            let part = self.report.add_lines(counted.place, text, counted.lines);
            self.report.unrelated(
                part,
                format!("not about which URLs are requested: {reason}"),
            );
        }
        let mut kept = Vec::new();
        for (filter, text) in self.filters {
            if self.cancelled.contains(&text) {
                self.report
                    .dead(filter.part, "another filter cancels it ($badfilter)");
            } else {
                kept.push(filter);
            }
        }
        kept
    }

    fn lines(&mut self, source: &SourceText) {
        self.open.push(source.file.to_string());
        let outside = std::mem::take(&mut self.conditions);
        for (place, line) in source.lines() {
            self.line(place, line.trim());
        }
        self.conditions = outside;
        self.open.pop();
    }

    fn line(&mut self, place: Place, line: &str) {
        match read_line(line) {
            FilterLine::Comment => {}
            FilterLine::Directive(directive) => self.directive(place, directive),
            FilterLine::Cosmetic => self.count(
                "elements, scripts and styles of pages (cosmetic filters)",
                place,
            ),
            FilterLine::Unseen(reason) => self.count(reason, place),
            FilterLine::Unsupported {
                is_exception,
                reason,
            } => {
                let part = self.report.add(place, line);
                let failure = missing(is_exception);
                let instead = Some("a rule with `referer` or `dest`");
                self.report.not_converted(part, reason, failure, instead);
            }
            FilterLine::Network { options, .. } if options.is_bad => {
                let part = self.report.add(place, line);
                self.report.unrelated(part, "it cancels another filter");
                self.cancelled
                    .insert(line.replace(",badfilter", "").replace("$badfilter", ""));
            }
            FilterLine::Network {
                pattern,
                is_exception,
                options,
            } => {
                let filter = AdblockFilter {
                    part: self.report.add(place, line),
                    pattern: pattern.to_owned(),
                    is_exception,
                    is_important: options.is_important,
                    embeds_only: options.embeds_only,
                    pages_only: options.pages_only,
                    match_case: options.match_case,
                    is_conditional: self.conditions > 0 || self.in_condition,
                };
                self.filters.push((filter, line.to_owned()));
            }
        }
    }

    fn count(&mut self, reason: &'static str, place: Place) {
        let entry = self
            .counted
            .entry(reason)
            .or_insert(CountedLines { place, lines: 0 });
        entry.lines += 1;
    }

    /// Reads a line that begins with `!#`.
    fn directive(&mut self, place: Place, line: &str) {
        let part = self.report.add(place, line);
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let why = match name {
            "!#include" => match self.include(rest.trim()) {
                Ok(()) => "names a file that is imported",
                Err(why) => {
                    let failure = MissingPart::LetsThrough;
                    let instead = Some("put the file beside this one, or name it in the command");
                    return self.report.not_converted(part, why, failure, instead);
                }
            },
            "!#if" => {
                self.conditions += 1;
                "the filters up to its !#endif are imported, assuming that it holds"
            }
            "!#else" => "the filters of both sides are imported",
            "!#endif" => {
                self.conditions = self.conditions.saturating_sub(1);
                "ends a condition"
            }
            _ => "for blockers of one kind, or about the list itself",
        };
        self.report.unrelated(part, why);
    }

    /// Reads a file beside the one that is being read.
    fn include(&mut self, name: &str) -> Result<(), &'static str> {
        let directory = self.open.last().and_then(|path| path.rsplit_once('/'));
        let path = match directory {
            Some((directory, _)) => format!("{directory}/{name}"),
            None => name.to_owned(),
        };
        if self.open.contains(&path) {
            return Err("the file includes itself");
        }
        if self.open.len() >= MAX_DEPTH || self.files >= MAX_FILES {
            return Err("too many files are included");
        }
        self.files += 1;
        let text = self.input.read_text(&path, MAX_RULE_FILE);
        let text = text.map_err(|error| match error {
            ImportError::File { .. } => "the file is not beside the list",
            ImportError::Outside { .. } => "the file is not in the directory of the list",
            ImportError::Invalid { .. } | ImportError::Defect(_) => "the file cannot be read",
        })?;
        let outside = self.in_condition;
        self.in_condition |= self.conditions > 0;
        self.lines(&text);
        self.in_condition = outside;
        Ok(())
    }
}

/// Returns the consequence of a filter that is missing.
pub(super) fn missing(is_exception: bool) -> MissingPart {
    if is_exception {
        MissingPart::KeepsOut
    } else {
        MissingPart::LetsThrough
    }
}
