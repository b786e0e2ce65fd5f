//! The reasons, endings and labels that dashboards and alerts name, against the tables that they are taken from.

use std::collections::BTreeSet;

use crawlgate::metrics::families::ALL;
use crawlgate::model::reason::{Reason, RetryHint};
use crawlgate::robots::fetch_outcome::{FetchEffect, RobotsFetchOutcome};

/// The text between two others; the first must occur once.
fn between<'t>(text: &'t str, before: &str, after: &str) -> &'t str {
    let (_, rest) = text.split_once(before).expect(before);
    assert!(!rest.contains(before), "{before} is there twice");
    rest.split_once(after).expect(after).0
}

/// The names that a Prometheus pattern of names and `prefix.*` takes; each part of it must take one.
fn taken<'n>(pattern: &str, names: &[&'n str]) -> BTreeSet<&'n str> {
    let mut taken = BTreeSet::new();
    for part in pattern.split('|') {
        let found: Vec<&str> = names
            .iter()
            .filter(|name: &&&str| match part.strip_suffix(".*") {
                Some(prefix) => name.starts_with(prefix),
                None => **name == part,
            })
            .copied()
            .collect();
        assert!(!found.is_empty(), "`{part}` is the name of nothing");
        taken.extend(found);
    }
    taken
}

#[test]
fn reasons_that_say_when_to_come_back_are_no_repeats_on_the_dashboard() {
    let board = include_str!("../../dashboards/boards/policy.py");
    let names = Reason::ALL.map(Reason::as_str);
    let later = Reason::ALL
        .into_iter()
        .filter(|reason| reason.row().retry == RetryHint::After);
    assert_eq!(
        taken(between(board, "LATER = \"", "\""), &names),
        later.map(Reason::as_str).collect()
    );
}

#[test]
fn endings_that_leave_robots_txt_unknown_are_those_of_the_dashboard_and_of_the_alert() {
    let board = include_str!("../../dashboards/boards/politeness.py");
    let rules = include_str!("../../dashboards/prometheus/crawlgate.rules.yml");
    let names = RobotsFetchOutcome::ALL.map(RobotsFetchOutcome::as_str);
    let unknown: BTreeSet<&str> = RobotsFetchOutcome::ALL
        .into_iter()
        .filter(|outcome| outcome.effect() == FetchEffect::Unreachable)
        .map(RobotsFetchOutcome::as_str)
        .collect();
    assert_eq!(
        taken(between(board, "UNREACHABLE = \"", "\""), &names),
        unknown
    );
    assert_eq!(
        taken(
            between(rules, "crawlgate_robots_fetches_total{result=~\"", "\""),
            &names
        ),
        unknown
    );
}

/// Each `{…}` after the name of a family, in this text, names labels of that family only.
#[test]
fn labels_that_dashboards_and_alerts_name_are_those_of_the_metrics() {
    let texts = [
        include_str!("../../dashboards/overview.json"),
        include_str!("../../dashboards/policy.json"),
        include_str!("../../dashboards/politeness.json"),
        include_str!("../../dashboards/ledger.json"),
        include_str!("../../dashboards/tls.json"),
        include_str!("../../dashboards/fleet.json"),
        include_str!("../../dashboards/prometheus/crawlgate.rules.yml"),
        include_str!("../../dashboards/prometheus/policy.test.yml"),
        include_str!("../../dashboards/prometheus/fleet.test.yml"),
    ];
    let mut seen = 0;
    for family in ALL {
        let named = format!("{}{{", family.name);
        let selectors = texts.iter().flat_map(|text| text.split(&named).skip(1));
        for selector in
            selectors.map(|rest| rest.split_once('}').expect("it ends").0.replace('\\', ""))
        {
            for matcher in selector.split("\",").flat_map(|part| part.split(',')) {
                let Some((label, _)) = matcher.split_once(['=', '!']) else {
                    continue;
                };
                let known = family
                    .labels
                    .iter()
                    .chain(&["job", "instance", "le"])
                    .any(|known| *known == label.trim());
                assert!(known, "{}: `{label}` in {{{selector}}}", family.name);
                seen += 1;
            }
        }
    }
    assert!(seen > 100, "{seen}");
}

/// Each alert leads to its own section of the runbooks, which has no others.
#[test]
fn each_alert_has_a_runbook() {
    let rules = include_str!("../../dashboards/prometheus/crawlgate.rules.yml");
    let page = include_str!("../../docs/runbooks.md");
    let url = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/runbooks.md#");
    let mut alerts: Vec<&str> = Vec::new();
    for alert in rules.split("- alert: ").skip(1) {
        let name = alert.lines().next().unwrap();
        let link = format!("runbook_url: {url}{}\n", name.to_lowercase());
        assert!(alert.contains(&link), "{name}: no {link}");
        alerts.push(name);
    }
    let sections: Vec<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("### "))
        .collect();
    assert!(alerts.len() > 20);
    assert_eq!(sections, alerts);
    for section in page.split("### ").skip(1) {
        assert!(section.lines().count() > 4, "{section}");
    }
}
