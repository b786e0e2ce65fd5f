//! Output of the URLs of the ledger, as text or in a format for programs.

use std::io::{self, Write};

use serde_json::Value as Json;

use crate::cli::admin_client::{get_or_null, get_u64};
use crate::cli::args::LedgerRowFormat;
use crate::cli::text::sanitize_text;
use crate::report::csv;
use crate::report::record::COLUMNS;

/// A writer of URLs.
#[derive(Debug)]
pub(super) struct LedgerRowWriter<W> {
    output: W,
    format: LedgerRowFormat,
    /// `true` if rows of text have titles, as on a terminal; programs get rows only.
    has_titles: bool,
    count: u64,
}

impl<W: Write> LedgerRowWriter<W> {
    pub(super) fn new(output: W, format: LedgerRowFormat) -> Self {
        Self {
            output,
            format,
            has_titles: false,
            count: 0,
        }
    }

    /// Sets if rows of text have titles.
    pub(super) fn with_titles(self, has_titles: bool) -> Self {
        Self { has_titles, ..self }
    }

    /// Returns the number of URLs that have been written.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn write_row(&mut self, url: &Json) -> io::Result<()> {
        let first = self.count == 0;
        self.count += 1;
        match self.format {
            LedgerRowFormat::Text => {
                if first && self.has_titles {
                    self.output.write_all(TITLES.as_bytes())?;
                }
                self.output.write_all(row_text(url).as_bytes())
            }
            LedgerRowFormat::Json => {
                write!(self.output, "{}{url}", if first { "[\n" } else { ",\n" })
            }
            LedgerRowFormat::Ndjson => writeln!(self.output, "{url}"),
            LedgerRowFormat::Csv => {
                if first {
                    self.write_csv_header()?;
                }
                self.output
                    .write_all(csv::record_line(url, &COLUMNS).as_bytes())
            }
        }
    }

    /// Writes the end of the output, and flushes it.
    pub(super) fn finish(mut self) -> io::Result<()> {
        let empty = self.count == 0;
        match (self.format, empty) {
            (LedgerRowFormat::Text, true) => {
                self.output.write_all(b"no URL of the ledger matches\n")?
            }
            (LedgerRowFormat::Json, true) => self.output.write_all(b"[]\n")?,
            (LedgerRowFormat::Json, false) => self.output.write_all(b"\n]\n")?,
            (LedgerRowFormat::Csv, true) => self.write_csv_header()?,
            (LedgerRowFormat::Text | LedgerRowFormat::Ndjson | LedgerRowFormat::Csv, _) => {}
        }
        self.output.flush()
    }

    fn write_csv_header(&mut self) -> io::Result<()> {
        self.output.write_all(csv::header_line(&COLUMNS).as_bytes())
    }
}

/// The titles of the columns of [`row_text`].
const TITLES: &str = "last seen (UTC)           crawler       status                      http code error        url\n";

/// Formats a URL as a line of text. The columns have the widths of the longest status and of a usual crawler name;
/// longer values are not cut.
fn row_text(url: &Json) -> String {
    let pending = match text_cell(url, "pending_removal") {
        "-" => String::new(),
        cause => format!("  (leaves the index: {})", sanitize_text(cause)),
    };
    format!(
        "{}  {:<12}  {:<26}  {:>3}  {:>3}  {:<11}  {}{pending}\n",
        text_cell(url, "last_seen"),
        sanitize_text(text_cell(url, "crawler")),
        text_cell(url, "status"),
        number_cell(url, "origin_status"),
        number_cell(url, "code"),
        error_cell(url),
        sanitize_text(text_cell(url, "url"))
    )
}

/// Returns the text of a key, or `-` if it has none.
pub(super) fn text_cell<'j>(row: &'j Json, key: &str) -> &'j str {
    get_or_null(row, key).as_str().unwrap_or("-")
}

/// Formats the kind of the last error, and how many temporary ones there were in a row.
fn error_cell(row: &Json) -> String {
    match (text_cell(row, "error"), get_u64(row, "temporary_errors")) {
        ("temporary", count @ 2..) => format!("temporary {count}"),
        (kind, _) => kind.to_owned(),
    }
}

/// Returns the number of a key, or `-` if it has none.
pub(super) fn number_cell(row: &Json, key: &str) -> String {
    get_or_null(row, key)
        .as_u64()
        .map_or("-".to_owned(), |number| number.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn write(format: LedgerRowFormat, urls: &[Json]) -> String {
        let mut output = vec![];
        let mut rows = LedgerRowWriter::new(&mut output, format);
        urls.iter().try_for_each(|url| rows.write_row(url)).unwrap();
        rows.finish().unwrap();
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn each_format_is_complete_with_and_without_urls() {
        let two = [json!({ "url": "http://a/" }), json!({ "url": "http://b/" })];
        let names = csv::header_line(&COLUMNS);
        assert_eq!(write(LedgerRowFormat::Json, &[]), "[]\n");
        assert_eq!(
            write(LedgerRowFormat::Json, &two),
            "[\n{\"url\":\"http://a/\"},\n{\"url\":\"http://b/\"}\n]\n"
        );
        assert_eq!(write(LedgerRowFormat::Ndjson, &[]), "");
        assert_eq!(
            write(LedgerRowFormat::Ndjson, &two),
            "{\"url\":\"http://a/\"}\n{\"url\":\"http://b/\"}\n"
        );
        assert_eq!(write(LedgerRowFormat::Csv, &[]), names);
        assert_eq!(
            write(LedgerRowFormat::Csv, &two)
                .matches("key,crawler,url")
                .count(),
            1
        );
        assert_eq!(write(LedgerRowFormat::Csv, &two).lines().count(), 3);
        assert!(write(LedgerRowFormat::Text, &[]).contains("no URL"));
    }

    #[test]
    fn the_kind_of_the_last_error_is_shown() {
        for (row, cell) in [
            (json!({ "error": null, "temporary_errors": 0 }), "-"),
            (
                json!({ "error": "permanent", "temporary_errors": 3 }),
                "permanent",
            ),
            (
                json!({ "error": "temporary", "temporary_errors": 1 }),
                "temporary",
            ),
            (
                json!({ "error": "temporary", "temporary_errors": 4 }),
                "temporary 4",
            ),
        ] {
            assert_eq!(error_cell(&row), cell);
        }
    }

    #[test]
    fn a_pending_removal_is_shown_after_the_url() {
        let row = json!({ "url": "http://a/", "pending_removal": "noindex:a" });
        assert!(row_text(&row).ends_with("  http://a/  (leaves the index: noindex:a)\n"));
        assert!(row_text(&json!({ "url": "http://a/" })).ends_with("  http://a/\n"));
    }

    #[test]
    fn titles_are_above_their_columns() {
        let row = json!({
            "last_seen": "2026-01-01T00:00:00.000Z", "crawler": "c", "status": "ACCEPTED", "origin_status": 200,
            "code": 760, "error": "permanent", "temporary_errors": 0, "url": "http://a/"
        });
        let mut output = vec![];
        let mut rows = LedgerRowWriter::new(&mut output, LedgerRowFormat::Text).with_titles(true);
        rows.write_row(&row).unwrap();
        rows.write_row(&row).unwrap();
        rows.finish().unwrap();
        let text = String::from_utf8(output).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        for (title, cell) in [
            ("last seen", "2026-"),
            ("crawler", "c "),
            ("status", "ACCEPTED"),
            ("code", "760"),
            ("error", "permanent"),
            ("url", "http"),
        ] {
            let at = lines[0].find(title).unwrap();
            assert!(
                lines[1].get(at..).unwrap().trim_start().starts_with(cell),
                "{title}: {text}"
            );
        }
    }

    #[test]
    fn a_terminal_is_not_written_to_by_a_url() {
        assert!(!row_text(&json!({ "url": "http://a/\u{1b}[31m" })).contains('\u{1b}'));
    }
}
