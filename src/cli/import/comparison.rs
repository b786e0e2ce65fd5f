//! `--check`: the policy and the source's own rules, URL by URL.

use std::fmt::Write as _;

use crawlgate_import::{Divergence, Import, SourceVerdict, System};

use crate::cli::Exit;
use crate::cli::console::{self, note};
use crate::cli::text::sanitize_text;

/// The number of differences that a message shows.
const SHOWN: usize = 5;

/// Compares the verdicts on URLs, one a line, and prints the differences. Exits with 1 if the report does not announce
/// one of them.
pub(super) fn compare(imported: &Import, system: System, urls: &str) -> Exit {
    let mut text = String::new();
    let (mut count, mut announced, mut unannounced, mut invalid) = (0_u64, 0_u64, 0_u64, 0_u64);
    for url in urls.lines().map(str::trim).filter(|url| !url.is_empty()) {
        count += 1;
        match imported.compare(url) {
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
                note(&error);
            }
        }
    }
    let _ = writeln!(
        text,
        "{count} URLs: {announced} differ as the report announces, {unannounced} differ otherwise, {invalid} cannot be evaluated"
    );
    let exit = if unannounced == 0 {
        Exit::Success
    } else {
        Exit::Negative
    };
    console::print(&text, exit)
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
    format!(
        "{}: {} {source} it, the policy {policy} it by {rule}{assumption}",
        sanitize_text(&divergence.url),
        system.name()
    )
}

/// Returns the message about differences that the report does not announce.
pub(super) fn defect_message(divergences: &[Divergence], system: System) -> String {
    let mut text = format!(
        "the policy differs from the source for {} of the URLs that were tried, which is a defect of the importer; please report it:",
        divergences.len()
    );
    for divergence in divergences.iter().take(SHOWN) {
        let _ = write!(text, "\n  {}", describe(divergence, system));
    }
    text
}
