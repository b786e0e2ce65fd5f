//! The listener of the key directories (`identity.listen`), through a running proxy.

use std::net::SocketAddr;
use std::process::Command;

use crawlgate::identity::{Ed25519Key, WELL_KNOWN_PATH};

use crate::support::client::{Response, exchange, get};
use crate::support::proxy::TestProxy;
use crate::support::wait::wait_until;

const POLICY: &str = "policy: 1\nname: p\noptions: { disposition: allow }\n";

/// A proxy with two crawlers, whose keys are published at these hosts.
struct Publisher {
    gate: TestProxy,
    directory: SocketAddr,
    thumbprints: [String; 2],
}

impl Publisher {
    fn start(hosts: [&str; 2]) -> Self {
        let [first, second] = hosts;
        let config = format!(
            "listen: 127.0.0.1:0
admin: {{ listen: 127.0.0.1:0 }}
policy: {{ path: policy.yaml, watch: false }}
logs: {{ decisions: log.json }}
egress: {{ allow_loopback: true, ports: [1-65535] }}
identity: {{ listen: 127.0.0.1:0 }}
crawlers:
  - {{ name: a, sources: 192.0.2.1/32, identity: {{ key: [one.pem, two.pem], directory: 'https://{first}' }} }}
  - {{ name: b, sources: 192.0.2.2/32, identity: {{ key: two.pem, directory: 'https://{second}' }} }}
"
        );
        let mut thumbprints = [String::new(), String::new()];
        let gate = TestProxy::start_with(&config, POLICY, |command: &mut Command| {
            let folder = command.get_current_dir().expect("a directory");
            thumbprints = ["one.pem", "two.pem"].map(|name| {
                let key = Ed25519Key::create(&folder.join(name)).expect("a key");
                key.thumbprint().to_owned()
            });
        });
        let mut directory = None;
        wait_until("the listener of the directory", || {
            let stderr = gate.stderr();
            directory = stderr
                .split_once("key directory listening on ")
                .and_then(|(_, rest)| rest.lines().next()?.parse().ok());
            directory.is_some()
        });
        Self {
            gate,
            directory: directory.expect("an address"),
            thumbprints,
        }
    }

    fn request(&self, method: &str, path: &str, host: &str) -> String {
        let head = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
        exchange(self.directory, head)
    }

    fn published_keys(&self, host: &str) -> Vec<String> {
        let answer = Response::parse(&self.request("GET", WELL_KNOWN_PATH, host));
        answer.check(
            200,
            &["content-type: application/http-message-signatures-directory+json"],
        );
        let keys = answer.json()["keys"].clone();
        let keys = keys.as_array().expect("a list").iter();
        keys.map(|key| key["kid"].as_str().expect("text").to_owned())
            .collect()
    }
}

#[test]
fn the_keys_of_all_crawlers_are_published_once() {
    let publisher = Publisher::start(["bot.test", "bot.test"]);
    // With one directory the host does not matter: a web server may forward requests with its own.
    for host in ["bot.test", "127.0.0.1:3130"] {
        assert_eq!(publisher.published_keys(host), publisher.thumbprints);
    }
    let answer = Response::parse(&publisher.request("GET", WELL_KNOWN_PATH, "bot.test"));
    answer.check(
        200,
        &[
            "cache-control: max-age=86400",
            "signature-input: key1=(\"@authority\";req \"content-digest\")",
            "tag=\"http-message-signatures-directory\", key2=",
            "content-digest: sha-256=:",
        ],
    );
    let head = publisher.request("HEAD", WELL_KNOWN_PATH, "bot.test");
    assert!(
        head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
}

#[test]
fn nothing_else_is_served() {
    let publisher = Publisher::start(["bot.test", "bot.test"]);
    for (method, path, status) in [
        ("GET", "/", 404),
        ("GET", "/metrics", 404),
        (
            "GET",
            "/.well-known/http-message-signatures-directory/",
            404,
        ),
        (
            "GET",
            "/.well-known/%68ttp-message-signatures-directory",
            404,
        ),
        ("GET", "http://a.test/", 404),
        ("POST", WELL_KNOWN_PATH, 405),
        ("DELETE", WELL_KNOWN_PATH, 405),
        ("CONNECT", "a.test:443", 404),
    ] {
        let answer = publisher.request(method, path, "bot.test");
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{method} {path}: {answer}"
        );
    }
    // Nor through the proxy.
    let url = format!("http://{}{WELL_KNOWN_PATH}", publisher.directory);
    get(publisher.gate.proxy, &url).check(403, &["crawl-reason: ip_prohibited"]);
}

#[test]
fn the_host_selects_one_of_several_directories() {
    let publisher = Publisher::start(["one.test", "two.test"]);
    let [one, two] = &publisher.thumbprints;
    assert_eq!(
        publisher.published_keys("ONE.test"),
        [one.clone(), two.clone()]
    );
    assert_eq!(publisher.published_keys("two.test:443"), [two.as_str()]);
    let answer = publisher.request("GET", WELL_KNOWN_PATH, "three.test");
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}
