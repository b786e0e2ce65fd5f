//! The tables of ARCHITECTURE.md name every module, and no module uses another than its row allows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const POLICY_CRATE: &str = "crates/policy/src";
const PROXY: &str = "src";
const IMPORTERS: &str = "crates/import/src";
const FLEET: &str = "crates/fleet/src";

/// Each module of a crate with the modules of the same crate that it may use.
type Uses = BTreeMap<String, BTreeSet<String>>;

#[test]
fn the_tables_name_every_module() {
    for (root, uses) in tables() {
        let named: BTreeSet<String> = uses.into_keys().collect();
        assert_eq!(named, modules_in(root), "{root}");
    }
}

#[test]
fn no_module_uses_one_above_it() {
    let [(_, policy_crate), _, _, _] = tables();
    for (root, uses) in tables() {
        let mut found = 0;
        let mut forbidden = vec![];
        for file in sources(root) {
            let module = module_of(&file, root);
            let Some(allowed) = uses.get(&module) else {
                continue; // The crate's root.
            };
            for (used, line) in used_modules(&file) {
                found += 1;
                let is_below = root == PROXY && policy_crate.contains_key(&used);
                if used != module && !is_below && !allowed.contains(&used) {
                    forbidden.push(format!("{}: {line}", file.display()));
                }
            }
        }
        assert!(
            forbidden.is_empty(),
            "uses that ARCHITECTURE.md does not list:\n{}",
            forbidden.join("\n")
        );
        let expected = if root == FLEET { 10 } else { 100 };
        assert!(
            found > expected,
            "{root}: {found} uses: is this still reading the sources?"
        );
    }
}

/// Names that the crates without I/O must not use, besides what their manifests keep out.
const IMPURE: [&str; 7] = [
    "std::env",
    "std::fs",
    "std::net::Tcp",
    "std::net::Udp",
    "std::process",
    "Instant::now",
    "SystemTime::now",
];

#[test]
fn the_policy_crate_the_importers_and_the_ownership_do_no_io() {
    for file in [sources(POLICY_CRATE), sources(IMPORTERS), sources(FLEET)].concat() {
        if file.ends_with("test_clock.rs") {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        for line in code(&text) {
            for word in IMPURE {
                assert!(!line.contains(word), "{}: {line}", file.display());
            }
        }
    }
}

#[test]
fn only_yaml_names_the_yaml_library_and_only_clock_reads_time() {
    for root in [POLICY_CRATE, PROXY] {
        for file in sources(root) {
            let module = module_of(&file, root);
            let text = fs::read_to_string(&file).unwrap();
            for line in code(&text) {
                let yaml = line.contains("serde_saphyr") && module != "yaml";
                let time = line.contains("Instant::now()") && !module.ends_with("clock");
                assert!(!yaml && !time, "{}: {line}", file.display());
            }
        }
    }
}

/// The files on the path of one request are short enough to read at once.
#[test]
fn the_order_is_written_once_and_short() {
    for file in ["src/pipeline/request.rs", "src/pipeline/response.rs"] {
        let lines = fs::read_to_string(file).unwrap().lines().count();
        assert!(lines < 270, "{file} has {lines} lines");
    }
}

/// An evaluator of a source's rules checks the translation, so it must not use it.
#[test]
fn evaluators_of_sources_share_no_code_with_the_translation() {
    for file in sources(&format!("{IMPORTERS}/reference")) {
        let text = fs::read_to_string(&file).unwrap();
        for line in code(&text) {
            let is_slug = line.contains("crate::draft::to_slug");
            let is_translation = line.contains("crate::draft") && !is_slug;
            let is_engine = line.contains("crawlgate_policy::internal::policy");
            assert!(!is_translation && !is_engine, "{}: {line}", file.display());
        }
    }
}

/// The tables of ARCHITECTURE.md under "Modules", in their order.
fn tables() -> [(&'static str, Uses); 4] {
    let text = fs::read_to_string("ARCHITECTURE.md").unwrap();
    let modules = text
        .split("## ")
        .find(|part| part.starts_with("Modules"))
        .unwrap();
    let mut tables = vec![];
    for line in modules.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [module, _, used] = cells.as_slice() else {
            continue;
        };
        if *module == "module" {
            tables.push(Uses::new());
            continue;
        }
        let uses: &mut Uses = tables.last_mut().unwrap();
        let used = match used.trim_end_matches([' ', '|']) {
            "–" => BTreeSet::new(),
            "all above" => uses.keys().cloned().collect(),
            names => names.split(", ").map(str::to_owned).collect(),
        };
        let module = module.trim_matches('`').to_owned();
        for name in &used {
            // Evaluators read the parsed sources of the systems, which create them.
            let is_evaluated = module == "reference" && name == "systems";
            let is_above = uses.contains_key(name) || is_evaluated;
            assert!(is_above, "{module}: {name} is not above it");
        }
        uses.insert(module, used);
    }
    let [policy_crate, proxy, importers, fleet] = tables.try_into().unwrap();
    [
        (POLICY_CRATE, policy_crate),
        (PROXY, proxy),
        (IMPORTERS, importers),
        (FLEET, fleet),
    ]
}

fn modules_in(root: &str) -> BTreeSet<String> {
    let files = fs::read_dir(root)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|name| !["lib", "test_clock"].contains(&name.as_str()))
        .collect()
}

fn sources(root: &str) -> Vec<PathBuf> {
    let mut found = vec![];
    let mut folders = vec![PathBuf::from(root)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    found
}

fn module_of(file: &Path, root: &str) -> String {
    let inside = file.strip_prefix(root).unwrap();
    let first = inside.components().next().unwrap().as_os_str();
    first.to_str().unwrap().trim_end_matches(".rs").to_owned()
}

/// Lines of code: neither comments nor the tests at the end of the file.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    code.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
}

/// The modules that a file names by `crate::`, in `use` lines (with their braces) and in paths.
fn used_modules(file: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(file).unwrap();
    let mut used = vec![];
    for line in code(&text) {
        for (at, prefix) in line.match_indices("crate::") {
            let rest = &line[at + prefix.len()..];
            // Macros for other crates name items of the policy crate by their full paths.
            let rest = rest.strip_prefix("internal::").unwrap_or(rest);
            let names = match rest.strip_prefix('{') {
                Some(inside) => inside.split('}').next().unwrap().split(',').collect(),
                None => vec![rest],
            };
            for name in names {
                let end = name.trim().find(|c: char| !c.is_alphanumeric() && c != '_');
                let name = &name.trim()[..end.unwrap_or(name.trim().len())];
                used.push((name.to_owned(), line.to_owned()));
            }
        }
    }
    used
}
