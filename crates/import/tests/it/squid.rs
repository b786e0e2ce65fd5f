//! squid: the policy against the algorithm of its access lists, written plainly, and its traps.

use crawlgate_import::{
    FileSystem, ImportInput, MissingPart, PartOutcome, ReportList, SourceVerdict, System, import,
};
use crawlgate_policy::MemoryFileSystem;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value as Json, json};

use super::support::{REQUESTS, compare_verdicts, compiled, import_texts};

const CONFIGURATION: &str = r"
acl lab src 10.9.0.0/16
acl Safe_ports port 80 443 8000-8100
acl SSL_ports port 443
acl old dstdomain .old.example old.test
acl ours dstdomain .example.com www.example.org
acl cgi urlpath_regex -i /cgi-bin/ \.exe$
acl sid url_regex [?&]sid=\d+
acl posts method POST PUT
acl plain proto HTTP
http_access deny !Safe_ports
http_access deny CONNECT !SSL_ports
http_access allow lab !posts
http_access deny old
http_access deny cgi !lab
http_access allow ours plain
http_access deny sid
http_access deny posts
http_access allow ours
";

/// The lines above, as a chain of `if`.
fn squid_allows(url: &str, facts: &Map<String, Json>) -> bool {
    let text = |name: &str| facts.get(name).and_then(Json::as_str);
    let (scheme, rest) = url.split_once("://").unwrap();
    let (authority, path) = rest.split_at(rest.find('/').unwrap());
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, port.parse::<u16>().unwrap()),
        None => (authority, if scheme == "https" { 443 } else { 80 }),
    };
    let connect = scheme == "https";
    let lab = text("crawler") == Some("lab");
    let posts = !connect && matches!(text("method"), Some("POST" | "PUT"));
    let below = |domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
    let ours = below("example.com") || host == "www.example.org";
    // In a tunnel squid sees no path; of its URL, host and port.
    let seen = if connect { "" } else { path };
    let cgi = seen.to_lowercase().contains("/cgi-bin/") || seen.to_lowercase().ends_with(".exe");
    let sid = ["?sid=", "&sid="].iter().any(|key| {
        let digits = seen.split(key).skip(1);
        digits
            .into_iter()
            .any(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    let is_safe = port == 80 || port == 443 || (8000..=8100).contains(&port);
    if !is_safe || connect && port != 443 {
        false
    } else if lab && !posts {
        true
    } else if below("old.example") || host == "old.test" || cgi && !lab {
        false
    } else if ours && !connect {
        true
    } else if sid || posts {
        false
    } else {
        ours
    }
}

fn requests(seed: u64) -> Vec<(String, Map<String, Json>)> {
    let mut random = fastrand::Rng::with_seed(seed);
    let hosts = [
        "example.com",
        "www.example.com",
        "xexample.com",
        "www.example.org",
        "example.org",
        "a.www.example.org",
        "old.example",
        "a.old.example",
        "old.test",
        "a.old.test",
    ];
    let ports = ["", "", "", ":80", ":443", ":8000", ":8100", ":8101", ":21"];
    let paths = [
        "/",
        "/cgi-bin/x",
        "/CGI-BIN/x",
        "/a.exe",
        "/a.exe?b",
        "/a?b=.EXE",
        "/?sid=12",
        "/?a&sid=1",
        "/?asid=1",
        "/?sid=x",
    ];
    let requests = (0..REQUESTS).map(|_| {
        let scheme = ["http", "https"][random.usize(..2)];
        let host = hosts[random.usize(..hosts.len())];
        let port = ports[random.usize(..ports.len())];
        let path = paths[random.usize(..paths.len())];
        let mut facts = Map::new();
        if random.bool() {
            facts.insert(
                "crawler".to_owned(),
                json!(["lab", "other"][random.usize(..2)]),
            );
        }
        if random.u8(..4) == 0 && scheme == "http" {
            facts.insert(
                "method".to_owned(),
                json!(["POST", "PUT", "HEAD"][random.usize(..3)]),
            );
        }
        (format!("{scheme}://{host}{port}{path}"), facts)
    });
    requests.collect()
}

#[test]
fn the_first_access_line_that_fits_decides() {
    let imported = import_texts(System::Squid, &[("squid.conf", CONFIGURATION)]);
    assert_eq!(imported.divergences, []);
    let plain = requests(1)
        .into_iter()
        .filter(|(url, _)| url.starts_with("http:"));
    assert_eq!(compare_verdicts(&imported, plain, squid_allows), 0);
    // Of https URLs squid sees no path without ssl_bump: the report announces that for each such line.
    let announced = compare_verdicts(&imported, requests(2), squid_allows);
    assert!(announced > 0 && announced < REQUESTS / 10, "{announced}");
    let named = [("https://www.example.com/cgi-bin/x".to_owned(), Map::new())];
    assert_eq!(compare_verdicts(&imported, named, squid_allows), 1);
}

#[test]
fn domains_are_compared_as_squid_does() {
    for (value, host, fits) in [
        (".example.com", "example.com", true),
        (".example.com", "www.example.com", true),
        (".example.com", "xexample.com", false),
        ("example.com", "example.com", true),
        ("example.com", "www.example.com", false),
        ("EXAMPLE.com", "example.com", true),
        ("*.example.com", "www.example.com", false),
        (".", "example.com", false),
    ] {
        let text = format!(
            "acl a dstdomain {value} .other.test\nhttp_access deny a\nhttp_access allow all\n"
        );
        let imported = import_texts(System::Squid, &[("squid.conf", &text)]);
        assert_eq!(imported.divergences, []);
        let request = [(format!("http://{host}/"), Map::new())];
        let differing = compare_verdicts(&imported, request, |_, _| !fits);
        assert_eq!(differing, 0, "{value} {host}");
    }
}

/// squid compares the text as it is, so that these values fit no host.
#[test]
fn values_that_no_host_has_are_dead() {
    let text = "\
acl a dstdomain *.evil.com http://bad.com/ good.net/ .fine.test \"more.txt\"
http_access deny a
http_access allow all
";
    let more = "*.worse.com\n.other.test\n";
    let imported = import_texts(System::Squid, &[("squid.conf", text), ("more.txt", more)]);
    assert_eq!(imported.divergences, []);
    for (value, meant) in [
        ("*.evil.com", ".evil.com"),
        ("http://bad.com/", ".bad.com"),
        ("good.net/", ".good.net"),
        ("*.worse.com", ".worse.com"),
    ] {
        let why = format!("no host has this name; did you mean `{meant}`?");
        let mut dead = imported.report.list(ReportList::Dead);
        let part = dead.find(|part| part.text == value).unwrap();
        assert_eq!(part.outcome(), Some(&PartOutcome::Dead { why }));
    }
    assert_eq!(imported.report.list(ReportList::Dead).count(), 4);
    assert!(imported.report.is_complete());
}

#[test]
fn the_default_is_the_opposite_of_the_last_line() {
    for (lines, allows) in [
        ("", false),
        ("acl a dstdomain a.test\nhttp_access deny a\n", true),
        ("acl a dstdomain a.test\nhttp_access allow a\n", false),
        ("http_access allow all\n", true),
        ("http_access deny all\n", false),
        (
            "acl a dstdomain a.test\nhttp_access allow a\nhttp_access deny a\n",
            true,
        ),
    ] {
        let text = format!("http_port 3128\n{lines}");
        let imported = import_texts(System::Squid, &[("squid.conf", &text)]);
        assert_eq!(imported.divergences, [], "{lines}");
        let request = [("http://b.test/".to_owned(), Map::new())];
        assert_eq!(
            compare_verdicts(&imported, request, |_, _| allows),
            0,
            "{lines}"
        );
    }
}

/// Addresses are known after the request: lines about them become filters with what came before.
#[test]
fn lines_about_addresses_keep_their_place() {
    let text = "\
acl one dstdomain .one.test
acl two dstdomain .two.test
acl near dst 192.0.2.0/24 198.51.100.1-198.51.100.9
acl far dst 203.0.113.0/24
http_access allow one near
http_access deny far
http_access deny two !near
http_access allow near
http_access allow two
http_access deny all
";
    let imported = import_texts(System::Squid, &[("squid.conf", text)]);
    assert_eq!(imported.divergences, []);
    let mut random = fastrand::Rng::with_seed(3);
    let hosts = [
        "one.test",
        "a.one.test",
        "two.test",
        "b.two.test",
        "three.test",
    ];
    let addresses = [
        "192.0.2.1",
        "198.51.100.1",
        "198.51.100.9",
        "198.51.100.10",
        "203.0.113.5",
        "8.8.8.8",
    ];
    let requests = (0..REQUESTS).map(|_| {
        let host = hosts[random.usize(..hosts.len())];
        let address = addresses[random.usize(..addresses.len())];
        let facts = Map::from_iter([("address".to_owned(), json!(address))]);
        (format!("http://{host}/"), facts)
    });
    let announced = compare_verdicts(&imported, requests.collect::<Vec<_>>(), |url, facts| {
        let address = facts["address"].as_str().unwrap();
        let near = ["192.0.2.1", "198.51.100.1", "198.51.100.9"].contains(&address);
        let far = address == "203.0.113.5";
        let (one, two) = (url.contains("one.test"), url.contains("two.test"));
        if one && near {
            true
        } else if far || (two && !near) {
            false
        } else {
            near || two
        }
    });
    assert_eq!(announced, 0);
}

/// As squid 5.7 answers them: a CONNECT has no scheme, and is neither GET nor HEAD.
#[test]
fn tunnels_have_no_scheme_and_no_other_method() {
    for (acl, line, plain, tunnel) in [
        ("proto HTTPS", "deny x", true, true),
        ("proto HTTPS", "deny !x", false, false),
        ("proto HTTP", "deny x", false, true),
        ("proto HTTP", "deny !x", true, false),
        ("proto HTTP HTTPS", "deny !x", true, false),
        ("method GET HEAD", "deny !x", true, false),
        ("method GET HEAD", "deny x", false, true),
        ("method CONNECT", "deny x", true, false),
        ("method CONNECT", "deny !x", false, true),
        ("dstdomain", "deny x", true, true),
        ("dstdomain", "deny !x", false, false),
    ] {
        let text = format!("acl x {acl}\nhttp_access {line}\nhttp_access allow all\n");
        let imported = import_texts(System::Squid, &[("squid.conf", &text)]);
        assert_eq!(imported.divergences, [], "{text}");
        let policy = compiled(&imported);
        for (url, allows) in [("http://a.test/", plain), ("https://a.test/", tunnel)] {
            let facts = CaseFacts::for_url(url).unwrap();
            let (_, decision) = policy.decide(&facts.facts());
            assert_eq!(!decision.rejects(), allows, "{url}\n{text}");
        }
    }
    let dead = "acl x proto HTTPS\nhttp_access allow CONNECT x\nhttp_access deny CONNECT\nhttp_access allow all\n";
    let imported = import_texts(System::Squid, &[("squid.conf", dead)]);
    assert_eq!(imported.divergences, []);
    let mut dead = imported.report.list(ReportList::Dead);
    assert!(dead.any(|part| part.text == "http_access allow CONNECT x"));
    let file = "acl safe method GET HEAD\nacl a dstdomain .a.test\nhttp_access deny !safe\nhttp_access allow a\nhttp_access deny all\n";
    for text in [file.to_owned(), format!("ssl_bump bump all\n{file}")] {
        let imported = import_texts(System::Squid, &[("squid.conf", &text)]);
        assert_eq!(imported.divergences, [], "{text}");
    }
}

/// With `ssl_bump` squid judges a tunnel, and then each request inside of it.
#[test]
fn intercepted_tunnels_are_judged_twice() {
    let text = "\
acl odd port 8443
acl bad url_regex /bad
acl ours dstdomain .example.com
ssl_bump bump all
http_access allow CONNECT odd
http_access deny CONNECT
http_access deny bad
http_access allow ours
http_access deny all
";
    let imported = import_texts(System::Squid, &[("squid.conf", text)]);
    assert_eq!(imported.divergences, []);
    let urls = ["http", "https"].into_iter().flat_map(|scheme| {
        ["", ":8443", ":443"].into_iter().flat_map(move |port| {
            ["example.com", "example.org"]
                .into_iter()
                .flat_map(move |host| {
                    ["/", "/bad"]
                        .map(move |path| (format!("{scheme}://{host}{port}{path}"), Map::new()))
                })
        })
    });
    let announced = compare_verdicts(&imported, urls.collect::<Vec<_>>(), |url, _| {
        let tunnel = !url.starts_with("https") || url.contains(":8443");
        tunnel && !url.contains("/bad") && url.contains("example.com")
    });
    assert_eq!(announced, 0);
}

#[test]
fn answers_are_judged_by_their_own_lines() {
    let text = "\
acl video rep_mime_type -i ^video/
acl html rep_mime_type text/html;?
acl broken http_status 500-599
http_access allow all
http_reply_access allow broken
http_reply_access deny video
http_reply_access allow html
";
    let imported = import_texts(System::Squid, &[("squid.conf", text)]);
    assert_eq!(imported.divergences, []);
    let video = RegexBuilder::new("^video/")
        .case_insensitive(true)
        .build()
        .unwrap();
    let html = Regex::new("text/html;?").unwrap();
    let types = [
        "video/mp4",
        "VIDEO/x",
        "text/html; charset=utf-8",
        "text/html",
        "image/png",
        "",
    ];
    let requests = types.iter().flat_map(|found| {
        [200, 404, 500, 599, 600].map(|status| {
            let facts = json!({ "status": status, "headers": { "Content-Type": found } });
            (
                "http://a.test/".to_owned(),
                facts.as_object().unwrap().clone(),
            )
        })
    });
    let announced = compare_verdicts(&imported, requests.collect::<Vec<_>>(), |_, facts| {
        let status = facts["status"].as_u64().unwrap();
        let found = facts["headers"]["Content-Type"].as_str().unwrap();
        (500..=599).contains(&status) || (!video.is_match(found) && html.is_match(found))
    });
    assert_eq!(announced, 0);
}

/// The plain form, whose last line allows the rest.
#[test]
fn an_answer_that_no_line_refuses_is_allowed() {
    for end in ["http_reply_access allow all\n", ""] {
        let text = format!(
            "acl m rep_mime_type ^video/\nhttp_access allow all\nhttp_reply_access deny m\n{end}"
        );
        let imported = import_texts(System::Squid, &[("squid.conf", &text)]);
        assert_eq!(imported.divergences, []);
        let requests = ["text/html", "video/mp4", ""].map(|found| {
            let facts = json!({ "status": 200, "headers": { "Content-Type": found } });
            (
                "http://a.test/".to_owned(),
                facts.as_object().unwrap().clone(),
            )
        });
        let announced = compare_verdicts(&imported, requests, |_, facts| {
            facts["headers"]["Content-Type"] != "video/mp4"
        });
        assert_eq!(announced, 0);
    }
}

/// Each thing that is not converted: a line that refuses fails open, one that allows fails closed.
#[test]
fn what_is_not_converted_says_which_way_it_fails() {
    for acl in [
        "acl x time MTWHF 09:00-17:00",
        "acl x browser ^Mozilla",
        "acl x external helper",
        "acl x maxconn 20",
        "acl x src intranet.example.com",
        "acl x dst intranet.example.com",
        "acl x dstdomain \"/etc/passwd\"",
        "acl x dstdomain \"missing.txt\"",
        "acl x url_regex (a|b)*c\\1",
        "acl x method CONNECT GET",
        "acl x req_header User-Agent a",
        "acl x random 0.5",
        "acl x port http",
        "acl x port 9-1",
        "acl y port 80",
        "acl x port 80\nacl x dstdomain a.test",
    ] {
        for (action, failure) in [
            ("deny", MissingPart::LetsThrough),
            ("allow", MissingPart::KeepsOut),
        ] {
            let opposite = if action == "deny" { "allow" } else { "deny" };
            let text = format!("{acl}\nhttp_access {action} x\nhttp_access {opposite} all\n");
            let imported = import_texts(System::Squid, &[("squid.conf", &text)]);
            assert_eq!(imported.divergences, [], "{acl}");
            assert!(!imported.report.is_complete(), "{acl}");
            let line = format!("http_access {action} x");
            let mut parts = imported.report.list(ReportList::NotConverted);
            let part = parts.find(|part| part.text == line).unwrap();
            assert!(
                matches!(part.outcome(), Some(PartOutcome::NotConverted { failure: found, .. }) if *found == failure),
                "{acl}: {part:?}"
            );
            assert!(
                imported.files["policy.yaml"].contains("# not converted: "),
                "{acl}"
            );
            compiled(&imported);
        }
    }
    for line in [
        "ssl_bump terminate all",
        "miss_access deny all",
        "url_rewrite_program /bin/x",
        "if true\nhttp_access deny all\nendif",
        "reply_body_max_size 1 MB x",
        "include ../other.conf",
        "include missing/*.conf",
        "include /etc/squid/*/x.conf",
        "include conf.d/[a-z].conf",
    ] {
        let text = format!("http_access allow all\n{line}\n");
        let imported = import_texts(System::Squid, &[("squid.conf", &text)]);
        assert!(!imported.report.is_complete(), "{line}");
    }
}

/// Files that are opened, in order.
struct Trace<'f> {
    files: &'f MemoryFileSystem,
    opened: std::sync::Mutex<Vec<String>>,
}

impl FileSystem for Trace<'_> {
    fn read(&self, path: &str) -> Result<Vec<u8>, crawlgate_policy::FileError> {
        self.opened.lock().unwrap().push(path.to_owned());
        self.files.read(path)
    }

    fn list(&self, path: &str) -> Result<Vec<String>, crawlgate_policy::FileError> {
        self.files.list(path)
    }
}

#[test]
fn no_file_outside_of_the_directory_is_opened_and_no_secret_is_written() {
    let text = "\
acl a dstdomain \"/etc/passwd\" \"../up.txt\" \"/etc/squid/sub/list.txt\"
include /etc/shadow
include squid.conf
cachemgr_passwd hunter2 all
cache_peer p.test parent 3128 0 login=user:hunter2
http_access deny a
";
    let files = MemoryFileSystem::new().with_file("squid.conf", text.as_bytes());
    let trace = Trace {
        files: &files,
        opened: Default::default(),
    };
    let imported = import(System::Squid, &ImportInput::new(&trace, ["squid.conf"])).unwrap();
    for path in trace.opened.lock().unwrap().iter() {
        assert!(!path.starts_with('/') && !path.contains(".."), "{path}");
    }
    let report = imported.report.to_json().to_string();
    let written = imported.files.values().chain([&imported.settings, &report]);
    for text in written {
        assert!(!text.contains("hunter2"), "{text}");
    }
}

/// As Debian's file does it. Files are read in the order of their names.
#[test]
fn a_pattern_includes_the_files_that_it_fits() {
    let imported = import_texts(
        System::Squid,
        &[
            (
                "squid.conf",
                "include /etc/squid/conf.d/*a?.conf\nhttp_access deny all\n",
            ),
            ("conf.d/2ab.conf", "http_access deny ours\n"),
            (
                "conf.d/1aaa.conf",
                "acl ours dstdomain .a.test\nhttp_access allow ours\n",
            ),
            ("conf.d/3b.conf", "http_access allow all\n"),
            ("conf.d/.ab.conf", "http_access allow all\n"),
            ("conf.d/deeper/ab.conf", "http_access allow all\n"),
            ("conf.d/ab.conf.old", "http_access allow all\n"),
        ],
    );
    let files: Vec<String> = imported
        .report
        .parts()
        .iter()
        .map(|part| part.place.file.to_string())
        .collect();
    let expected = [
        "squid.conf",
        "conf.d/1aaa.conf",
        "conf.d/1aaa.conf",
        "conf.d/2ab.conf",
        "squid.conf",
    ];
    assert_eq!(files, expected);
}

/// Every line that is no comment is one part.
#[test]
fn each_line_is_in_one_list() {
    let list = "# names\n.a.test\n\n.b.test # b\n";
    let text =
        format!("{CONFIGURATION}acl more dstdomain \"more.txt\"\nhttp_access deny \\\n  more\n");
    let imported = import_texts(System::Squid, &[("squid.conf", &text), ("more.txt", list)]);
    let lines = CONFIGURATION
        .lines()
        .filter(|line| !line.trim().is_empty())
        .count();
    let parts: usize = ReportList::ALL
        .iter()
        .map(|found| imported.report.list(*found).count())
        .sum();
    assert_eq!(parts, lines + 2 + 2);
    assert_eq!(parts, imported.report.parts().len());
}

/// squid sees no response of https in a tunnel that it does not intercept.
#[test]
fn replies_of_https_are_announced_without_interception() {
    let conf = "acl img rep_mime_type ^image/\nhttp_access allow all\nhttp_reply_access deny img\nhttp_reply_access allow all\n";
    let only =
        "acl page rep_mime_type ^text/html\nhttp_access allow all\nhttp_reply_access allow page\n";
    for (conf, rule) in [(conf, "deny-img"), (only, "reply-default")] {
        let imported = import_texts(System::Squid, &[("squid.conf", conf)]);
        assert_eq!(imported.divergences, []);
        assert!(
            imported.report.assumption_of(rule).is_some(),
            "{}",
            imported.report.to_text()
        );
        let facts = serde_json::json!({ "content_type": "image/png" });
        let facts = facts.as_object().unwrap();
        let divergence = imported.compare("https://a.test/", facts).unwrap().unwrap();
        assert_eq!(divergence.source, SourceVerdict::Allow);
        assert!(divergence.assumption.is_some());
        assert_eq!(imported.compare("http://a.test/", facts).unwrap(), None);
        let bumped = format!("ssl_bump bump all\n{conf}");
        let imported = import_texts(System::Squid, &[("squid.conf", &bumped)]);
        assert_eq!(imported.compare("https://a.test/", facts).unwrap(), None);
        assert!(imported.report.assumption_of(rule).is_none());
    }
}
