//! Records of URLs, over real sockets: a proxy with a ledger in memory and a manual clock, one origin, one
//! policy per test.

mod budget;
mod depth;
mod errors;
mod excluded;
mod learned;
mod recrawl;
mod redirects;
mod removals;
mod statuses;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crawlgate::clock::{Clock, ManualClock};
use crawlgate::config::load::{Environment, Overrides, load};
use crawlgate::config::policy;
use crawlgate::config::settings::Settings;
use crawlgate::ledger::event::{LedgerEventKind, LedgerEventReason};
use crawlgate::ledger::key::LedgerKey;
use crawlgate::ledger::record::LedgerRecord;
use crawlgate::ledger::transition::ErrorTolerance;
use crawlgate::model::profile::Profile;
use crawlgate::pipeline::reload::{ReloadOutcome, ReloadTrigger};
use crawlgate::server::Server;
use crawlgate::store::ledger::{FeedCursor, Ledger};
use tokio::runtime::{Builder, Runtime};

use crate::support::client::RawClient;
use crate::support::client::Response;
use crate::support::client::get_with;
use crate::support::origin::{ScriptedConnection, ScriptedOrigin};
use crate::support::temp_dir::TempDir;
use crate::support::wait::wait_until;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// A proxy before an origin that answers by the heads of requests. `news` and `shop` have a listener each, and after those
/// every profile has one, for the crawler of the same name.
pub(crate) struct LedgerBench {
    folder: TempDir,
    runtime: Runtime,
    server: Server,
    pub(crate) manual_clock: ManualClock,
    pub(crate) ledger: Ledger,
    pub(crate) origin: ScriptedOrigin,
}

/// A policy that neither refuses nor delays a request, with these additions.
pub(crate) fn policy(options: &str, rest: &str) -> String {
    format!(
        "policy: 1\nname: ledger\noptions:\n  disposition: allow\n  robots: {{ obey: false }}\n  politeness: {{ \
         delay: 0s, concurrency: 100, adaptive: null }}\n{options}\n{rest}\n"
    )
}

fn config() -> String {
    let mut listen = String::new();
    let mut crawlers = String::new();
    let profiles = Profile::ALL.into_iter().map(Profile::as_str);
    for (name, profile) in [("news", "generic"), ("shop", "generic")]
        .into_iter()
        .chain(profiles.map(|p| (p, p)))
    {
        listen.push_str(&format!("  - {{ addr: 127.0.0.1:0, crawler: {name} }}\n"));
        let may = if name == "shop" {
            "[depth, recrawl]"
        } else {
            "[]"
        };
        crawlers.push_str(&format!(
            "  - {{ name: {name}, profile: {profile}, may: {may} }}\n"
        ));
    }
    // For clients with credentials.
    listen.push_str("  - { addr: 127.0.0.1:0 }\n");
    format!(
        "listen:\n{listen}anonymous: deny\ncrawlers:\n{crawlers}admin: {{ listen: 127.0.0.1:0 }}\n\
         policy: {{ path: policy.yaml, watch: false }}\nlogs: {{ decisions: none }}\nstore: {{ path: store }}\ntls: {{ intercept: false }}\n\
         egress: {{ ports: [1-65535], allow_loopback: true, hosts: {{ a.test: 127.0.0.1, b.test: 127.0.0.1, c.test: 10.0.0.1 }} }}\n"
    )
}

impl LedgerBench {
    pub(crate) fn new(
        policy: &str,
        answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        Self::scripted(policy, move |connection, head| {
            let usual = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nok";
            connection.send(answer(head).unwrap_or_else(|| usual.into()));
            true
        })
    }

    /// With an origin that runs this function for each request's head, until it returns `false`.
    pub(crate) fn scripted(
        policy_text: &str,
        serve: impl Fn(&mut ScriptedConnection, &str) -> bool + Send + Sync + 'static,
    ) -> Self {
        let ledger = Ledger::in_memory(ErrorTolerance {
            temporary_errors: 3,
        });
        Self::with_ledger(policy_text, ledger, serve)
    }

    pub(crate) fn with_ledger(
        policy_text: &str,
        ledger: Ledger,
        serve: impl Fn(&mut ScriptedConnection, &str) -> bool + Send + Sync + 'static,
    ) -> Self {
        let origin = ScriptedOrigin::start(move |connection| {
            while let Some(head) = connection.read_head() {
                if !serve(connection, &head) {
                    return;
                }
            }
        });
        let folder = TempDir::new();
        folder.write("policy.yaml", policy_text);
        let settings = settings(folder.write("crawlgate.yaml", config()));
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (clock, manual_clock) = Clock::manual();
        let compiled =
            policy::open_and_test(&settings.policy.origin).unwrap_or_else(|p| panic!("{p:?}"));
        let started = async {
            Server::start_with(
                &settings,
                compiled.policy.into(),
                clock,
                Some(ledger.clone()),
            )
        };
        let server = runtime.block_on(started).unwrap();
        Self {
            folder,
            runtime,
            server,
            manual_clock,
            ledger,
            origin,
        }
    }

    /// Activates another policy.
    pub(crate) fn reload(&self, policy: &str) {
        self.folder.write("policy.yaml", policy);
        let attempt = self
            .runtime
            .block_on(self.server.reloads().reload(ReloadTrigger::Api))
            .unwrap();
        assert!(
            matches!(attempt.outcome, ReloadOutcome::Loaded { .. }),
            "{:?}",
            attempt.outcome
        );
    }

    pub(crate) fn url(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.origin.port)
    }

    /// The listener of a crawler.
    pub(crate) fn door(&self, crawler: &str) -> SocketAddr {
        let profiles = Profile::ALL.into_iter().map(Profile::as_str);
        let place = ["news", "shop"]
            .into_iter()
            .chain(profiles)
            .position(|name| name == crawler);
        self.server.proxy[place.unwrap()]
    }

    /// GETs a path of `a.test` as `news`, with more fields, each line with its CRLF.
    pub(crate) fn get_with(&self, path: &str, fields: &str) -> Response {
        self.ask_as("news", &self.url("a.test", path), fields)
    }

    pub(crate) fn ask_as(&self, crawler: &str, url: &str, fields: &str) -> Response {
        get_with(self.door(crawler), url, fields)
    }

    /// GETs a path that the policy allows, and waits for its record.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> Response {
        let answer = self.get_with(path, "");
        assert_eq!(answer.status, 200, "{path}: {answer}");
        self.until_known("news", path);
        answer
    }

    /// Sends another method on a new connection.
    pub(crate) fn send(&self, method: &str, path: &str) -> Response {
        let mut client = RawClient::connect(self.door("news"));
        let url = self.url("a.test", path);
        client.send(format!(
            "{method} {url} HTTP/1.1\r\nHost: a.test:{}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            self.origin.port
        ));
        Response::parse(&client.read_rest())
    }

    pub(crate) fn record(&self, crawler: &str, path: &str) -> Option<Arc<LedgerRecord>> {
        self.ledger
            .look_up(LedgerKey::for_url(crawler, &self.url("a.test", path)))
    }

    pub(crate) fn until_known(&self, crawler: &str, path: &str) -> Arc<LedgerRecord> {
        wait_until(&format!("{path} is known to {crawler}"), || {
            self.record(crawler, path).is_some()
        });
        self.record(crawler, path).unwrap()
    }

    /// Waits until the record of `news` satisfies a condition.
    pub(crate) fn until_record(
        &self,
        path: &str,
        what: &str,
        holds: impl Fn(&LedgerRecord) -> bool,
    ) {
        wait_until(&format!("{path}: {what}"), || {
            self.record("news", path)
                .is_some_and(|record| holds(&record))
        });
    }

    /// The events of what is recorded so far: kind, reason, and path.
    pub(crate) fn events(&self) -> Vec<(LedgerEventKind, LedgerEventReason, String)> {
        self.runtime.block_on(self.ledger.flush());
        let events = self.ledger.events(FeedCursor(0), 100).unwrap();
        fn path(url: &str) -> String {
            format!("/{}", url.splitn(4, '/').nth(3).unwrap())
        }
        events
            .iter()
            .map(|(_, event)| (event.kind, event.reason, path(&event.url)))
            .collect()
    }

    /// The heads that the origin received.
    pub(crate) fn heads(&self) -> Vec<String> {
        self.origin.heads()
    }
}

pub(crate) fn settings(config: PathBuf) -> Settings {
    let directory = config.parent().unwrap().to_owned();
    let around = Environment {
        directory: &directory,
        variables: &|_| None,
    };
    load(
        &Overrides {
            config: Some(config),
            ..Overrides::default()
        },
        &around,
    )
    .unwrap_or_else(|problems| panic!("{problems:?}"))
    .settings
}

/// A page with these fields, each line with its end.
pub(crate) fn page(fields: &str, body: &str) -> Option<String> {
    let length = body.len();
    Some(format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
    ))
}

/// An answer without a body.
pub(crate) fn bare(status: u16, fields: &str) -> Option<String> {
    Some(format!(
        "HTTP/1.1 {status} Status\r\n{fields}Content-Length: 0\r\n\r\n"
    ))
}

/// The path of a request's head.
pub(crate) fn path(head: &str) -> &str {
    head.split(' ').nth(1).unwrap_or_default()
}
