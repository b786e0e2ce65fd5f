//! The admin page: every file over a real socket, its headers, and its references.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crawlgate::admin::ui::ASSETS;
use crawlgate::model::profile::Profile;
use crawlgate::policy::cases::FACT_KEYS;
use sha2::{Digest, Sha256};

use crate::admin::{AdminBench, TOKEN, body, status};

/// The limit of all files together, so that the page loads quickly over any network.
const LARGEST: u64 = 350_000;

/// The headers of each file.
const HEADERS: [&str; 5] = [
    "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "referrer-policy: no-referrer",
    "x-content-type-options: nosniff",
    "cache-control: private, no-cache",
    "cross-origin-opener-policy: same-origin",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/admin/ui")
}

fn files() -> Vec<PathBuf> {
    let mut found = vec![];
    let mut folders = vec![folder()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path)
            } else {
                found.push(path)
            }
        }
    }
    found.retain(|file| !file.ends_with("vendor/README.md"));
    found
}

fn header<'a>(answer: &'a str, name: &str) -> Option<&'a str> {
    answer
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[tokio::test]
async fn every_file_is_served_with_its_headers() {
    let bench = AdminBench::new(None).await;
    for asset in ASSETS {
        let path = format!("GET /ui/{}", asset.name);
        let answer = bench.ask(&path, "").await;
        assert_eq!(status(&answer), 200, "{path}");
        let whole = body(&answer) == fs::read_to_string(folder().join(asset.name)).unwrap();
        assert!(whole, "{path}: not the file in src/admin/ui");
        let kind = match Path::new(asset.name)
            .extension()
            .and_then(|ending| ending.to_str())
        {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "text/plain; charset=utf-8",
        };
        assert_eq!(header(&answer, "content-type"), Some(kind), "{path}");
        for line in HEADERS {
            assert!(answer.contains(&format!("{line}\r\n")), "{path}: no {line}");
        }
        assert!(!answer.contains("set-cookie"), "{path}");
    }
}

#[tokio::test]
async fn the_page_has_its_short_paths_and_no_others() {
    let bench = AdminBench::new(None).await;
    let page = fs::read_to_string(folder().join("index.html")).unwrap();
    for path in ["/ui", "/ui/", "/ui?x=1", "/ui/index.html"] {
        assert_eq!(
            body(&bench.ask(&format!("GET {path}"), "").await),
            page,
            "{path}"
        );
    }
    for path in [
        "/uiindex.html",
        "/ui//app.js",
        "/ui/app.js/",
        "/ui/../Cargo.toml",
        "/ui/vendor/README.md",
        "/UI",
    ] {
        assert_eq!(
            bench.status(&format!("GET {path}"), "").await,
            404,
            "{path}"
        );
    }
    let wrong = bench.ask("POST /ui", "").await;
    assert_eq!(
        (status(&wrong), header(&wrong, "allow")),
        (405, Some("GET, HEAD"))
    );
}

#[tokio::test]
async fn a_browser_that_has_a_file_is_not_sent_it_again() {
    let bench = AdminBench::new(None).await;
    let first = bench.ask("GET /ui/app.js", "").await;
    let tag = header(&first, "etag").unwrap().to_owned();
    assert!(tag.len() == 18, "{tag}");
    assert!(tag.starts_with('"'), "{tag}");
    assert!(tag.ends_with('"'), "{tag}");
    for (field, expected) in [
        (tag.clone(), 304),
        (format!("W/{tag}"), 304),
        (format!("\"other\", {tag}"), 304),
        ("*".to_owned(), 304),
        ("\"other\"".to_owned(), 200),
        (tag.replace('"', ""), 200),
    ] {
        let answer = bench
            .ask("GET /ui/app.js", &format!("If-None-Match: {field}\r\n"))
            .await;
        assert_eq!(status(&answer), expected, "{field}");
        assert_eq!(header(&answer, "etag"), Some(&*tag), "{field}");
        assert_eq!(body(&answer).is_empty(), expected == 304, "{field}");
    }
    let other = bench
        .ask("GET /ui/dom.js", &format!("If-None-Match: {tag}\r\n"))
        .await;
    assert_eq!(status(&other), 200, "another file has another tag");

    let head = bench.ask("HEAD /ui/app.js", "").await;
    assert_eq!((status(&head), body(&head)), (200, ""));
    assert_eq!(
        header(&head, "content-length"),
        header(&first, "content-length")
    );
}

/// The page is protected like the API, unlike the probes: it shows URLs of the crawl.
#[tokio::test]
async fn the_guard_protects_every_file() {
    let bench = AdminBench::new(Some(TOKEN)).await;
    for asset in ASSETS {
        let path = format!("GET /ui/{}", asset.name);
        assert_eq!(bench.status(&path, "").await, 401, "{path}");
        assert_eq!(
            bench
                .status(&path, &format!("Authorization: Bearer {TOKEN}\r\n"))
                .await,
            200,
            "{path}"
        );
    }
    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    let foreign = format!("{token}Origin: http://evil.example\r\n");
    assert_eq!(bench.status("GET /ui", &foreign).await, 403);
    let rebound = bench
        .raw(&format!(
            "GET /ui HTTP/1.1\r\nHost: evil.example\r\n{token}\r\n"
        ))
        .await;
    assert_eq!(status(&rebound), 403);
}

#[test]
fn the_page_is_small_and_whole() {
    let files = files();
    let size: u64 = files
        .iter()
        .map(|file| fs::metadata(file).unwrap().len())
        .sum();
    assert!(size < LARGEST, "the page has {size} bytes");
    let on_disk: BTreeSet<_> = files
        .iter()
        .map(|file| file.strip_prefix(folder()).unwrap().to_str().unwrap())
        .collect();
    let served: BTreeSet<_> = ASSETS.iter().map(|asset| asset.name).collect();
    assert_eq!(on_disk, served, "what is in src/admin/ui is what is served");
}

/// The vendored library is the one that its README names.
#[test]
fn the_vendored_files_are_unchanged() {
    let readme = fs::read_to_string(folder().join("vendor/README.md")).unwrap();
    for name in ["vendor/uplot.js", "vendor/uplot.css"] {
        let hash = Sha256::digest(fs::read(folder().join(name)).unwrap());
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(readme.contains(&hash), "{name} is {hash}");
    }
}

/// A file that names another host would violate the policy of its own headers, and reveal the crawl to that host.
#[test]
fn pages_reference_existing_local_files_only() {
    for file in files()
        .iter()
        .filter(|file| !file.ends_with("vendor/LICENSE"))
    {
        let text = fs::read_to_string(file).unwrap();
        let name = file.strip_prefix(folder()).unwrap().to_str().unwrap();
        let own = text
            .replace("http://www.w3.org/2000/svg", "")
            // A placeholder of an empty field.
            .replace("http://www.example.com/", "")
            .replace("http://${name}/", "")
            // The proxy in a command of curl.
            .replace("http://${listener(status, crawler)}", "")
            // A link, of which nothing is loaded and which is sent no referrer.
            .replace("<a href=\"https://github.com/crawlgate/crawlgate\"", "")
            // The URL of a CONNECT.
            .replace("https://${address}/", "")
            .replace("/*! https://github.com/leeoniya/uPlot", "");
        for scheme in ["http://", "https://", "src=\"//", "href=\"//", "@import"] {
            assert!(!own.contains(scheme), "{name} has {scheme}");
        }
        for named in named(&text, name) {
            assert!(
                ASSETS.iter().any(|asset| asset.name == named),
                "{name} names {named}"
            );
        }
    }
}

/// No markup is made from text, and the page has none that its policy refuses.
#[test]
fn no_text_becomes_markup() {
    for file in files()
        .iter()
        .filter(|file| !file.to_str().unwrap().contains("vendor"))
    {
        let text = fs::read_to_string(file).unwrap();
        for word in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "DOMParser",
        ] {
            assert!(!text.contains(word), "{}: {word}", file.display());
        }
    }
    let page = fs::read_to_string(folder().join("index.html")).unwrap();
    for word in ["<style", " style=", " onclick=", " onload=", "javascript:"] {
        assert!(!page.contains(word), "index.html: {word}");
    }
    assert!(
        page.split("<script")
            .skip(1)
            .all(|script| script.starts_with(" src=")),
        "a script of its own"
    );
}

/// The form sends its lists `FACTS` and `MORE`.
#[test]
fn the_form_has_every_fact_and_every_profile() {
    let script = fs::read_to_string(folder().join("views/try.js")).unwrap();
    let list = |name: &str| -> BTreeSet<String> {
        let (_, rest) = script.split_once(&format!("const {name} = [")).unwrap();
        let items = rest.split_once(']').unwrap().0.split('"').skip(1);
        items.step_by(2).map(String::from).collect()
    };
    let sent = &list("FACTS") | &list("MORE");
    let others = ["profile", "user_agent", "fetch"];
    let facts: BTreeSet<String> = FACT_KEYS
        .into_iter()
        .chain(others)
        .map(String::from)
        .collect();
    assert_eq!(sent, facts);
    let profiles = Profile::ALL
        .iter()
        .map(|profile| profile.as_str().to_owned());
    assert_eq!(list("PROFILES"), profiles.collect());
}

/// The files that a file references: `/ui/NAME` in the page, `from "./NAME"` in a module.
fn named(text: &str, file: &str) -> Vec<String> {
    let mut found: Vec<String> = text
        .split("\"/ui/")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap().to_owned())
        .collect();
    let parent = Path::new(file).parent().unwrap();
    for rest in text.split(" from \"").skip(1) {
        let name = rest.split('"').next().unwrap();
        let path = match name.strip_prefix("../") {
            Some(above) => parent.parent().unwrap().join(above),
            None => parent.join(name.strip_prefix("./").expect(name)),
        };
        found.push(path.to_str().unwrap().to_owned());
    }
    found
}
