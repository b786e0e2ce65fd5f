//! The admin API over sockets: what it says of a policy that is given here, in a proxy that does nothing else.

mod cases;
mod explain;
mod guards;
mod policy;
mod status;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crawlgate::admin::Admin;
use crawlgate::admin::api::PolicyApi;
use crawlgate::admin::guard::{Guard, Token};
use crawlgate::admin::health::Readiness;
use crawlgate::admin::status::Process;
use crawlgate::admin::stops::StopsApi;
use crawlgate::clock::{Clock, Hand};
use crawlgate::gate::reload::Reloads;
use crawlgate::gate::snapshot::{InForce, Snapshot};
use crawlgate::gate::stops::Stops;
use crawlgate::gate::written::{Before, Written};
use crawlgate::metrics::Metrics;
use crawlgate::metrics::labels::{Counting, RuleKind, RuleMode};
use crawlgate::policy::compile::{self, Compiled};
use crawlgate::policy::source::MemoryFiles;
use crawlgate::vocab::crawler::Crawler;
use crawlgate::vocab::profile::Profile;
use crawlgate::vocab::rule_id::Slug;
use serde_json::Value as Json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn compiled(policy: &str) -> Compiled {
    let files = MemoryFiles::new().with("p.yaml", policy);
    compile::load(&files, "p.yaml").unwrap()
}

/// Of those that ask for one.
pub(crate) const TOKEN: &str = "correct-horse-battery";

/// An admin listener.
pub(crate) struct Bench {
    address: SocketAddr,
    clock: Clock,
    hand: Hand,
    metrics: Metrics,
}

impl Bench {
    /// One whose policy is this text; `news` is known and answered as Scrapy is.
    pub(crate) async fn new(policy: &str) -> Self {
        Self::with(policy, None, Readiness::new(Vec::new)).await
    }

    /// One that asks for [`TOKEN`].
    pub(crate) async fn guarded(policy: &str) -> Self {
        let token = Some(Token::new(TOKEN).unwrap());
        Self::build(
            policy,
            None,
            Readiness::new(Vec::new),
            token,
            Counting::Everything,
        )
        .await
    }

    /// One with another policy before it.
    pub(crate) async fn with(policy: &str, before: Option<&str>, readiness: Readiness) -> Self {
        Self::build(policy, before, readiness, None, Counting::Everything).await
    }

    /// One of `telemetry.metrics: none`.
    pub(crate) async fn uncounted(policy: &str) -> Self {
        Self::build(
            policy,
            None,
            Readiness::new(Vec::new),
            None,
            Counting::Nothing,
        )
        .await
    }

    async fn build(
        policy: &str,
        before: Option<&str>,
        readiness: Readiness,
        token: Option<Token>,
        counting: Counting,
    ) -> Self {
        let (clock, hand) = Clock::manual();
        let crawlers: Arc<[Crawler]> =
            [Crawler::new(&Slug::new("news").unwrap()).with_profile(Profile::Scrapy)].into();
        let metrics = Metrics::with(counting, &crawlers, &[]).unwrap();
        let compiled = compiled(policy);
        let mut written = Written::of(&compiled, Path::new("p.yaml")).since(clock.wall());
        if let Some(before) = before {
            let before = self::compiled(before);
            let was = Written::of(&before, Path::new("p.yaml"));
            written = written.after(Before::of(&before.policy, &was, &compiled.policy));
        }
        let policy = compiled.policy;
        let modes = policy
            .rules()
            .iter()
            .map(|rule| (&rule.id, RuleMode::Enforce, RuleKind::Group));
        let counters = metrics.policy_loaded(policy.name(), policy.revision(), modes, &clock);
        let in_force = Arc::new(InForce::new(
            Snapshot::new(policy, counters).written(Arc::new(written)),
        ));
        let stops = Arc::new(Stops::new(10, clock.clone(), metrics.clone()));
        let stops = StopsApi {
            stops,
            in_force: Arc::clone(&in_force),
            crawlers: Arc::clone(&crawlers),
        };
        let policy = PolicyApi {
            in_force,
            reloads: Reloads::new(clock.clone()).0,
            crawlers,
            profile: Profile::Generic,
        };
        let admin = Admin::new(
            Guard::new([], token),
            metrics.clone(),
            readiness,
            policy,
            stops,
        )
        .of(Process::new("it", clock.clone()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(admin.serve(listener, std::future::pending()));
        Self {
            address,
            clock,
            hand,
            metrics,
        }
    }

    /// Status and document of an answer.
    pub(crate) async fn ask(&self, line: &str, body: &[u8]) -> (u16, Json) {
        let answer = self.ask_with(line, "", body).await;
        let status = answer
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or(0);
        let document = answer.split_once("\r\n\r\n").unwrap_or_default().1;
        (
            status,
            serde_json::from_str(document)
                .unwrap_or_else(|error| panic!("{line}: {error}: {answer}")),
        )
    }

    /// The whole answer to a request with a fitting Host and these fields besides.
    pub(crate) async fn ask_with(&self, line: &str, fields: &str, body: &[u8]) -> String {
        let length = body.len();
        let head = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\n{fields}Content-Length: {length}\r\n\r\n",
            self.address
        );
        self.raw(&[head.as_bytes(), body].concat()).await
    }

    /// Sends bytes and reads until the server closes.
    pub(crate) async fn raw(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        // It may answer and close before it has read all.
        let _ = stream.write_all(request).await;
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        let _ = tokio::time::timeout(Duration::from_secs(20), read)
            .await
            .expect("the server closes");
        String::from_utf8(answer).unwrap()
    }
}
