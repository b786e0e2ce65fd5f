//! The documentation names what exists: tables that the program knows, too, links, commands, settings and metrics.

mod first_crawl;
mod links;
mod metrics;
mod names;
mod python;
mod rollout;

use std::fs;
use std::path::{Path, PathBuf};

use crawlgate::model::reason::Reason;

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
