//! `crawlers`, `anonymous` and `listen` in the configuration: one error per row, with its message.

use std::sync::Arc;

use crawlgate::config::BasePaths;
use crawlgate::config::file::ConfigFile;
use crawlgate::diagnostics::problems::Problems;
use crawlgate::pipeline::crawlers::password::{HashMemory, PasswordMatch};

const HASH: &str = "$2y$04$iofWQRpaN9T3zoFsvjEFYuOGiDpeCKe/4aVcx2pycp1KHIM/cNHHO";

fn read(text: &str) -> (ConfigFile, Problems) {
    let mut problems = Problems::new();
    let base = BasePaths::default();
    fn variables(name: &str) -> Option<String> {
        (name == "HASH").then(|| HASH.to_owned())
    }
    let config = ConfigFile::parse(&Arc::from("c.yaml"), text, &base, &variables, &mut problems);
    (config, problems)
}

fn output(text: &str) -> String {
    let problems = read(text).1.into_vec();
    problems
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
}

/// A text with one error, or two related ones, and the message; `HASH` is replaced by a hash.
const MISTAKES: [(&str, &str); 19] = [
    (
        "crawlers: news",
        "c.yaml:1:11: error: `crawlers` must be a list (`[a, b]`); found `news`",
    ),
    (
        "crawlers: [news]",
        "c.yaml:1:12: error: a crawler must be a mapping (`key: value`); found `news`",
    ),
    (
        "crawlers: [{ sources: [10.0.0.1] }]",
        "c.yaml:1:12: error: `name` is missing",
    ),
    (
        "crawlers: [{ name: News Bot, sources: [10.0.0.1] }]",
        "c.yaml:1:20: error: a name consists of at most 64 lower-case letters, digits and hyphens; found `News Bot`; \
             did you mean `news-bot`?",
    ),
    (
        "crawlers: [{ name: anonymous, sources: [10.0.0.1] }]",
        "c.yaml:1:20: error: this name is reserved for clients that match no crawler; found `anonymous`",
    ),
    (
        "crawlers: [{ name: a, sources: [10.0.0.1] }, { name: a, sources: [10.0.0.2] }]",
        "c.yaml:1:54: error: another crawler has this name; found `a`",
    ),
    (
        "crawlers: [{ name: a, soures: [10.0.0.1] }]",
        "c.yaml:1:12: warning: nothing identifies the clients of a; give it `auth`, `sources`, or a listener of its \
             own (`listen: [{addr, crawler}]`)\n\
             c.yaml:1:23: error: unknown key; found `soures`; allowed: name, auth, sources, profile, robots_agent, identity, may; \
             did you mean `sources`?",
    ),
    (
        "crawlers: [{ name: a, sources: [10.0.0.0/33] }]",
        "c.yaml:1:12: warning: nothing identifies the clients of a; give it `auth`, `sources`, or a listener of its \
             own (`listen: [{addr, crawler}]`)\n\
             c.yaml:1:33: error: write a network, such as 10.1.0.0/16, or an address; found `10.0.0.0/33`",
    ),
    (
        "crawlers: [{ name: a, sources: [10.0.0.0/8] }, { name: b, sources: [10.1.2.3/8] }]",
        "c.yaml:1:69: error: the network occurs twice in `sources`; found `10.1.2.3/8`",
    ),
    (
        "crawlers: [{ name: a, sources: ['::ffff:10.0.0.0/104', 10.0.0.0/8] }]",
        "c.yaml:1:33: error: an IPv4 network in IPv6 form: write the IPv4 network; found `::ffff:10.0.0.0/104`",
    ),
    (
        "crawlers: [{ name: a, sources: [10.0.0.1], profile: scapy }]",
        "c.yaml:1:53: error: not an allowed value; found `scapy`; allowed: generic, \
             strict-http, scrapy, crawlee, browsertrix, warcprox, heritrix, nutch, stormcrawler, norconex, cloudview, httpx, newspaper, lychee; \
             did you mean `scrapy`?",
    ),
    (
        "crawlers: [{ name: a, sources: [10.0.0.1], robots_agent: Foo/1 }]",
        "c.yaml:1:58: error: a product token consists of letters, digits, - and _, as in robots.txt; found `Foo/1`",
    ),
    (
        "crawlers: [{ name: a, sources: [10.0.0.1], may: [deph] }]",
        "c.yaml:1:50: error: not an allowed value; found `deph`; allowed: priority, wait, \
             depth, trace, recrawl, warcprox; did you mean `depth`?",
    ),
    (
        "anonymous: maybe",
        "c.yaml:1:12: error: not an allowed value; found `maybe`; allowed: allow, deny",
    ),
    (
        "anonymous: deny",
        "c.yaml:1:12: warning: every client is refused: there are no `crawlers`",
    ),
    (
        "crawlers: [{ name: news, sources: [10.0.0.1] }]\nlisten: [{ addr: 127.0.0.1:1, crawler: new }]",
        "c.yaml:2:40: error: no crawler has this name; found `new`; allowed: news; did you mean `news`?",
    ),
    (
        "crawlers: [{ name: a, auth: { user: a } }]",
        "c.yaml:1:29: error: `password_hash` is missing; `crawlgate password` makes one",
    ),
    (
        "crawlers:\n- { name: a, auth: { user: 'a:b', password_hash: 'HASH' } }",
        "c.yaml:2:28: error: a user has at least one character, and no colon or control character; found `a:b`",
    ),
    (
        "crawlers:\n- { name: a, auth: { user: u, password_hash: 'HASH' } }\n- { name: b, auth: { user: u, password_hash: 'HASH' } }",
        "c.yaml:3:28: error: another crawler has this user; found `u`",
    ),
];

#[test]
fn mistakes() {
    for (text, expected) in MISTAKES {
        assert_eq!(output(&text.replace("HASH", HASH)), expected, "{text}");
    }
}

/// The line of an error is shown with its message, but without passwords.
#[test]
fn no_secret_is_shown() {
    for (auth, message) in [
        ("{ user: u, password_hash: hunter2 }", "not a password hash"),
        (
            "{ user: u, password_hash: \"$argon2id$v=19$hunter2\" }",
            "malformed Argon2",
        ),
        (
            "{ user: u, password_hash: 'hunter2', users: x }",
            "unknown key",
        ),
        (
            "{ user: u, password: hunter2 }",
            "unknown key; found `password`",
        ),
        ("{ user: u, password_hash: [hunter2] }", "needed here"),
        ("{ user: u, password_hash: hunter2, : }", ""),
        ("{ user: u, \"password_hash\": hunter2 ", ""),
        (
            "{ user: u, password_hash: \"hunter2${UNSET}\" }",
            "UNSET is not set",
        ),
    ] {
        let (_, problems) = read(&format!("crawlers:\n- name: a\n  auth: {auth}\n"));
        let shown: Vec<String> = problems.into_vec().iter().map(|p| p.render()).collect();
        let shown = shown.join("\n");
        assert!(shown.contains("error"), "{auth}: {shown}");
        assert!(shown.contains(message), "{auth}: {shown}");
        assert!(!shown.contains("hunter2"), "{auth}: {shown}");
    }
    let (config, _) = read(&format!(
        "crawlers: [{{ name: a, auth: {{ user: u, password_hash: '{HASH}' }} }}]"
    ));
    assert!(!format!("{config:?}").contains("$2y$"));
}

#[test]
fn a_hash_may_be_pasted_or_come_from_a_variable() {
    for hash in [
        HASH.to_owned(),
        "${HASH}".to_owned(),
        HASH.replace('$', "$$"),
    ] {
        let text = format!(
            "crawlers:\n  - {{ name: a, auth: {{ user: u, password_hash: \"{hash}\" }} }}\n"
        );
        assert_eq!(output(&text), "", "{hash}");
        let crawlers = read(&text).0.settings.crawlers;
        assert_eq!(
            crawlers[0]
                .auth
                .as_ref()
                .unwrap()
                .password
                .verify("s3cret", &mut HashMemory::default()),
            Some(PasswordMatch::Match)
        );
    }
}
