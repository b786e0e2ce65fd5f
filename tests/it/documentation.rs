//! The documentation names what exists: tables that the program knows, too, links, commands, settings and metrics.

mod first_crawl;
mod links;
mod metrics;
mod names;
mod python;
mod rollout;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crawlgate::model::crawl_status::CrawlStatus;
use crawlgate::model::reason::Reason;
use crawlgate::model::stage::Stage;

use crate::support::command::crawlgate;

#[test]
fn every_reason_is_documented_with_its_retry_hint() {
    let text = fs::read_to_string("docs/reasons.md").unwrap();
    for reason in Reason::ALL {
        let start = format!("| `{}` |", reason.as_str());
        let row = text.lines().find(|line| line.starts_with(&start));
        let row = row.unwrap_or_else(|| panic!("docs/reasons.md has no row for {reason:?}"));
        let retry = format!("| `{}` |", reason.row().retry.as_str());
        assert!(row.contains(&retry), "docs/reasons.md: {row}");
    }
}

/// Of the table of stages in ARCHITECTURE.md, the reasons of each stage.
fn reasons_by_stage() -> BTreeMap<String, BTreeSet<String>> {
    let text = fs::read_to_string("ARCHITECTURE.md").unwrap();
    let (_, table) = text
        .split_once("| stage | decides by | may refuse with |\n")
        .unwrap();
    let rows = table
        .lines()
        .skip(1)
        .take_while(|line| line.starts_with('|'));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (named, _) = cells[3].split_once(';').unwrap_or((cells[3], ""));
        (
            cells[1].to_owned(),
            named.split(", ").map(String::from).collect(),
        )
    })
    .collect()
}

#[test]
fn the_table_of_stages_names_every_reason() {
    let stages = reasons_by_stage();
    let named: BTreeSet<&str> = stages.values().flatten().map(String::as_str).collect();
    let ended_by_a_panic = Reason::InternalError.as_str();
    let reasons = Reason::ALL.map(Reason::as_str).into_iter();
    assert_eq!(
        named,
        reasons.filter(|name| *name != ended_by_a_panic).collect()
    );
    for reason in Reason::ALL
        .into_iter()
        .filter(|reason| *reason != Reason::InternalError)
    {
        for stage in reason.row().stages {
            // The fetch of robots.txt may fail as other requests do.
            let is_fetch =
                *stage == Stage::Robots && reason.row().crawl_status == CrawlStatus::Error;
            let place = if is_fetch { Stage::Upstream } else { *stage };
            assert!(
                stages[place.as_str()].contains(reason.as_str()),
                "ARCHITECTURE.md: {reason:?} is missing at {place:?}"
            );
        }
    }
}

#[test]
fn every_command_is_documented() {
    let text = fs::read_to_string("docs/commands.md").unwrap();
    let help = crawlgate(Path::new("."), "--help", "").stdout;
    let (_, commands) = help.split_once("Commands:\n").unwrap();
    let commands: Vec<&str> = commands
        .lines()
        .take_while(|line| line.starts_with("  "))
        .filter(|line| !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
        .collect();
    assert!(commands.len() > 10, "{commands:?}");
    for name in commands {
        assert!(
            text.contains(&format!("`crawlgate {name}")) || text.contains(&format!("`{name}")),
            "docs/commands.md does not name `{name}`"
        );
    }
}

/// The Markdown files of the repository.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![];
    let mut folders = vec![PathBuf::from(".")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let is_built = ["target", "node_modules", "var"].contains(&name);
            if path.is_dir() && !name.starts_with('.') && !is_built {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path.strip_prefix(".").unwrap().to_owned());
            }
        }
    }
    pages.sort();
    pages
}

/// The pages that a user of the program reads.
fn user_pages() -> Vec<PathBuf> {
    let mut pages = pages();
    pages.retain(|page| page.starts_with("docs") || page == Path::new("README.md"));
    pages
}
