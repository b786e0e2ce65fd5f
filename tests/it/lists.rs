//! Lists from files: every kind, plain and compressed (docs/policy/reference.md, "Lists").

use std::io::Write as _;

use crawlgate::policy::cases::CaseFacts;
use crawlgate::policy::compile::load;
use crawlgate::policy::source::MemoryFileSystem;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

/// The kind, a condition, the file, URLs that are in the list, and URLs that are not.
type ListRow = (
    &'static str,
    &'static str,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

/// The kinds of lists.
const KINDS: &[ListRow] = &[
    (
        "domains",
        "{ in: l }",
        "# ours\nExample.com.\n\n  bücher.example # shop\n",
        &[
            "http://example.com/",
            "http://a.example.com/",
            "http://www.xn--bcher-kva.example/",
        ],
        &[
            "http://notexample.com/",
            "http://com/",
            "http://example.com.evil/",
        ],
    ),
    (
        "hosts",
        "{ in: l }",
        "example.com\n",
        &["http://example.com/x"],
        &["http://a.example.com/"],
    ),
    (
        "urls",
        "{ in: l }",
        "http://h\nhttp://h/a b\n",
        &["http://h/", "http://h/a%20b"],
        &["http://h/a", "http://h/?x"],
    ),
    (
        "url_prefixes",
        "{ in: l }",
        "http://h/a/\nhttp://h/a/b/\nhttps://H:443/\n",
        &["http://h/a/", "http://h/a/b/c", "https://h/x"],
        &["http://h/a", "http://h/"],
    ),
    (
        "surts",
        "{ in: l }",
        "com,example,\nhttp://(org,example,)/a\n",
        &["http://www.example.com/", "http://example.org/ab"],
        &["http://example.org/", "http://examples.com/"],
    ),
    (
        "surts",
        "{ in: l }",
        "\u{feff}# a file of Heritrix\n+uk # a whole domain\n+http://(com,example,\n+www.example.org\n\
         http://www.example.edu/path1/\nhttps://www.example.net/a/page.html\n+http://(192.0.2.7)/\nbücher.example\n",
        &[
            "http://www.example.co.uk/x",
            "https://a.example.com:8080/",
            "http://www.example.org/",
            "http://a.www.example.org/",
            "https://www.example.edu/path1/a",
            "http://www.example.net/a/other.html",
            "http://192.0.2.7/x",
            "http://a.xn--bcher-kva.example/",
        ],
        &[
            "http://ukx.example/",
            "http://www.example.ukx/",
            "http://example.org/",
            "http://www.example.edu/path1",
            "http://a.www.example.edu/path1/",
            "http://www.example.net/b",
            "http://7.2.0.192/",
        ],
    ),
    (
        "substrings",
        "{ in: l }",
        "?sid= # sessions\n/a b\n/Login\n",
        &["http://h/x?sid=1", "http://h/a%20b", "http://h/Login"],
        &["http://h/sid=", "http://h/ab", "http://h/login"],
    ),
    (
        "substrings",
        "{ path: { in: l, case: ignore } }",
        "/Login\né\n",
        &["http://h/a/login", "http://h/%c3%a9"],
        &["http://h/?/login", "http://h/e"],
    ),
    (
        "globs",
        "{ in: l }",
        "http://*/calendar/*\n*.zip\n",
        &["http://h/calendar/x", "http://h/a.zip"],
        &["http://h/calendar", "http://h/a.zip?x"],
    ),
    (
        "globs",
        "{ host: { in: l } }",
        "*.EXAMPLE.com\n",
        &["http://a.example.com/"],
        &["http://example.com/"],
    ),
    (
        "regexes",
        "{ in: l }",
        "# of ArchiveBot\n^https?://[^/]+/.*[?&]replytocom=\\d+\n(?i)/wp-admin\n/<b>\n",
        &[
            "http://h/a?x&replytocom=1",
            "http://h/WP-admin",
            "http://h/%3Cb%3e",
        ],
        &["http://h/replytocom=", "http://h/wpadmin"],
    ),
    (
        "regexes",
        "{ path: { in: l } }",
        "^/private/\n",
        &["http://h/private/x"],
        &["http://h/a/private/x"],
    ),
    (
        "values",
        "{ path: { in: l } }",
        "/a\n/b#c\n",
        &["http://h/a"],
        &["http://h/a/", "http://h/b"],
    ),
    (
        "values",
        "{ host: { in: l } }",
        "H.Example\n",
        &["http://h.example/"],
        &["http://example/"],
    ),
    (
        "values",
        "{ port: { in: l } }",
        "8080\n",
        &["http://h:8080/"],
        &["http://h/"],
    ),
];

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn every_kind_is_read_from_plain_and_compressed_files() {
    for (kind, condition, list, inside, outside) in KINDS {
        for bytes in [list.as_bytes().to_vec(), gzip(list)] {
            let text = format!(
                "policy: 1\nname: l\noptions: {{ disposition: allow }}\n\
                 lists: {{ l: {{ kind: {kind}, file: lists/l }} }}\nrules: [{{ id: r, forbid: {condition} }}]\n"
            );
            let files = MemoryFileSystem::new()
                .with_file("p/p.yaml", text)
                .with_file("p/lists/l", bytes);
            let compiled = load(&files, "p/p.yaml").unwrap();
            let refuses = |url: &str| {
                let facts = CaseFacts::for_url(url).unwrap();
                compiled.policy.decide(&facts.facts()).1.rejects()
            };
            inside
                .iter()
                .for_each(|url| assert!(refuses(url), "{kind}: {url}"));
            outside
                .iter()
                .for_each(|url| assert!(!refuses(url), "{kind}: {url}"));
        }
    }
}

#[test]
fn addresses_are_read_from_files_too() {
    let text = "policy: 1\nname: l\noptions: { disposition: allow }\n\
                lists: { l: { kind: addresses, file: l } }\nrules: [{ id: r, forbid: { in: l } }]\n";
    let list = gzip("10.0.0.0/8\n2001:db8::/32 # documentation\n192.0.2.1\n");
    let files = MemoryFileSystem::new()
        .with_file("p.yaml", text)
        .with_file("l", list);
    let policy = load(&files, "p.yaml").unwrap().policy;
    for (address, expected) in [
        ("10.1.2.3", true),
        ("2001:db8::1", true),
        ("192.0.2.1", true),
        ("192.0.2.2", false),
        ("11.0.0.1", false),
    ] {
        let facts = json!({ "url": "http://h/", "address": address });
        let facts = CaseFacts::from_json(facts.as_object().unwrap()).unwrap();
        assert_eq!(
            facts.with_facts(|facts| policy.decide(facts).1.rejects()),
            expected,
            "{address}"
        );
    }
}

/// The location of a wrong item refers to the decompressed text.
#[test]
fn wrong_items_have_their_lines() {
    let text = "policy: 1\nname: l\noptions: { disposition: allow }\n\
                lists: { l: { kind: hosts, file: l.gz } }\nrules: [{ id: r, forbid: { in: l } }]\n";
    let files = MemoryFileSystem::new()
        .with_file("p.yaml", text)
        .with_file("l.gz", gzip("a.example\n\n  http://b/ # x\n"));
    let problems = load(&files, "p.yaml").unwrap_err();
    assert_eq!(problems.len(), 1);
    let expected = "l.gz:3:3: error: a URL, not a host; found `http://b/`\n  |\n3 |   http://b/ # x\n  |   ^^^^^^^^^\n";
    assert!(
        problems[0].render().starts_with(expected),
        "{}",
        problems[0].render()
    );
}

#[test]
fn a_wrong_expression_in_a_list_has_its_line_and_column() {
    let text = "policy: 1\nname: l\noptions: { disposition: allow }\n\
                lists: { l: { kind: regexes, file: l } }\nrules: [{ id: r, forbid: { in: l } }]\n";
    let files = MemoryFileSystem::new()
        .with_file("p.yaml", text)
        .with_file("l", "abc\n\n  x(?=y) # look-ahead\n");
    let problems = load(&files, "p.yaml").unwrap_err();
    assert_eq!(problems.len(), 1);
    let text = problems[0].render();
    assert!(
        text.starts_with("l:3:4: error: look-around is not supported"),
        "{text}"
    );
}

/// Items that match nothing are warnings, of which a list has one for each reason.
#[test]
fn items_that_match_nothing_are_reported_once_a_list() {
    for (kind, condition, list, expected) in [
        (
            "url_prefixes",
            "{ in: l }",
            "http://h/a/\nhttp://*.x/\n\nhttp://h/a/*\nwww.h/\nhttp://h\nhttps://i\n",
            &[
                "l:2:1: warning: matches nothing: `*` is not a wildcard here; the list is compared with `url`; found `http://*.x/`",
                "l:4:1: warning: `*` is not a wildcard here: only URLs that contain the character match; the list is compared with `url`; found `http://h/a/*`",
                "l:5:1: warning: matches nothing: a URL begins with `http://` or `https://`; the list is compared with `url`; found `www.h/`",
                "l:6:1: warning: a prefix that ends in a host also matches longer hosts (and 1 more item of this list); the list is compared with `url`; found `http://h`",
            ][..],
        ),
        (
            "regexes",
            "{ in: l }",
            "^https?://a\n^/private/\n/x\n^(www\\.|ftp://)\n^H\n(?i)^HTTP:\n\\bx\\b\na$b\n",
            &[
                "l:2:1: warning: matches nothing: a URL begins with `http://` or `https://` (and 2 more items of this list); the list is compared with `url`; found `^/private/`",
                "l:8:1: warning: matches nothing: `$` is the end of the text, and nothing can follow it; the list is compared with `url`; found `a$b`",
            ],
        ),
        ("regexes", "{ path: { in: l } }", "^/private/\n", &[]),
        (
            "regexes",
            "{ path: { in: l } }",
            "^private/\n",
            &[
                "l:1:1: warning: matches nothing: a path begins with `/`; the list is compared with `path`; found `^private/`",
            ],
        ),
        (
            "globs",
            "{ in: l }",
            "*/a\nhttp://*\n/b*\n",
            &[
                "l:3:1: warning: matches nothing: a URL begins with `http://` or `https://`; the list is compared with `url`; found `/b*`",
            ],
        ),
        (
            "substrings",
            "{ in: l }",
            "/a/../b\n/ok/\n",
            &[
                "l:1:1: warning: matches nothing: segments `.` and `..` are resolved before a URL is matched; the list is compared with `url`; found `/a/../b`",
            ],
        ),
        (
            "values",
            "{ path: { in: l } }",
            "/a\na b\nb\n/c d\n/%64\n",
            &[
                "l:2:1: warning: matches nothing: a path begins with `/` (and 1 more item of this list); the list is compared with `path`; found `a b`",
                "l:4:1: warning: matches nothing: no URL in canonical form passes it; the list is compared with `path`; found `/c d`",
            ],
        ),
        ("values", "{ title: { in: l } }", "a b\n", &[]),
    ] {
        let text = format!(
            "policy: 1\nname: l\noptions: {{ disposition: allow }}\n\
             lists: {{ l: {{ kind: {kind}, file: l }} }}\nrules: [{{ id: r, forbid: {condition} }}]\n"
        );
        let files = MemoryFileSystem::new()
            .with_file("p.yaml", text)
            .with_file("l", list);
        let compiled = load(&files, "p.yaml").unwrap();
        assert!(compiled.inert_rules.is_empty(), "{kind}");
        let found: Vec<String> = compiled.problems.iter().map(|p| p.render()).collect();
        let lines: Vec<&str> = found
            .iter()
            .filter_map(|text| text.lines().next())
            .collect();
        assert_eq!(lines, expected, "{kind}");
    }
}

/// The rest of a list with very many such items is not checked.
#[test]
fn very_many_items_that_match_nothing_are_not_counted() {
    let text = "policy: 1\nname: l\noptions: { disposition: allow }\n\
                lists: { l: { kind: values, file: l } }\nrules: [{ id: r, forbid: { path: { in: l } } }]\n";
    let list: String = (0..1_100).map(|n| format!("a{n}\n")).collect();
    let files = MemoryFileSystem::new()
        .with_file("p.yaml", text)
        .with_file("l", list);
    let problems = load(&files, "p.yaml").unwrap().problems;
    assert_eq!(problems.len(), 1);
    let expected = "matches nothing: a path begins with `/` (and at least 999 more items of this list); the list is compared with `path`";
    assert_eq!(problems[0].message, expected);
}

#[test]
fn a_policy_cannot_be_compressed() {
    let files = MemoryFileSystem::new().with_file("p.yaml", gzip("policy: 1\n"));
    let problems = load(&files, "p.yaml").unwrap_err();
    assert!(
        problems[0].message.contains("only list files may be"),
        "{}",
        problems[0]
    );
}
