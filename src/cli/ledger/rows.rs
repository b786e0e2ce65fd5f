//! URLs of the ledger as they are written, one after the other: for people, or for programs.

use std::io::{self, Write};

use serde_json::Value as Json;

use crate::cli::harmless::harmless;
use crate::report::csv;
use crate::report::record::COLUMNS;

/// What is written of each URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Array,
    Lines,
    Csv,
}

/// Writes URLs.
#[derive(Debug)]
pub(super) struct Rows<W> {
    output: W,
    form: Form,
    count: u64,
}

impl<W: Write> Rows<W> {
    /// A line each, in columns.
    pub(super) fn for_people(output: W) -> Self {
        Self {
            output,
            form: Form::Text,
            count: 0,
        }
    }

    /// One array.
    pub(super) fn array(output: W) -> Self {
        Self {
            output,
            form: Form::Array,
            count: 0,
        }
    }

    /// An object a line.
    pub(super) fn lines(output: W) -> Self {
        Self {
            output,
            form: Form::Lines,
            count: 0,
        }
    }

    /// A table.
    pub(super) fn csv(output: W) -> Self {
        Self {
            output,
            form: Form::Csv,
            count: 0,
        }
    }

    /// How many were written.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Writes one.
    pub(super) fn take(&mut self, url: &Json) -> io::Result<()> {
        let first = self.count == 0;
        self.count += 1;
        match self.form {
            Form::Text => self.output.write_all(line(url).as_bytes()),
            Form::Array => write!(self.output, "{}{url}", if first { "[\n" } else { ",\n" }),
            Form::Lines => writeln!(self.output, "{url}"),
            Form::Csv => {
                self.head(if first { At::Begin } else { At::Within })?;
                self.output.write_all(csv::line(url, &COLUMNS).as_bytes())
            }
        }
    }

    /// Writes what stands behind the last one.
    pub(super) fn end(mut self) -> io::Result<()> {
        let none = self.count == 0;
        match (self.form, none) {
            (Form::Text, true) => self.output.write_all(b"no URL that is remembered fits\n")?,
            (Form::Array, true) => self.output.write_all(b"[]\n")?,
            (Form::Array, false) => self.output.write_all(b"\n]\n")?,
            (Form::Csv, true) => self.head(At::Begin)?,
            (Form::Text | Form::Lines | Form::Csv, _) => {}
        }
        self.output.flush()
    }

    fn head(&mut self, at: At) -> io::Result<()> {
        match at {
            At::Begin => self.output.write_all(csv::head(&COLUMNS).as_bytes()),
            At::Within => Ok(()),
        }
    }
}

/// Whether anything was written before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Begin,
    Within,
}

/// The longest words of a status and of a crawler's usual name; what is longer is not cut.
fn line(url: &Json) -> String {
    let word = |key| url.get(key).and_then(Json::as_str).unwrap_or("-");
    let number = |key| {
        url.get(key)
            .and_then(Json::as_u64)
            .map_or("-".to_owned(), |number| number.to_string())
    };
    format!(
        "{}  {:<12}  {:<26}  {:>3}  {:>3}  {}\n",
        word("last_seen"),
        harmless(word("crawler")),
        word("status"),
        number("origin_status"),
        number("code"),
        harmless(word("url"))
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(form: Form, urls: &[Json]) -> String {
        let mut output = vec![];
        let mut rows = Rows {
            output: &mut output,
            form,
            count: 0,
        };
        urls.iter().try_for_each(|url| rows.take(url)).unwrap();
        rows.end().unwrap();
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn each_form_is_whole_with_and_without_urls() {
        let two = [json!({ "url": "http://a/" }), json!({ "url": "http://b/" })];
        let names = csv::head(&COLUMNS);
        assert_eq!(written(Form::Array, &[]), "[]\n");
        assert_eq!(
            written(Form::Array, &two),
            "[\n{\"url\":\"http://a/\"},\n{\"url\":\"http://b/\"}\n]\n"
        );
        assert_eq!(written(Form::Lines, &[]), "");
        assert_eq!(
            written(Form::Lines, &two),
            "{\"url\":\"http://a/\"}\n{\"url\":\"http://b/\"}\n"
        );
        assert_eq!(written(Form::Csv, &[]), names);
        assert_eq!(
            written(Form::Csv, &two).matches("key,crawler,url").count(),
            1
        );
        assert_eq!(written(Form::Csv, &two).lines().count(), 3);
        assert!(written(Form::Text, &[]).contains("no URL"));
    }

    #[test]
    fn a_terminal_is_not_written_to_by_a_url() {
        assert!(!line(&json!({ "url": "http://a/\u{1b}[31m" })).contains('\u{1b}'));
    }
}
