//! What options do to requests and answers, over real sockets: one gate, one scripted origin, one policy a test.

mod beside;
mod fields;
mod rejections;
mod rewrite;
mod shadow;
mod times;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use crate::support::gate::Gate;
use crate::upstream::scripted::{Client, OK, Origin, until};

/// The configuration of these gates: `a.test` and `b.test` are on loopback, decisions go to `log.json`.
pub(crate) const CONFIG: &str = "listen: 127.0.0.1:0
admin: { listen: 127.0.0.1:0 }
policy: { path: policy.yaml, watch: false }
logs: { decisions: log.json }
egress:
  ports: [1-65535]
  allow_loopback: true
  hosts: { a.test: 127.0.0.1, b.test: 127.0.0.1 }
";

/// A policy that refuses nothing and holds nobody, with these rules and these options besides.
pub(crate) fn policy(options: &str, rules: &str) -> String {
    format!(
        "policy: 1
name: effects
options:
  disposition: allow
  robots: {{ obey: false }}
  politeness: {{ delay: 0s, concurrency: 100 }}
{options}
rules:
{rules}
"
    )
}

/// A gate and an origin that keeps the heads of requests and answers by their paths.
pub(crate) struct Bench {
    pub(crate) gate: Gate,
    pub(crate) origin: Origin,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Bench {
    /// `answer` makes an answer of a request's path; nothing of it is the usual one.
    pub(crate) fn new(
        policy: &str,
        answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self::with(CONFIG, policy, answer)
    }

    pub(crate) fn with(
        config: &str,
        policy: &str,
        answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = Arc::clone(&heads);
        let origin = Origin::start(move |visit| {
            while let Some(head) = visit.request() {
                let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                noted.lock().unwrap().push(head);
                visit.send(&answer(&path).unwrap_or_else(|| OK.into()));
            }
        });
        Self {
            gate: Gate::start(config, policy),
            origin,
            heads,
        }
    }

    /// The whole answer to a GET of a path at `a.test`.
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask(path, "")
    }

    /// The same with more fields, each line with its end.
    pub(crate) fn ask(&self, path: &str, fields: &str) -> Answer {
        ask(
            self.gate.proxy,
            &format!("http://a.test:{}{path}", self.origin.port),
            fields,
        )
    }

    /// The decision log, once it has so many lines.
    #[track_caller]
    pub(crate) fn log(&self, lines: usize) -> Vec<serde_json::Value> {
        log(&self.gate, lines)
    }

    /// The heads that the origin got.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

/// The lines of a gate's decision log, once it has so many, in the order of the requests.
#[track_caller]
pub(crate) fn log(gate: &Gate, lines: usize) -> Vec<serde_json::Value> {
    until("the log is written", || {
        gate.log().matches('\n').count() >= lines
    });
    let log = gate.log();
    assert_eq!(log.lines().count(), lines, "{log}");
    let mut lines: Vec<serde_json::Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    // Each worker writes for itself; the ids are counted.
    lines.sort_by_key(|line| {
        let id = line["decision"].as_str().unwrap();
        u64::from_str_radix(id.split_once('-').unwrap().1, 16).unwrap()
    });
    lines
}

/// One GET on a connection of its own.
pub(crate) fn ask(proxy: SocketAddr, url: &str, fields: &str) -> Answer {
    let mut client = Client::connect(proxy);
    let host = url.split('/').nth(2).unwrap();
    client.send(&format!(
        "GET {url} HTTP/1.1\r\nHost: {host}\r\n{fields}Connection: close\r\n\r\n"
    ));
    Answer(client.rest())
}

/// An answer as it came.
pub(crate) struct Answer(pub(crate) String);

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.0
            .split(' ')
            .nth(1)
            .and_then(|s| s.parse().ok())
            .unwrap_or_else(|| panic!("{:?}", self.0))
    }

    /// Every value of a field, in order.
    pub(crate) fn values(&self, name: &str) -> Vec<&str> {
        let head = self.0.split("\r\n\r\n").next().unwrap_or_default();
        let field = |line: &'_ str| {
            let (field, _) = line.split_once(": ")?;
            field.eq_ignore_ascii_case(name).then_some(())
        };
        head.lines()
            .filter(|line| field(line).is_some())
            .map(|line| line.split_once(": ").unwrap().1)
            .collect()
    }

    /// The one value of a field; empty if there is none.
    #[track_caller]
    pub(crate) fn value(&self, name: &str) -> &str {
        let values = self.values(name);
        assert!(values.len() < 2, "{name}: {values:?}");
        values.first().copied().unwrap_or_default()
    }

    pub(crate) fn body(&self) -> &str {
        self.0.split_once("\r\n\r\n").map_or("", |(_, body)| body)
    }
}
