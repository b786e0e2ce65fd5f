//! The table of metrics in docs/metrics.md.
//!
//! `UPDATE_EXPECT=1 cargo test --test it documentation` rewrites it.

use std::fs;

use crawlgate::metrics::families::{ALL, MetricFamily, MetricKind};

const PATH: &str = "docs/metrics.md";
const BEGIN: &str = "<!-- metrics -->\n";
const END: &str = "<!-- /metrics -->";

#[test]
fn the_table_of_metrics_is_the_programs() {
    let text = fs::read_to_string(PATH).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (table, after) = rest.split_once(END).unwrap();
    let rows: String = ALL.iter().map(row).collect();
    let expected = format!("| metric | type | labels | meaning |\n|---|---|---|---|\n{rows}");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(PATH, format!("{before}{BEGIN}{expected}{END}{after}")).unwrap();
        return;
    }
    assert_eq!(table, expected, "{PATH}; UPDATE_EXPECT=1 rewrites it");
}

fn row(family: &MetricFamily) -> String {
    let kind = match family.kind {
        MetricKind::Counter => "counter",
        MetricKind::Gauge => "gauge",
        MetricKind::Histogram(_) => "histogram",
    };
    let always = if family.essential { ", always" } else { "" };
    let labels: Vec<String> = family
        .labels
        .iter()
        .map(|name| format!("`{name}`"))
        .collect();
    let help = family.help.replace('|', "\\|");
    format!(
        "| `{}` | {kind}{always} | {} | {help} |\n",
        family.name,
        labels.join(", ")
    )
}
