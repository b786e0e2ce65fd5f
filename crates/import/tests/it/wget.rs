//! wget: the policy against the checks of `download_child`, written plainly, and its traps.

use crawlgate_import::{ImportInput, ReportList, System, import};
use crawlgate_policy::MemoryFileSystem;
use serde_json::Map;

use super::support::{REQUESTS, compare_verdicts, import_texts, regex_fits};

const COMMAND: &str = "wget -rnp -l inf -H -D example.com,.cdn.test --exclude-domains shop.example.com \
    -I /a,/b/c -X '/a/x,/*/private' --accept-regex '^https?://[a-z.]+/' --reject-regex 'sort=' -A jpg,'p[0-9]*.gif',html \
    -R thumb.jpg http://www.example.com/a/start.html\n";

fn wget_fetches(url: &str) -> bool {
    if url == "http://www.example.com/a/start.html" {
        return true;
    }
    let rest = url.split_once("://").unwrap().1;
    let (host, path) = rest.split_at(rest.find('/').unwrap());
    let path = path.split('?').next().unwrap();
    let (directory, file) = path.rsplit_once('/').unwrap();
    let below = |parent: &str| directory == parent || directory.starts_with(&format!("{parent}/"));
    let on = |domain: &str| host == domain || host.ends_with(&format!(".{domain}"));
    let segments: Vec<&str> = directory.split('/').collect();
    let parent = host != "www.example.com" || below("/a");
    let domains = (on("example.com") || host.ends_with(".cdn.test")) && !on("shop.example.com");
    let directories = (below("/a") || below("/b/c")) && !below("/a/x");
    let is_private = segments.len() == 3 && segments[2] == "private";
    let expressions = regex_fits("^https?://[a-z.]+/", url) && !url.contains("sort=");
    let extension = file
        .rsplit_once('.')
        .map_or("", |(_, extension)| extension)
        .to_lowercase();
    let is_page = ["htm", "html", "shtml", "xhtml"].contains(&extension.as_str());
    let accepted =
        file.ends_with("jpg") || regex_fits(r"^p[0-9].*\.gif$", file) || file.ends_with("html");
    let name = file.is_empty() || is_page || (accepted && !file.ends_with("thumb.jpg"));
    parent && domains && directories && !is_private && expressions && name
}

#[test]
fn links_pass_every_check() {
    let imported = import_texts(System::Wget, &[("fetch.sh", COMMAND)]);
    assert_eq!(imported.divergences, []);
    let mut random = fastrand::Rng::with_seed(1);
    let hosts = [
        "www.example.com",
        "example.com",
        "a.example.com",
        "shop.example.com",
        "cdn.test",
        "x.cdn.test",
        "xcdn.test",
        "h9.example.com",
    ];
    let directories = [
        "/",
        "/a/",
        "/a/y/",
        "/a/x/",
        "/a/xy/",
        "/b/",
        "/b/c/",
        "/b/c/d/",
        "/a/private/",
        "/a/private/z/",
        "/ab/",
    ];
    let files = [
        "",
        "start.html",
        "i.jpg",
        "i.JPG",
        "thumb.jpg",
        "p1.gif",
        "p1x.gif",
        "px.gif",
        "i.HTM",
        "i.shtml",
        "i.php",
        "xjpg",
    ];
    let queries = ["", "", "?a=1", "?sort=1"];
    let urls = (0..REQUESTS).map(|_| {
        let url = format!(
            "{}://{}{}{}{}",
            ["http", "https"][random.usize(..2)],
            hosts[random.usize(..hosts.len())],
            directories[random.usize(..directories.len())],
            files[random.usize(..files.len())],
            queries[random.usize(..queries.len())],
        );
        (url, Map::new())
    });
    let announced = compare_verdicts(&imported, urls.collect::<Vec<_>>(), |url, _| {
        wget_fetches(url)
    });
    assert_eq!(announced, 0);
}

/// Without `-H` wget stays on the host; without `-r` it fetches the page alone.
#[test]
fn hosts_and_depth_are_those_of_the_command() {
    for (options, url, allowed) in [
        ("", "http://a.test/", true),
        ("", "http://a.test/x", false),
        ("-r", "http://a.test/x", true),
        ("-r", "https://a.test/x", true),
        ("-r", "http://b.a.test/x", false),
        ("-r -H", "http://b.test/x", true),
        ("-r -R jpg", "http://a.test/x.jpg", false),
        ("-r -R jpg", "http://a.test/x.jpg?y", false),
        ("-r -R html", "http://a.test/x.html", true),
        ("-r -I x", "http://a.test/x/y", true),
        ("-r -I x", "http://a.test/xy/y", false),
        ("-r -A '*.a?c'", "http://a.test/d/x.abc", true),
        ("-r -A '*.a?c'", "http://a.test/d/x.abcd", false),
        ("-r -A '*.[!0-9]'", "http://a.test/d/x.1", false),
        ("-r --tries 3 --exclude-dir=x", "http://a.test/x/y", false),
        ("-r -A JPG --ignore-case", "http://a.test/x.jpg", true),
        // In a pattern a backslash makes the next character literal; the query is no part of the name.
        (r#"-r -R "*\?*""#, "http://a.test/x?y=1", true),
        (r#"-r -R "*\?*""#, "http://a.test/x", true),
        (r"-r -R '*\.j?g'", "http://a.test/x.jpg", false),
        (r"-r -R '*\.j?g'", r"http://a.test/x_jpg", true),
        (r"-r -A '[[:digit:]]*'", "http://a.test/7x.abc", true),
        (r"-r -A '[[:digit:]]*'", "http://a.test/x7.abc", false),
        (r"-r -A '*[]x]'", "http://a.test/abx", true),
        // Between double quotes a backslash stays, and so does a `$` that names nothing.
        (
            r#"-r --accept-regex "\.html$""#,
            "http://a.test/xhtml",
            false,
        ),
        (
            r#"-r --accept-regex "\.html$""#,
            "http://a.test/x.html",
            true,
        ),
        (
            r#"-r --reject-regex "\.(gif|jpg)$""#,
            "http://a.test/x.jpg",
            false,
        ),
        (
            r#"-r --reject-regex "\.(gif|jpg)$""#,
            "http://a.test/x.jpg/y",
            true,
        ),
    ] {
        let text = format!("wget {options} http://a.test/\n");
        let imported = import_texts(System::Wget, &[("fetch.sh", &text)]);
        assert_eq!(imported.divergences, [], "{options}");
        let request = [(url.to_owned(), Map::new())];
        let announced = compare_verdicts(&imported, request, |_, _| allowed);
        assert_eq!(announced, 0, "{options} {url}");
    }
    let text = "wget -r http://a.test/\n";
    let imported = import_texts(System::Wget, &[("fetch.sh", text)]);
    assert!(imported.files["policy.yaml"].contains("max_depth: 5"));
}

#[test]
fn what_is_not_converted_is_reported_and_secrets_are_not_written() {
    for options in [
        "-Q 5m",
        "-L",
        "-p",
        "--accept-regex '(a|b)*c\\1'",
        "--reject-regex '(a|b)*c\\1'",
        "$URL",
        "-D \"$DOMAINS\"",
        "--exclude-directories=$DIRECTORIES",
        "-A{gif,jpg}",
        "-l ${DEPTH}",
        "-e robots=$ROBOTS",
        "--follow-tags=a",
        "-i /etc/passwd",
        "-i missing.txt",
        "-w soon",
        "--config=x",
        "--unheard-of",
    ] {
        let text = format!("wget -r {options} http://a.test/\n");
        let imported = import_texts(System::Wget, &[("fetch.sh", &text)]);
        assert_eq!(imported.divergences, [], "{options}");
        assert!(!imported.report.is_complete(), "{options}");
    }
    let text = "wget -r --password hunter2 --header='Cookie: hunter2' -e http_password=hunter2 http://u:hunter2@a.test/\n";
    let imported = import_texts(System::Wget, &[("fetch.sh", text)]);
    let report = imported.report.to_json().to_string();
    for text in imported.files.values().chain([&report]) {
        assert!(!text.contains("hunter2"), "{text}");
    }
    for text in [
        "wget 'a",
        "wget -",
        "wget --",
        "wget -A",
        "wget -e",
        "=",
        "wget -n",
        "wget \\",
        "wget -l -l",
    ] {
        let files = MemoryFileSystem::new().with_file("a", text.as_bytes());
        let _ = import(System::Wget, &ImportInput::new(&files, ["a"]));
    }
}

/// Each option and each URL is one part.
#[test]
fn each_option_is_in_one_list() {
    let imported = import_texts(System::Wget, &[("fetch.sh", COMMAND)]);
    let lists = ReportList::ALL.iter();
    let listed: usize = lists.map(|list| imported.report.list(*list).count()).sum();
    assert_eq!(listed, 2 + 1 + 1 + 2 + 2 + 2 + 2 + 1);
}

/// Counts the parts of a script in a list.
fn count(imported: &crawlgate_import::Import, list: ReportList) -> usize {
    imported.report.list(list).count()
}

#[test]
fn a_further_command_is_not_converted() {
    let text = "wget -q http://a.test/x\nwget -r http://b.test/ > log 2>&1 && echo done\n";
    let imported = import_texts(System::Wget, &[("fetch.sh", text)]);
    let missing: Vec<_> = imported.report.list(ReportList::NotConverted).collect();
    assert_eq!(missing.len(), 1);
    assert_eq!(missing[0].place.line, 2);
    assert_eq!(count(&imported, ReportList::Unrelated), 2);
}

/// The command is found after other commands, prefixes and assignments, with its path.
#[test]
fn wget_is_found_in_a_script() {
    for command in [
        "/usr/bin/wget",
        "sudo wget",
        "sudo -u www /usr/bin/wget",
        "nice -n 10 wget",
        "timeout 60 wget",
        "LANG=C wget",
        "env LANG=C nohup wget",
        "for i in 1 2; do wget",
        "if ! wget",
        "(wget",
        "cat <<EOF\nit's here\nEOF\nwget",
    ] {
        let text = format!("#!/bin/sh\nset -e\nURL=x\ncd /data\n{command} -r http://a.test/\n");
        let imported = import_texts(System::Wget, &[("fetch.sh", &text)]);
        assert!(imported.report.is_complete(), "{command}");
        let request = [("http://a.test/x".to_owned(), Map::new())];
        assert_eq!(compare_verdicts(&imported, request, |_, _| true), 0);
    }
    for text in [
        "curl http://a.test/ | xargs wget -r\n",
        "echo start\nX=$(wget -q -O - http://a.test/)\n",
        "set -e\ncurl http://a.test/\n",
        "recursive = on\nrecursiv = on\n",
    ] {
        let imported = import_texts(System::Wget, &[("fetch.sh", text)]);
        assert!(!imported.report.is_complete(), "{text}");
    }
}

/// Where a value goes tells which way a policy without it fails.
#[test]
fn computed_values_fail_by_their_option() {
    for (option, fails) in [
        ("-D $X", "lets_through"),
        ("-i $X", "keeps_out"),
        ("-w $X", "other"),
    ] {
        let text = format!("wget -r -H -P \"$HOME/x\" {option} http://a.test/\n");
        let imported = import_texts(System::Wget, &[("fetch.sh", &text)]);
        let report = imported.report.to_json();
        let missing = report["lists"]["not_converted"].as_array().unwrap();
        assert_eq!(missing.len(), 1, "{option}");
        assert_eq!(missing[0]["fails"], fails, "{option}");
        assert!(!imported.files["policy.yaml"].contains("domain: X"));
    }
}

/// A start page that the links include needs no rule, and no remark.
#[test]
fn a_start_that_the_links_include_is_not_written() {
    let imported = import_texts(System::Wget, &[("fetch.sh", "wget -r http://a.test/\n")]);
    let policy = &imported.files["policy.yaml"];
    assert!(!policy.contains("start"), "{policy}");
    assert_eq!(count(&imported, ReportList::Dead), 0);
    assert_eq!(count(&imported, ReportList::Converted), 2);
}

#[test]
fn the_command_inside_of_a_shell_is_read() {
    let plain = "wget -r -X /private 'http://a.test/x'\n";
    let expected = import_texts(System::Wget, &[("fetch.sh", plain)]);
    for script in [
        "sh -c \"wget -r -X /private 'http://a.test/x'\"\n",
        "bash -lc 'cd /tmp && wget -r -X /private http://a.test/x'\n",
        "sudo -u www bash -l -c 'wget -r -X /private http://a.test/x'\n",
        "sh -c 'sh -c \"wget -r -X /private http://a.test/x\"'\n",
    ] {
        let files = MemoryFileSystem::new().with_file("fetch.sh", script.as_bytes());
        let input = ImportInput::new(&files, ["fetch.sh"]);
        assert_eq!(
            System::recognize(&input).unwrap(),
            [System::Wget],
            "{script}"
        );
        let imported = import_texts(System::Wget, &[("fetch.sh", script)]);
        assert!(
            imported.report.is_complete(),
            "{script}: {}",
            imported.report.to_text()
        );
        assert_eq!(imported.files, expected.files, "{script}");
    }
    for script in [
        "sh -c \"wget -r $URL\"\nwget http://a.test/\n",
        "bash --norc 'wget -r http://b.test/'\nwget http://a.test/\n",
        "bash -o pipefail -c 'wget -r http://b.test/'\nwget http://a.test/\n",
    ] {
        let imported = import_texts(System::Wget, &[("fetch.sh", script)]);
        let mut parts = imported.report.list(ReportList::NotConverted);
        assert!(
            parts.next().is_some(),
            "{script}: {}",
            imported.report.to_text()
        );
    }
}
