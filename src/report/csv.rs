//! JSON documents as lines of CSV (RFC 4180).
//!
//! Spreadsheets interpret a cell that begins with `=`, `+`, `-`, `@`, a tab or a line break as a formula, and
//! values sent by origins and clients (an `ETag`, a source) may begin like that. Such values are prefixed with
//! an apostrophe, which spreadsheets treat as the mark of text. The JSON output has the exact values.

use serde_json::Value as Json;

pub fn header_line(columns: &[&str]) -> String {
    [&columns.join(","), "\r\n"].concat()
}

/// Returns the line of a document: its values for these columns; null is an empty cell.
pub fn record_line(document: &Json, columns: &[&str]) -> String {
    let cells = columns
        .iter()
        .map(|column| cell(document.get(column).unwrap_or(&Json::Null)));
    [&cells.collect::<Vec<_>>().join(","), "\r\n"].concat()
}

fn cell(value: &Json) -> String {
    match value {
        Json::Null => String::new(),
        Json::String(text) => quote(&neutralize_formula(text)),
        Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_) => {
            quote(&value.to_string())
        }
    }
}

fn neutralize_formula(text: &str) -> String {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
    if formula {
        ["'", text].concat()
    } else {
        text.to_owned()
    }
}

fn quote(text: &str) -> String {
    if text.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_are_quoted_where_they_must_be_and_are_no_formulas() {
        for (value, cell) in [
            (json!(null), ""),
            (json!("plain"), "plain"),
            (json!(7), "7"),
            (json!(-7), "-7"),
            (json!(true), "true"),
            (json!("a,b"), "\"a,b\""),
            (json!("\"v1\""), "\"\"\"v1\"\"\""),
            (json!("a\nb"), "\"a\nb\""),
            (json!("=1+1"), "'=1+1"),
            (json!("@x,y"), "\"'@x,y\""),
            (json!("\tx"), "'\tx"),
        ] {
            assert_eq!(
                record_line(&json!({ "a": value, "z": 1 }), &["a"]),
                format!("{cell}\r\n"),
                "{value}"
            );
        }
        assert_eq!(header_line(&["a", "b"]), "a,b\r\n");
        assert_eq!(record_line(&json!({}), &["a", "b"]), ",\r\n");
    }
}
