//! The presets of the option `removal`, over SIGKILL: the pages of Norconex's chart turn bad, and the crawl space of
//! OmniFind's story is divided and joined again. A real process on one store is killed at ten points: during the crawl, the
//! sweep, the grace time and the orders. Each event occurs exactly once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use crawlgate::ledger::event::LedgerEventKind::{self, Moved, Removal, Restored};
use crawlgate::ledger::event::LedgerEventReason as Why;
use crawlgate::store::ledger::{FeedCursor, Ledger, LedgerSettings};
use serde_json::Value as Json;

use crate::support::client::get;
use crate::support::origin::{ReceivedRequest, ScriptedOrigin, response};
use crate::support::proxy::TestProxy;
use crate::support::temp_dir::TempDir;
use crate::support::wait::wait_until;

const KILLS: usize = 10;
const OPTIONS: &str = "options:
  disposition: allow
  politeness: { delay: 0s, concurrency: 100, adaptive: null }
";

/// The kinds and reasons of events, by host and path.
type UrlEvents = BTreeMap<String, Vec<(LedgerEventKind, Why)>>;

/// A store, and the origin of the process that is killed.
struct KilledCrawl {
    store: TempDir,
    origin: ScriptedOrigin,
    /// `true` once the site answers otherwise.
    changed: Arc<AtomicBool>,
}

impl KilledCrawl {
    fn new(answer: impl Fn(&ReceivedRequest, bool) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let changed = Arc::new(AtomicBool::new(false));
        let now = Arc::clone(&changed);
        Self {
            store: TempDir::new(),
            origin: ScriptedOrigin::respond(move |request| {
                answer(request, now.load(Ordering::SeqCst))
            }),
            changed,
        }
    }

    /// Starts the proxy. To drop it is to kill it.
    fn start(&self, policy: &str) -> TestProxy {
        let config = format!(
            "listen: [{{ addr: 127.0.0.1:0, crawler: old }}]
anonymous: deny
crawlers: [{{ name: old }}, {{ name: new }}]
admin: {{ listen: 127.0.0.1:0 }}
policy: {{ path: policy.yaml, watch: false }}
logs: {{ decisions: none }}
store: {{ path: {} }}
ledger: {{ sweep_rate: 100, removal_guard: {{ hold: off, grace: 1s }} }}
egress:
  ports: [1-65535]
  allow_loopback: true
  hosts: {{ stays.test: 127.0.0.1, moves.test: 127.0.0.1, goes.test: 127.0.0.1 }}
",
            self.store.path().display()
        );
        TestProxy::start(&config, policy)
    }

    /// Requests pages, and returns the number of those that were delivered.
    fn crawl(&self, proxy: &TestProxy, pages: &[(&str, String)]) -> usize {
        let statuses = pages
            .iter()
            .map(|(host, path)| get(proxy.proxy, &self.origin.url(host, path)).status);
        statuses.filter(|status| *status == 200).count()
    }

    /// Kills processes that crawl these pages under this policy: the first ones sooner or later during the crawl, the
    /// others at some time after it.
    fn kill(&self, kills: usize, policy: &str, pages: &[(&str, String)]) {
        for kill in 0..kills {
            let proxy = self.start(policy);
            let requested = pages.len() * kill * 2 / kills;
            self.crawl(&proxy, &pages[..requested.min(pages.len())]);
            let step = u64::try_from(kill).unwrap() * 150;
            sleep(Duration::from_millis(fastrand::u64(step..step + 150)));
        }
    }

    /// Crawls these pages without being killed, and returns the number of those that were delivered.
    fn finish(&self, policy: &str, pages: &[(&str, String)]) -> usize {
        let proxy = self.start(policy);
        let delivered = self.crawl(&proxy, pages);
        wait_until("everything is swept, ordered and on the disk", || {
            let stats = proxy.admin("GET /api/v1/ledger").body;
            let stats: Json = serde_json::from_str(&stats).unwrap();
            let pending = stats["pending_removals"].as_object().unwrap();
            stats["queue"] == 0
                && stats["sweep"]["state"] != "running"
                && pending.values().all(|count| *count == 0)
        });
        delivered
    }

    fn events(&self) -> UrlEvents {
        let settings = LedgerSettings::default();
        let ledger = Ledger::open_existing(self.store.path(), settings).unwrap();
        let mut found = UrlEvents::new();
        for (_, event) in ledger.events(FeedCursor(0), usize::MAX).unwrap() {
            let port = format!(":{}", self.origin.port);
            let url = event.url.replace("http://", "").replace(&port, "");
            found
                .entry(url)
                .or_default()
                .push((event.kind, event.reason));
        }
        found
    }
}

fn page(fields: &str, body: &str) -> Vec<u8> {
    let fields = format!("Content-Type: text/html; charset=utf-8\r\n{fields}");
    response(200, &fields, body)
}

/// The events of the chart, by the first part of the path.
const CHART: [(&str, Option<Why>); 11] = [
    ("robots", Some(Why::RobotsTxt)),
    ("rule", Some(Why::Excluded)),
    ("type", Some(Why::Excluded)),
    ("noindex", Some(Why::Noindex)),
    ("canon", Some(Why::Noncanonical)),
    ("twin", Some(Why::Duplicate)),
    ("big", Some(Why::TooLarge)),
    ("404", Some(Why::PermanentError)),
    ("410", Some(Why::PermanentError)),
    ("500", Some(Why::PermanentError)),
    ("good", None),
];

fn chart_page(request: &ReceivedRequest, changed: bool) -> Vec<u8> {
    let path = request.path();
    let kind = path.split('/').nth(1).unwrap_or_default();
    match (kind, changed) {
        ("robots.txt", _) => page("", "User-agent: *\nDisallow: /robots\n"),
        (_, false) => page("", path),
        ("noindex", true) => page("X-Robots-Tag: noindex\r\n", path),
        ("canon", true) => page("Link: </other>; rel=canonical\r\n", path),
        ("twin", true) => page("", "/good/0"),
        ("big", true) => page("", &"x".repeat(200)),
        ("type", true) => response(200, "Content-Type: image/gif\r\n", path),
        ("404" | "410" | "500", true) => response(kind.parse().unwrap(), "", ""),
        (_, true) => page("", path),
    }
}

#[test]
fn each_event_of_the_chart_occurs_once_over_kill_9() {
    let crawl = KilledCrawl::new(chart_page);
    // The second 500 in a row would have to be minutes later.
    let checks = "  noindex: reject\n  noncanonical: reject\n  duplicate: reject\n  max_body: 100B\n  \
                  removal: { preset: norconex, bad_status: remove }\n";
    let policy = |robots: &str, rules: &str| {
        format!(
            "policy: 1\nname: chart\n{OPTIONS}{checks}  robots: {{ obey: {robots} }}\nrules: [{rules}]\n"
        )
    };
    let pages: Vec<_> = (0..4)
        .flat_map(|copy| CHART.map(|(kind, _)| ("stays.test", format!("/{kind}/{copy}"))))
        .collect();
    let good = policy("false", "");
    assert_eq!(crawl.finish(&good, &pages), pages.len());
    assert_eq!(crawl.events(), UrlEvents::new());
    crawl.changed.store(true, Ordering::SeqCst);
    let changed = policy(
        "true",
        "{ id: no, forbid: { under: /rule } }, { id: html, require: { content_type: text/html } }",
    );
    crawl.kill(KILLS, &changed, &pages);
    assert_eq!(crawl.finish(&changed, &pages), 4, "the good ones");
    let expected: UrlEvents = (0..4)
        .flat_map(|copy| {
            CHART.iter().filter_map(move |(kind, why)| {
                let events = vec![(Removal, (*why)?)];
                Some((format!("stays.test/{kind}/{copy}"), events))
            })
        })
        .collect();
    assert_eq!(crawl.events(), expected);
}

const WHOLE: &str = "spaces:
  - { name: all, crawlers: [old], rules: [{ id: outside, require: { host: [stays.test, moves.test, goes.test] } }] }
";
const DIVIDED: &str = "spaces:
  - { name: rest, crawlers: [old], rules: [{ id: not-mine, require: { host: stays.test } }] }
  - { name: part, crawlers: [new], rules: [{ id: not-ours, require: { host: moves.test } }] }
global_space: { rules: [{ when: { host: [stays.test, moves.test] }, then: allow }] }
";

#[test]
fn each_event_of_a_divided_space_occurs_once_over_kill_9() {
    let crawl = KilledCrawl::new(|request, changed| {
        match changed && request.path().starts_with("/missing/") {
            true => response(404, "", ""),
            false => page("", request.path()),
        }
    });
    let policy = |spaces: &str| {
        format!(
            "policy: 1\nname: story\n{OPTIONS}  removal: omnifind\n  robots: {{ obey: false }}\n{spaces}"
        )
    };
    let (whole, divided) = (policy(WHOLE), policy(DIVIDED));
    let hosts = ["stays.test", "moves.test", "goes.test"];
    let pages: Vec<_> = (0..20)
        .flat_map(|n| [format!("/page/{n}"), format!("/missing/{n}")])
        .flat_map(|path| hosts.map(|host| (host, path.clone())))
        .collect();
    assert_eq!(crawl.finish(&whole, &pages), pages.len());
    crawl.changed.store(true, Ordering::SeqCst);
    crawl.kill(KILLS / 2, &divided, &pages);
    assert_eq!(crawl.finish(&divided, &pages), 20);
    // Joined again: what has left the index comes back, unless it does not exist any more.
    crawl.kill(KILLS / 2, &whole, &[]);
    crawl.finish(&whole, &[]);
    assert_eq!(crawl.finish(&whole, &pages), 60);
    let expected: UrlEvents = pages
        .iter()
        .filter_map(|(host, path)| {
            let missing = (Removal, Why::PermanentError);
            let is_missing = path.starts_with("/missing/");
            let events = match *host {
                "goes.test" if is_missing => {
                    vec![(Removal, Why::Excluded), (Restored, Why::Allowed), missing]
                }
                "goes.test" => vec![(Removal, Why::Excluded), (Restored, Why::Allowed)],
                "moves.test" if is_missing => vec![(Moved, Why::OtherSpace), missing],
                "moves.test" => vec![(Moved, Why::OtherSpace)],
                _ if is_missing => vec![missing],
                _ => return None,
            };
            Some((format!("{host}{path}"), events))
        })
        .collect();
    assert_eq!(crawl.events(), expected);
}
