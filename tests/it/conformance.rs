//! Raw requests and raw responses: every row of `tests/conformance` against the real binary.
//!
//! A row is data; its format is in `tests/conformance/README.md`. `CONFORMANCE=WORD cargo test --test it conformance`
//! plays only the rows whose names contain the word.

mod check;
mod client;
mod format;
mod origin;
mod play;
mod text;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::fleet::bench::FleetBench;
use crate::support::proxy::TestProxy;
use format::WireRow;
use play::Named;

/// The number of rows that run at the same time: most of a row's time is waiting.
const PLAYERS: usize = 8;

/// The lowest number of rows, so that rows do not disappear unnoticed.
const LEAST_REQUESTS: usize = 130;
const LEAST_RESPONSES: usize = 45;

#[test]
fn the_tables_are_read_whole() {
    let requests = load("requests");
    let responses = load("responses");
    assert!(
        requests.len() >= LEAST_REQUESTS,
        "{} rows of requests",
        requests.len()
    );
    assert!(
        responses.len() >= LEAST_RESPONSES,
        "{} rows of responses",
        responses.len()
    );
    only_once(requests.iter().chain(&responses));
}

#[test]
fn every_row_holds() {
    let requests = load("requests");
    let responses = load("responses");
    let of_requests = requests.len();
    let of_responses = responses.len();
    let rows = chosen(requests.into_iter().chain(responses).collect());
    let mut gates = gates(&rows);
    let named = named(&gates);
    let failures: Vec<String> = play_all(&rows, &named).into_values().collect();
    for (name, gate) in &mut gates {
        let output = gate.stderr();
        assert!(gate.is_running(), "gate {name} said:\n{output}");
        assert!(!output.contains("panicked"), "gate {name} said:\n{output}");
        assert_eq!(gate.counter("crawlgate_panics_total"), 0, "gate {name}");
        let left = play::nothing_is_left(&named[name]);
        left.unwrap_or_else(|why| panic!("gate {name}: {why}"));
    }
    println!(
        "conformance: {} rows played of {of_requests} requests and {of_responses} responses, {} failed",
        rows.len(),
        failures.len()
    );
    assert_none_failed(&failures);
}

/// The client is at a node of a fleet that owns no host: each request that a policy decides is forwarded.
#[test]
fn every_row_holds_through_another_node() {
    let rows = chosen(
        load("requests")
            .into_iter()
            .chain(load("responses"))
            .collect(),
    );
    let mut fleets = BTreeMap::new();
    for (name, config) in configs(&rows) {
        let fleet = FleetBench::start_configured(2, &gate_text("policy.yaml"), &config);
        fleet.set_owner_of_all(0);
        fleets.insert(name, fleet);
    }
    let named = fleets.iter().map(|(name, fleet)| {
        let admin = fleet.nodes.iter().map(|node| node.admin);
        let named = Named::new(fleet.nodes[1].proxy, admin.collect());
        (name.clone(), named)
    });
    let named: BTreeMap<String, Named> = named.collect();
    let failures: Vec<String> = play_all(&rows, &named).into_values().collect();
    for (name, named) in &named {
        let left = play::nothing_is_left(named);
        left.unwrap_or_else(|why| panic!("gate {name}: {why}"));
    }
    for (name, fleet) in &fleets {
        for node in 0..fleet.nodes.len() {
            let panics = fleet.metric(node, "crawlgate_panics_total");
            assert_eq!(panics, 0, "gate {name}, node {node}");
        }
    }
    let answered = "crawlgate_fleet_forwarded_total{result=\"answered\"}";
    let forwarded: u64 = fleets.values().map(|fleet| fleet.metric(1, answered)).sum();
    println!(
        "conformance: {} rows played through another node, {forwarded} requests forwarded, {} failed",
        rows.len(),
        failures.len()
    );
    assert_none_failed(&failures);
    if std::env::var_os("CONFORMANCE").is_none() {
        assert!(forwarded as usize > rows.len() / 2, "{forwarded}");
    }
}

#[track_caller]
fn assert_none_failed(failures: &[String]) {
    assert!(
        failures.is_empty(),
        "{} rows failed:\n\n{}",
        failures.len(),
        failures.join("\n\n")
    );
}

/// Tests of the runner: each of these rows expects one wrong thing, which its comment names.
#[test]
fn a_wrong_expectation_is_reported() {
    let rows = read(&folder().join("wrong.txt"));
    let gates = gates(&rows);
    let gates = named(&gates);
    let text = std::fs::read_to_string(folder().join("wrong.txt")).expect("the file");
    let failures = play_all(&rows, &gates);
    for (index, row) in rows.iter().enumerate() {
        let failure = failures
            .get(&index)
            .unwrap_or_else(|| panic!("{} is not reported", row.name));
        let output = expected_report(&text, &row.name);
        assert!(failure.contains(&output), "{output}\nis not in\n{failure}");
        assert!(
            failure.contains(&row.name),
            "{output}\nis not in\n{failure}"
        );
    }
    println!("conformance: {} wrong expectations reported", rows.len());
}

/// The comment below the name, which is part of the expected report.
fn expected_report(text: &str, name: &str) -> String {
    let after = text
        .split(&format!("== {name}\n# "))
        .nth(1)
        .expect("the row");
    after.lines().next().expect("a line").to_owned()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}

/// The rows of all files of a folder, in the order of their names.
fn load(kind: &str) -> Vec<WireRow> {
    let entries = std::fs::read_dir(folder().join(kind)).expect("the folder");
    let mut files: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    files.sort();
    files.iter().flat_map(|file| read(file)).collect()
}

fn read(file: &Path) -> Vec<WireRow> {
    let text = std::fs::read_to_string(file).expect("a file");
    let name = file
        .strip_prefix(folder())
        .expect("inside the folder")
        .to_string_lossy();
    format::rows(&name, &text).unwrap_or_else(|problems| panic!("{}", problems.join("\n")))
}

fn chosen(rows: Vec<WireRow>) -> Vec<WireRow> {
    let Ok(word) = std::env::var("CONFORMANCE") else {
        return rows;
    };
    rows.into_iter()
        .filter(|row| row.name.contains(&word))
        .collect()
}

fn only_once<'a>(rows: impl Iterator<Item = &'a WireRow>) {
    let mut places = BTreeMap::new();
    for row in rows {
        if let Some(other) = places.insert(&row.name, &row.place) {
            panic!("{}: the name {} is taken by {other}", row.place, row.name);
        }
    }
}

/// A file of the configurations.
fn gate_text(name: &str) -> String {
    let file = folder().join("gates").join(name);
    std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// The configurations that the rows name.
fn configs(rows: &[WireRow]) -> BTreeMap<String, String> {
    let hosts = rows.iter().map(|row| format!("{}: 127.0.0.1", row.host));
    let hosts: Vec<String> = hosts.collect::<BTreeSet<_>>().into_iter().collect();
    let hosts = format!("{{ {}", hosts.join(", "));
    let names: BTreeSet<&String> = rows.iter().map(|row| &row.gate).collect();
    let config = |name: &String| {
        let own = gate_text(&format!("{name}.yaml"));
        let config = format!("{}{own}", gate_text("common.yaml"));
        (name.clone(), config.replace("{ a.test: 127.0.0.1", &hosts))
    };
    names.into_iter().map(config).collect()
}

/// One proxy for each configuration that the rows name.
fn gates(rows: &[WireRow]) -> BTreeMap<String, TestProxy> {
    let configs = configs(rows).into_iter();
    let gates = configs.map(|(name, config)| {
        let gate = TestProxy::start(&config, &gate_text("policy.yaml"));
        (name, gate)
    });
    gates.collect()
}

fn named(gates: &BTreeMap<String, TestProxy>) -> BTreeMap<String, Named> {
    let named = gates.iter().map(|(name, gate)| {
        let named = Named::new(gate.proxy, vec![gate.admin]);
        (name.clone(), named)
    });
    named.collect()
}

fn play_all(rows: &[WireRow], gates: &BTreeMap<String, Named>) -> BTreeMap<usize, String> {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for _ in 0..PLAYERS {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(row) = rows.get(index) else { return };
                    if let Err(failure) = play(row, gates) {
                        failures
                            .lock()
                            .expect("not poisoned")
                            .insert(index, failure);
                    }
                }
            });
        }
    });
    failures.into_inner().expect("not poisoned")
}

fn play(row: &WireRow, gates: &BTreeMap<String, Named>) -> Result<(), String> {
    let wrong = play::row(row, &gates[&row.gate]);
    wrong.map_err(|wrong| {
        format!(
            "{} ({}):\n  {}",
            row.name,
            row.place,
            wrong.join("\n").replace('\n', "\n  ")
        )
    })
}
