//! Changes of a policy's files as editors, deploy tools and Kubernetes make them, against the watch that sees them.
//!
//! No clock: a look is a call.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crawlgate::config::policy::open_and_test_watched;
use crawlgate::config::settings::PolicyOrigin;
use crawlgate::config::watch::PolicyWatcher;
use crawlgate::policy::compile::CompiledPolicy;
use crawlgate::policy::fact::Facts;
use crawlgate::urls::target::UrlTarget;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::support::temp_dir::TempDir;

/// The source that is read after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    /// The policy with this number of hosts in its list.
    Hosts(usize),
    /// A policy with problems, or none.
    Refused,
}

/// A step of a scenario, done in its folder.
type Change = fn(&Path);

struct Scenario {
    name: &'static str,
    /// The initial state of the files: `hosts` reads as [`Read::Hosts`] of 1.
    layout: Change,
    /// The value of `policy.path`, relative to the directory.
    path: &'static str,
    steps: &'static [(Change, Read)],
}

const POLICY: &str = "policy: 1\nname: watched\noptions: { disposition: allow }\n\
    lists: { hosts: { kind: hosts, file: lists/hosts.txt } }\nrules: [{ id: r, forbid: { in: hosts } }]\n";

/// A policy, and a list in a directory below its own.
fn files(directory: &Path) {
    fs::create_dir_all(directory.join("lists")).unwrap();
    fs::write(directory.join("policy.yaml"), POLICY).unwrap();
    hosts(directory, 1);
}

fn hosts(directory: &Path, count: usize) {
    fs::write(directory.join("lists/hosts.txt"), list(count)).unwrap();
}

fn list(count: usize) -> String {
    (0..count).map(|at| format!("h{at}.example\n")).collect()
}

fn packed(count: usize) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(list(count).as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// A mounted ConfigMap: each name is a link through `..data` to the newest version.
fn mount(directory: &Path) {
    files(&directory.join("..v1"));
    symlink("..v1", directory.join("..data")).unwrap();
    symlink("..data/policy.yaml", directory.join("policy.yaml")).unwrap();
    symlink("..data/lists", directory.join("lists")).unwrap();
}

/// Kubernetes: the new version next to the old one, the link replaced by a rename, the old version removed.
fn swap(directory: &Path, version: &str, count: usize) {
    let old = fs::read_link(directory.join("..data")).unwrap();
    files(&directory.join(version));
    hosts(&directory.join(version), count);
    symlink(version, directory.join("..data_tmp")).unwrap();
    fs::rename(directory.join("..data_tmp"), directory.join("..data")).unwrap();
    fs::remove_dir_all(directory.join(old)).unwrap();
}

/// A release in its own directory, and a link to the current one.
fn releases(directory: &Path) {
    files(&directory.join("r1"));
    symlink("r1", directory.join("current")).unwrap();
}

const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "the list is written in place",
        layout: files,
        path: "policy.yaml",
        steps: &[
            (|d| hosts(d, 2), Read::Hosts(2)),
            (|d| hosts(d, 3), Read::Hosts(3)),
        ],
    },
    Scenario {
        name: "a packed list is written in place",
        layout: files,
        path: "policy.yaml",
        steps: &[
            (
                |d| fs::write(d.join("lists/hosts.txt"), packed(2)).unwrap(),
                Read::Hosts(2),
            ),
            (
                |d| fs::write(d.join("lists/hosts.txt"), packed(3)).unwrap(),
                Read::Hosts(3),
            ),
            (
                |d| fs::write(d.join("lists/hosts.txt"), &packed(4)[..20]).unwrap(),
                Read::Refused,
            ),
        ],
    },
    Scenario {
        name: "an editor renames a new file over the old",
        layout: files,
        path: "policy.yaml",
        steps: &[(
            |d| {
                fs::write(
                    d.join(".policy.yaml.swp"),
                    POLICY.replace("[{ id: r", "[{ id: renamed"),
                )
                .unwrap();
                hosts(d, 2);
                fs::rename(d.join(".policy.yaml.swp"), d.join("policy.yaml")).unwrap();
            },
            Read::Hosts(2),
        )],
    },
    Scenario {
        name: "the policy is deleted and made again",
        layout: files,
        path: "policy.yaml",
        steps: &[
            (
                |d| fs::remove_file(d.join("policy.yaml")).unwrap(),
                Read::Refused,
            ),
            (files, Read::Hosts(1)),
        ],
    },
    Scenario {
        name: "the list's directory is deleted and made again",
        layout: files,
        path: "policy.yaml",
        steps: &[
            (
                |d| fs::remove_dir_all(d.join("lists")).unwrap(),
                Read::Refused,
            ),
            (
                |d| {
                    files(d);
                    hosts(d, 4);
                },
                Read::Hosts(4),
            ),
        ],
    },
    Scenario {
        name: "a file stops in the middle, and goes on",
        layout: files,
        path: "policy.yaml",
        steps: &[
            (
                |d| fs::write(d.join("policy.yaml"), &POLICY[..POLICY.len() / 2]).unwrap(),
                Read::Refused,
            ),
            (
                |d| fs::write(d.join("policy.yaml"), POLICY).unwrap(),
                Read::Hosts(1),
            ),
        ],
    },
    Scenario {
        name: "a list that the policy names only now",
        layout: files,
        path: "policy.yaml",
        steps: &[
            (
                |d| {
                    fs::write(
                        d.join("policy.yaml"),
                        POLICY.replace("hosts.txt", "more.txt"),
                    )
                    .unwrap()
                },
                Read::Refused,
            ),
            (
                |d| fs::write(d.join("lists/more.txt"), list(5)).unwrap(),
                Read::Hosts(5),
            ),
            (
                |d| fs::write(d.join("lists/more.txt"), list(6)).unwrap(),
                Read::Hosts(6),
            ),
        ],
    },
    Scenario {
        name: "a directory gets a file, loses it, is moved away and comes again",
        layout: |d| files(&d.join("policies")),
        path: "policies",
        steps: &[
            (
                |d| fs::write(d.join("policies/zz.yaml"), "rules: [{ nonsense: 1 }]\n").unwrap(),
                Read::Refused,
            ),
            (
                |d| fs::remove_file(d.join("policies/zz.yaml")).unwrap(),
                Read::Hosts(1),
            ),
            (
                |d| fs::rename(d.join("policies"), d.join("away")).unwrap(),
                Read::Refused,
            ),
            (
                |d| fs::rename(d.join("away"), d.join("policies")).unwrap(),
                Read::Hosts(1),
            ),
        ],
    },
    Scenario {
        name: "a directory is swapped by two renames",
        layout: |d| files(&d.join("policies")),
        path: "policies",
        steps: &[(
            |d| {
                files(&d.join("next"));
                hosts(&d.join("next"), 2);
                fs::rename(d.join("policies"), d.join("last")).unwrap();
                fs::rename(d.join("next"), d.join("policies")).unwrap();
            },
            Read::Hosts(2),
        )],
    },
    Scenario {
        name: "the link to a release is renamed over",
        layout: releases,
        path: "current",
        steps: &[(
            |d| {
                files(&d.join("r2"));
                hosts(&d.join("r2"), 2);
                symlink("r2", d.join("tmp")).unwrap();
                fs::rename(d.join("tmp"), d.join("current")).unwrap();
            },
            Read::Hosts(2),
        )],
    },
    Scenario {
        name: "a ConfigMap's file",
        layout: mount,
        path: "policy.yaml",
        steps: &[
            (|d| swap(d, "..v2", 2), Read::Hosts(2)),
            (|d| swap(d, "..v3", 3), Read::Hosts(3)),
        ],
    },
    Scenario {
        name: "a ConfigMap's directory",
        layout: mount,
        path: ".",
        steps: &[
            (|d| swap(d, "..v2", 2), Read::Hosts(2)),
            (|d| swap(d, "..v3", 3), Read::Hosts(3)),
        ],
    },
];

/// Reads as `run` does. How many hosts the list has is seen by which of them is refused.
fn read(path: &Path) -> (Read, PolicyWatcher) {
    let read = open_and_test_watched(&PolicyOrigin::Path(path.to_owned()), None);
    let found = match &read.result {
        Ok(compiled) => Read::Hosts((0..10).filter(|at| refuses(compiled, *at)).count()),
        Err(_) => Read::Refused,
    };
    (found, PolicyWatcher::new(read.stamps))
}

fn refuses(compiled: &CompiledPolicy, at: usize) -> bool {
    let target = UrlTarget::parse(&format!("http://h{at}.example/")).unwrap();
    compiled.policy.decide(&Facts::for_url(&target)).1.rejects()
}

#[test]
fn changes_are_seen_at_rest_and_once() {
    for scenario in SCENARIOS {
        let folder = TempDir::new();
        (scenario.layout)(folder.path());
        let path: PathBuf = folder.path().join(scenario.path);
        let (found, mut watch) = read(&path);
        assert_eq!(found, Read::Hosts(1), "{}: at first", scenario.name);
        for (at, (change, expected)) in scenario.steps.iter().enumerate() {
            let reported = format!("{}, step {at}", scenario.name);
            assert!(!watch.poll_changed(), "{reported}: nothing has changed yet");
            assert!(!watch.poll_changed(), "{reported}: nothing has changed yet");
            change(folder.path());
            assert!(
                !watch.poll_changed(),
                "{reported}: it may be in the middle of changing"
            );
            assert!(watch.poll_changed(), "{reported}: it is seen");
            let (found, next) = read(&path);
            assert_eq!(found, *expected, "{reported}");
            watch = next;
        }
        assert!(!watch.poll_changed(), "{}: in the end", scenario.name);
        assert!(!watch.poll_changed(), "{}: in the end", scenario.name);
    }
}

#[test]
fn other_files_in_the_directory_do_not_reload() {
    let folder = TempDir::new();
    files(folder.path());
    let (_, mut watch) = read(&folder.path().join("policy.yaml"));
    folder.write("policy.yaml~", "x");
    folder.write("lists/other.txt", "x");
    assert!(!watch.poll_changed() && !watch.poll_changed());
}
