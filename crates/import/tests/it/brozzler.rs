//! brozzler: the policy against the decision about scopes, written plainly, and its traps.

use crawlgate_import::{ImportInput, ReportList, System, import};
use crawlgate_policy::MemoryFileSystem;
use serde_json::{Map, Value as Json, json};

use super::support::{REQUESTS, compare_verdicts, import_texts, regex_fits};

const JOB: &str = r"
scope:
  accepts:
  - ssurt: com,example,cdn,//https:/
  - parent_url_regex: https?://video\.test/.*
    regex: http://video\.test/watch.*
  - surt: http://(org,example,
  blocks:
  - domain: old.example.org
  - domain: example.com
    substring: logout
seeds:
- url: https://www.example.com/a
  scope:
    blocks:
    - substring: /print/
- url: http://two.test:8080/
warcprox_meta:
  blocks:
  - domain: ads.test
";

fn brozzler_accepts(url: &str, facts: &Map<String, Json>) -> bool {
    let text = |name: &str| facts.get(name).and_then(Json::as_str).unwrap_or("");
    let (scheme, rest) = url.split_once("://").unwrap();
    let authority = rest.split('/').next().unwrap();
    let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
    let below = |domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
    if below("ads.test") {
        return false;
    }
    if text("dest") == "embed" {
        return true;
    }
    if below("old.example.org") || (below("example.com") && url.contains("logout")) {
        return false;
    }
    let watch = regex_fits(r"^http://video\.test/watch.*$", url)
        && regex_fits(r"^https?://video\.test/.*$", text("referer"));
    let first = url.starts_with("https://www.example.com/a") && !url.contains("/print/");
    let second = url.starts_with("http://two.test:8080/");
    let cdn = scheme == "https" && host == "cdn.example.com" && port.is_empty();
    let organisation = scheme == "http" && below("example.org");
    first || second || cdn || watch || organisation
}

#[test]
fn blocks_beat_accepts_and_seeds_are_in_scope() {
    let imported = import_texts(System::Brozzler, &[("job.yaml", JOB)]);
    assert_eq!(imported.divergences, []);
    let mut random = fastrand::Rng::with_seed(1);
    let hosts = [
        "www.example.com",
        "example.com",
        "cdn.example.com",
        "a.cdn.example.com",
        "example.org",
        "a.example.org",
        "old.example.org",
        "b.old.example.org",
        "xexample.org",
        "video.test",
        "two.test",
        "ads.test",
        "x.ads.test",
    ];
    let paths = [
        "/",
        "/a",
        "/ab",
        "/a/print/x",
        "/watch?v=1",
        "/logout",
        "/x?logout",
        "/b",
    ];
    let requests = (0..REQUESTS).map(|_| {
        let url = format!(
            "{}://{}{}{}",
            ["http", "https"][random.usize(..2)],
            hosts[random.usize(..hosts.len())],
            ["", "", ":8080"][random.usize(..3)],
            paths[random.usize(..paths.len())],
        );
        let mut facts = Map::new();
        if random.bool() {
            let referer = ["http://video.test/x", "http://other.test/"][random.usize(..2)];
            facts.insert("referer".to_owned(), json!(referer));
        }
        if random.u8(..4) == 0 {
            facts.insert(
                "dest".to_owned(),
                json!(["embed", "navigation"][random.usize(..2)]),
            );
        }
        (url, facts)
    });
    let announced = compare_verdicts(&imported, requests.collect::<Vec<_>>(), brozzler_accepts);
    assert_eq!(announced, 0);
}

#[test]
fn what_is_not_converted_is_reported_and_secrets_are_not_written() {
    for line in [
        "time_limit: 5",
        "scope: { max_hops_off: 2 }",
        "scope: { accepts: [ { regex: 'http://[a-z.]*(?<!not)spam.*' } ] }",
        "scope: { blocks: [ { regex: 'http://[a-z.]*(?<!not)spam.*' } ] }",
        "scope: { blocks: [ { unheard: of } ] }",
        "scope: { accepts: [ { surt: 'http://(com,exam' } ] }",
        "scope: { accepts: [ { ssurt: 'com,example,//ht' } ] }",
        "warcprox_meta: { limits: { a/total/urls: 1 } }",
        "warcprox_meta: { compressed_blocks: abc }",
        "pdfs_only: true",
    ] {
        let text = format!("{line}\nseeds:\n- url: http://a.test/\n  password: hunter2\n");
        let imported = import_texts(System::Brozzler, &[("job.yaml", &text)]);
        assert_eq!(imported.divergences, [], "{line}");
        assert!(!imported.report.is_complete(), "{line}");
        assert!(!imported.report.to_json().to_string().contains("hunter2"));
    }
    for text in [
        "",
        "[",
        "seeds: 1",
        "{}",
        "seeds: [ { url: 5 } ]",
        "a: &a [*a]",
        "seeds:\n- url: http://[::1]/\n",
    ] {
        let files = MemoryFileSystem::new().with_file("a", text.as_bytes());
        let _ = import(System::Brozzler, &ImportInput::new(&files, ["a"]));
    }
}

/// Each key is one part.
#[test]
fn each_key_is_in_one_list() {
    let imported = import_texts(System::Brozzler, &[("job.yaml", JOB)]);
    let keys = JOB.matches(": ").count() + JOB.matches(":\n").count();
    let lists = ReportList::ALL.iter();
    let listed: usize = lists.map(|list| imported.report.list(*list).count()).sum();
    assert_eq!(listed, keys);
}

#[test]
fn compressed_blocks_are_unpacked() {
    let text = r#"{ "warc-prefix": "a", "compressed_blocks": "eJyLrlZKyc9NzMxTslIqSEzOTk3RK0ktLlGqjQUAe4MJQQ==" }"#;
    let imported = import_texts(System::Brozzler, &[("meta.json", text)]);
    assert!(imported.report.is_complete());
    let policy = &imported.files["policy.yaml"];
    assert!(
        policy.contains("forbid: { domain: packed.test }"),
        "{policy}"
    );
    assert_eq!(imported.divergences, []);
}
