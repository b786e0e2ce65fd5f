//! Files of variables beside a configuration: `NAME.variables` and `NAME.properties`.

use crawlgate_policy::FileError;

use crate::input::{ImportError, ImportInput, MAX_DOCUMENT, Place, SourceText};
use crate::report::Report;

/// Reads the variables beside a configuration. Those of `.properties` come last and override the others.
pub(super) fn read_variables(
    input: &ImportInput<'_>,
    path: &str,
    report: &mut Report,
) -> Result<Vec<(String, String)>, ImportError> {
    let stem = match path.rsplit_once('.') {
        Some((stem, extension)) if !extension.contains('/') => stem,
        Some(_) | None => path,
    };
    let mut variables = Vec::new();
    for (extension, has_escapes) in [("variables", false), ("properties", true)] {
        let path = format!("{stem}.{extension}");
        let source = match input.read_text(&path, MAX_DOCUMENT) {
            Ok(source) => source,
            Err(ImportError::File {
                error: FileError::NotFound,
                ..
            }) => continue,
            Err(error) => return Err(error),
        };
        read_lines(&source, has_escapes, report, &mut variables);
    }
    Ok(variables)
}

fn read_lines(
    source: &SourceText,
    has_escapes: bool,
    report: &mut Report,
    variables: &mut Vec<(String, String)>,
) {
    for (place, text) in logical_lines(source, has_escapes) {
        let separators: &[char] = if has_escapes { &['=', ':'] } else { &['='] };
        let Some((name, value)) = text.split_once(separators) else {
            let part = report.add(place, text.as_str());
            report.unrelated(part, "not a variable");
            continue;
        };
        let (name, value) = (name.trim(), value.trim());
        let part = report.add(place, format!("{name} = {}", shown_value(name, value)));
        let why = "a variable; its value is in the elements that use it";
        report.unrelated(part, why);
        let value = if has_escapes {
            unescape(value)
        } else {
            value.to_owned()
        };
        variables.push((name.to_owned(), value));
    }
}

/// Returns the lines without comments. In properties a line that ends in a backslash goes on.
fn logical_lines(source: &SourceText, has_escapes: bool) -> Vec<(Place, String)> {
    let mut lines: Vec<(Place, String)> = Vec::new();
    let mut goes_on = false;
    for (place, line) in source.lines() {
        let text = line.trim();
        let continues = has_escapes && text.ends_with('\\') && !text.ends_with("\\\\");
        let content = if continues {
            text.trim_end_matches('\\')
        } else {
            text
        };
        if goes_on {
            if let Some((_, last)) = lines.last_mut() {
                last.push_str(content);
            }
        } else if !text.is_empty() && !text.starts_with(['#', '!']) {
            lines.push((place, content.to_owned()));
        } else {
            continue;
        }
        goes_on = continues;
    }
    lines
}

/// Removes the escapes of Java's properties.
fn unescape(value: &str) -> String {
    let mut result = String::new();
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            result.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => result.push('\n'),
            Some('t') => result.push('\t'),
            Some('r') => result.push('\r'),
            Some('u') => {
                let code: String = chars.by_ref().take(4).collect();
                let decoded = u32::from_str_radix(&code, 16).ok().and_then(char::from_u32);
                result.extend(decoded);
            }
            Some(other) => result.push(other),
            None => {}
        }
    }
    result
}

/// Returns the value of a setting as the report shows it: secrets are replaced.
pub(super) fn shown_value<'v>(name: &str, value: &'v str) -> &'v str {
    if is_secret(name) { "***" } else { value }
}

const SECRETS: [&str; 13] = [
    "password",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "privatekey",
    "credential",
    "authorization",
    "cookie",
    "formparam",
];

/// Returns `true` for names of settings whose values are not shown.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRETS.iter().any(|secret| name.contains(secret))
}
