//! Links between the pages of the repository lead somewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use regex::Regex;

use super::pages;

/// A link of a page, without its title.
struct Link {
    page: PathBuf,
    target: String,
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut wrong = vec![];
    let links = links();
    assert!(links.len() > 250, "{} links", links.len());
    for Link { page, target } in links {
        let (path, fragment) = target.split_once('#').unwrap_or((target.as_str(), ""));
        let file = if path.is_empty() {
            page.clone()
        } else {
            resolved(&page, path)
        };
        if !file.exists() {
            wrong.push(format!("{}: {target}: no such file", page.display()));
        } else if !fragment.is_empty() && file.extension().is_some_and(|e| e == "md") {
            let text = fs::read_to_string(&file).unwrap();
            if !anchors(&text).contains(fragment) {
                wrong.push(format!("{}: {target}: no such heading", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The index of the documentation, and those of its folders, are also the navigation of the site.
#[test]
fn every_page_of_docs_is_in_an_index() {
    let mut indexed = BTreeSet::from([PathBuf::from("docs/README.md")]);
    for Link { page, target } in links() {
        if page.starts_with("docs") && page.ends_with("README.md") {
            indexed.insert(resolved(&page, target.split('#').next().unwrap()));
        }
    }
    let missing: Vec<PathBuf> = pages()
        .into_iter()
        .filter(|page| page.starts_with("docs") && !indexed.contains(page))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/README.md does not list {missing:?}"
    );
}

/// Returns the links of all pages that lead to other files of the repository, or to headings.
fn links() -> Vec<Link> {
    let pattern = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
    let mut links = vec![];
    for page in pages() {
        for line in prose(&fs::read_to_string(&page).unwrap()) {
            for link in pattern.captures_iter(line) {
                let target = link[1].to_owned();
                if !target.contains("://") && !target.starts_with("mailto:") {
                    links.push(Link {
                        page: page.clone(),
                        target,
                    });
                }
            }
        }
    }
    links
}

/// Returns the lines of a page that are not in a fenced code block.
fn prose(text: &str) -> Vec<&str> {
    let mut is_code = false;
    text.lines()
        .filter(|line| {
            let is_fence = line.trim_start().starts_with("```");
            is_code ^= is_fence;
            !is_code && !is_fence
        })
        .collect()
}

fn resolved(page: &Path, target: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for component in page.parent().unwrap().join(target).components() {
        match component {
            Component::ParentDir => assert!(path.pop(), "{}: {target}", page.display()),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                path.push(component)
            }
        }
    }
    if path.as_os_str().is_empty() {
        path.push(".");
    }
    path
}

/// Returns the ids that GitHub gives to the headings of a page.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for line in prose(text) {
        let Some(heading) = line.strip_prefix('#') else {
            continue;
        };
        let slug: String = heading
            .trim_start_matches('#')
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let count = counts.entry(slug.clone()).or_default();
        anchors.insert(match *count {
            0 => slug,
            n => format!("{slug}-{n}"),
        });
        *count += 1;
    }
    anchors
}
