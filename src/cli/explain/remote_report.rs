//! The explanation of a running proxy whose policy is not that of the configuration here: the rules as the proxy reports
//! them, without the layout that the policy itself allows.

use serde_json::Value as Json;

use crate::cli::admin_client::{get_array, get_or_null, get_str, get_u64};
use crate::cli::text::{ReportText, replace_controls, truncate, wrap};
use crate::console::{ConsoleColors, Tone};

use super::wire_report;

/// The widest column of rule names.
const MAX_NAME_COLUMNS: usize = 32;

pub(super) fn render(document: &Json, colors: ConsoleColors, width: usize) -> String {
    let mut report = ReportText::new(colors, width);
    let decision = get_or_null(document, "decision");
    let wire = get_or_null(document, "wire");
    let url = replace_controls(get_str(document, "url"));
    report.push_line(&colors.paint(Tone::Strong, url));
    let tone = match get_str(decision, "verdict") {
        "allow" => Tone::Good,
        "undecided" => Tone::Warning,
        _ => Tone::Bad,
    };
    for line in wrap(&replace_controls(&verdict_sentence(decision)), width) {
        report.push_line(&colors.paint(tone, line));
    }
    wire_report::write_summary(&mut report, wire);
    report.push_headline("Rules");
    for rule in get_array(document, "rules") {
        write_rule(&mut report, rule);
    }
    let left_out = get_u64(document, "rules_left_out");
    if left_out > 0 {
        let line = format!("  {left_out} other rules have no effect on this URL; --all shows them");
        report.push_line(&line);
    }
    wire_report::write(&mut report, Some(wire));
    report.into_string()
}

/// Returns the decision of the policy in one sentence.
fn verdict_sentence(decision: &Json) -> String {
    let verdict = match get_str(decision, "verdict") {
        "allow" => "allowed",
        "reject" => "rejected",
        other => other,
    };
    let cause = match get_or_null(decision, "rule").as_str() {
        Some(rule) => format!("by rule {rule}"),
        None => "by the policy's default".to_owned(),
    };
    let policy = get_str(decision, "policy");
    format!("{verdict} {cause} of {policy}, the policy of the running proxy")
}

fn write_rule(report: &mut ReportText, rule: &Json) {
    let depth = usize::try_from(get_u64(rule, "depth")).unwrap_or(0);
    let name = format!(
        "{:indent$}{}",
        "",
        get_str(rule, "rule"),
        indent = 2 * depth
    );
    let is_foreign = get_or_null(rule, "other_space").as_bool() == Some(true);
    let (status, note) = if is_foreign {
        let note = format!("{} is not this crawler's", get_str(rule, "space"));
        ("skipped: space", note)
    } else {
        let first = get_array(rule, "because").first();
        let note = first.map_or("", |test| get_str(test, "text"));
        (get_str(rule, "status"), note.to_owned())
    };
    let columns = name.chars().count().clamp(12, MAX_NAME_COLUMNS);
    let line = format!("  {name:columns$}  {status:16}  {note}");
    let line = truncate(&replace_controls(&line), report.width);
    report.push_line(line.trim_end());
}
