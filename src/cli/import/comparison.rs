//! `--check`: the policy and the source's own rules, request by request.

use std::fmt::Write as _;

use crawlgate_import::{Divergence, Import, SourceVerdict, System};
use serde_json::{Map, Value as Json};

use crate::cli::Exit;
use crate::cli::console::{self, note};
use crate::cli::text::sanitize_text;

/// The number of differences that a message shows.
const SHOWN: usize = 5;

/// Compares the verdicts on requests, one a line, and prints the differences. Exits with 1 if the report does not
/// announce one of them.
pub(super) fn compare(imported: &Import, system: System, requests: &str) -> Exit {
    let mut text = String::new();
    let (mut count, mut announced, mut unannounced, mut invalid) = (0_u64, 0_u64, 0_u64, 0_u64);
    for (number, line) in (1_u64..).zip(requests.lines()) {
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        count += 1;
        let compared = read_request(line).and_then(|(url, facts)| {
            let compared = imported.compare(&url, &facts);
            compared.map_err(|error| error.to_string())
        });
        match compared {
            Ok(None) => {}
            Ok(Some(divergence)) => {
                match divergence.assumption {
                    Some(_) => announced += 1,
                    None => unannounced += 1,
                }
                let _ = writeln!(text, "{}", describe(&divergence, system));
            }
            Err(error) => {
                invalid += 1;
                note(&format!("line {number}: {}", sanitize_text(&error)));
            }
        }
    }
    let _ = writeln!(
        text,
        "{count} requests: {announced} differ as the report announces, {unannounced} differ otherwise, {invalid} cannot be evaluated"
    );
    let exit = if unannounced == 0 {
        Exit::Success
    } else {
        Exit::Negative
    };
    console::print(&text, exit)
}

/// Reads a line: a URL, or facts as `crawlgate decide` reads them.
fn read_request(line: &str) -> Result<(String, Map<String, Json>), String> {
    if !line.starts_with('{') {
        return Ok((line.to_owned(), Map::new()));
    }
    let mut facts: Map<String, Json> =
        serde_json::from_str(line).map_err(|error| format!("not a JSON object: {error}"))?;
    facts.retain(|_, value| !value.is_null());
    match facts.shift_remove("url") {
        Some(Json::String(url)) => Ok((url, facts)),
        Some(_) => Err("`url` must be a text".to_owned()),
        None => Err("the key `url` is missing".to_owned()),
    }
}

fn describe(divergence: &Divergence, system: System) -> String {
    let (source, policy) = match divergence.source {
        SourceVerdict::Allow => ("allows", "refuses"),
        SourceVerdict::Refuse => ("refuses", "allows"),
        SourceVerdict::Unknown => ("does not tell", "decides"),
    };
    let rule = divergence.rule.as_deref().unwrap_or("the default");
    let assumption = divergence.assumption.as_deref();
    let assumption = assumption.map_or_else(String::new, |text| format!("; assumed that {text}"));
    let facts = match divergence.facts.is_empty() {
        true => String::new(),
        false => format!(" {}", Json::Object(divergence.facts.clone())),
    };
    format!(
        "{}{}: {} {source} it, the policy {policy} it by {rule}{assumption}",
        sanitize_text(&divergence.url),
        sanitize_text(&facts),
        system.name()
    )
}

/// Returns the message about differences that the report does not announce.
pub(super) fn defect_message(divergences: &[Divergence], system: System) -> String {
    let mut text = format!(
        "the policy differs from the source for {} of the requests that were tried, which is a defect of the importer; please report it:",
        divergences.len()
    );
    for divergence in divergences.iter().take(SHOWN) {
        let _ = write!(text, "\n  {}", describe(divergence, system));
    }
    text
}
