//! URLs of the ledger as they are written, one after the other: for people, or for programs.

use std::io::{self, Write};

use serde_json::Value as Json;

use crate::cli::sanitize::sanitize_text;
use crate::report::csv;
use crate::report::record::COLUMNS;

/// What is written of each URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LedgerRowFormat {
    Text,
    JsonArray,
    Ndjson,
    Csv,
}

/// Writes URLs.
#[derive(Debug)]
pub(super) struct LedgerRowWriter<W> {
    output: W,
    format: LedgerRowFormat,
    count: u64,
}

impl<W: Write> LedgerRowWriter<W> {
    /// A line each, in columns.
    pub(super) fn text(output: W) -> Self {
        Self {
            output,
            format: LedgerRowFormat::Text,
            count: 0,
        }
    }

    /// One array.
    pub(super) fn json_array(output: W) -> Self {
        Self {
            output,
            format: LedgerRowFormat::JsonArray,
            count: 0,
        }
    }

    /// An object a line.
    pub(super) fn ndjson(output: W) -> Self {
        Self {
            output,
            format: LedgerRowFormat::Ndjson,
            count: 0,
        }
    }

    /// A table.
    pub(super) fn csv(output: W) -> Self {
        Self {
            output,
            format: LedgerRowFormat::Csv,
            count: 0,
        }
    }

    /// How many were written.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Writes one.
    pub(super) fn write_row(&mut self, url: &Json) -> io::Result<()> {
        let first = self.count == 0;
        self.count += 1;
        match self.format {
            LedgerRowFormat::Text => self.output.write_all(row_text(url).as_bytes()),
            LedgerRowFormat::JsonArray => {
                write!(self.output, "{}{url}", if first { "[\n" } else { ",\n" })
            }
            LedgerRowFormat::Ndjson => writeln!(self.output, "{url}"),
            LedgerRowFormat::Csv => {
                self.write_header(if first {
                    RowPosition::First
                } else {
                    RowPosition::Later
                })?;
                self.output
                    .write_all(csv::record_line(url, &COLUMNS).as_bytes())
            }
        }
    }

    /// Writes what stands behind the last one.
    pub(super) fn finish(mut self) -> io::Result<()> {
        let none = self.count == 0;
        match (self.format, none) {
            (LedgerRowFormat::Text, true) => {
                self.output.write_all(b"no URL that is remembered fits\n")?
            }
            (LedgerRowFormat::JsonArray, true) => self.output.write_all(b"[]\n")?,
            (LedgerRowFormat::JsonArray, false) => self.output.write_all(b"\n]\n")?,
            (LedgerRowFormat::Csv, true) => self.write_header(RowPosition::First)?,
            (LedgerRowFormat::Text | LedgerRowFormat::Ndjson | LedgerRowFormat::Csv, _) => {}
        }
        self.output.flush()
    }

    fn write_header(&mut self, at: RowPosition) -> io::Result<()> {
        match at {
            RowPosition::First => self.output.write_all(csv::header_line(&COLUMNS).as_bytes()),
            RowPosition::Later => Ok(()),
        }
    }
}

/// Whether anything was written before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowPosition {
    First,
    Later,
}

/// The longest words of a status and of a crawler's usual name; what is longer is not cut.
fn row_text(url: &Json) -> String {
    let word = |key| url.get(key).and_then(Json::as_str).unwrap_or("-");
    let number = |key| {
        url.get(key)
            .and_then(Json::as_u64)
            .map_or("-".to_owned(), |number| number.to_string())
    };
    format!(
        "{}  {:<12}  {:<26}  {:>3}  {:>3}  {}\n",
        word("last_seen"),
        sanitize_text(word("crawler")),
        word("status"),
        number("origin_status"),
        number("code"),
        sanitize_text(word("url"))
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(form: LedgerRowFormat, urls: &[Json]) -> String {
        let mut output = vec![];
        let mut rows = LedgerRowWriter {
            output: &mut output,
            format: form,
            count: 0,
        };
        urls.iter().try_for_each(|url| rows.write_row(url)).unwrap();
        rows.finish().unwrap();
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn each_form_is_whole_with_and_without_urls() {
        let two = [json!({ "url": "http://a/" }), json!({ "url": "http://b/" })];
        let names = csv::header_line(&COLUMNS);
        assert_eq!(written(LedgerRowFormat::JsonArray, &[]), "[]\n");
        assert_eq!(
            written(LedgerRowFormat::JsonArray, &two),
            "[\n{\"url\":\"http://a/\"},\n{\"url\":\"http://b/\"}\n]\n"
        );
        assert_eq!(written(LedgerRowFormat::Ndjson, &[]), "");
        assert_eq!(
            written(LedgerRowFormat::Ndjson, &two),
            "{\"url\":\"http://a/\"}\n{\"url\":\"http://b/\"}\n"
        );
        assert_eq!(written(LedgerRowFormat::Csv, &[]), names);
        assert_eq!(
            written(LedgerRowFormat::Csv, &two)
                .matches("key,crawler,url")
                .count(),
            1
        );
        assert_eq!(written(LedgerRowFormat::Csv, &two).lines().count(), 3);
        assert!(written(LedgerRowFormat::Text, &[]).contains("no URL"));
    }

    #[test]
    fn a_terminal_is_not_written_to_by_a_url() {
        assert!(!row_text(&json!({ "url": "http://a/\u{1b}[31m" })).contains('\u{1b}'));
    }
}
