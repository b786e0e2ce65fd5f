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

use crawlgate::admin::guard::{AdminGuard, AdminToken};
use crawlgate::admin::health::Readiness;
use crawlgate::admin::policy_api::PolicyApi;
use crawlgate::admin::status::ProcessInfo;
use crawlgate::admin::stops::StopsApi;
use crawlgate::admin::{AdminApis, AdminServer};
use crawlgate::clock::{Clock, ManualClock};
use crawlgate::metrics::Metrics;
use crawlgate::metrics::labels::{MetricsMode, RuleKind, RuleMode};
use crawlgate::model::crawler::Crawler;
use crawlgate::model::profile::Profile;
use crawlgate::model::rule_id::Slug;
use crawlgate::pipeline::policy_source::{PolicySource, PreviousPolicy};
use crawlgate::pipeline::reload::ReloadHandle;
use crawlgate::pipeline::snapshot::{ActivePolicy, PolicySnapshot};
use crawlgate::pipeline::stop_registry::StopRegistry;
use crawlgate::policy::compile::{self, CompiledPolicy};
use crawlgate::policy::source::MemoryFileSystem;
use serde_json::Value as Json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::admin::apis;

fn compiled(policy: &str) -> CompiledPolicy {
    let files = MemoryFileSystem::new().with_file("p.yaml", policy);
    compile::load(&files, "p.yaml").unwrap()
}

/// Of those that ask for one.
pub(crate) const TOKEN: &str = "correct-horse-battery";

/// An admin listener.
pub(crate) struct Bench {
    address: SocketAddr,
    clock: Clock,
    hand: ManualClock,
    metrics: Metrics,
}

impl Bench {
    /// One whose policy is this text; `news` is known and answered as Scrapy is.
    pub(crate) async fn new(policy: &str) -> Self {
        Self::with(policy, None, Readiness::new(Vec::new)).await
    }

    /// One that asks for [`TOKEN`].
    pub(crate) async fn guarded(policy: &str) -> Self {
        let token = Some(AdminToken::new(TOKEN).unwrap());
        Self::build(
            policy,
            None,
            Readiness::new(Vec::new),
            token,
            MetricsMode::All,
        )
        .await
    }

    /// One with another policy before it.
    pub(crate) async fn with(policy: &str, before: Option<&str>, readiness: Readiness) -> Self {
        Self::build(policy, before, readiness, None, MetricsMode::All).await
    }

    /// One of `telemetry.metrics: none`.
    pub(crate) async fn uncounted(policy: &str) -> Self {
        Self::build(
            policy,
            None,
            Readiness::new(Vec::new),
            None,
            MetricsMode::EssentialOnly,
        )
        .await
    }

    async fn build(
        policy: &str,
        before: Option<&str>,
        readiness: Readiness,
        token: Option<AdminToken>,
        counting: MetricsMode,
    ) -> Self {
        let (clock, hand) = Clock::manual();
        let crawlers: Arc<[Crawler]> =
            [Crawler::new(&Slug::new("news").unwrap()).with_profile(Profile::Scrapy)].into();
        let metrics = Metrics::with_mode(counting, &crawlers, &[]).unwrap();
        let compiled = compiled(policy);
        let mut written = PolicySource::from_compiled(&compiled, Path::new("p.yaml"))
            .with_loaded_at(clock.wall_time());
        if let Some(before) = before {
            let before = self::compiled(before);
            let was = PolicySource::from_compiled(&before, Path::new("p.yaml"));
            written =
                written.with_previous(PreviousPolicy::new(&before.policy, &was, &compiled.policy));
        }
        let policy = compiled.policy;
        let modes = policy
            .rules()
            .iter()
            .map(|rule| (&rule.id, RuleMode::Enforce, RuleKind::Group));
        let counters = metrics.register_policy(policy.name(), policy.revision(), modes, &clock);
        let in_force = Arc::new(ActivePolicy::new(
            PolicySnapshot::new(policy, counters).with_source(Arc::new(written)),
        ));
        let stops = Arc::new(StopRegistry::new(10, clock.clone(), metrics.clone()));
        let stops = StopsApi {
            stops,
            active_policy: Arc::clone(&in_force),
            crawlers: Arc::clone(&crawlers),
        };
        let policy = PolicyApi {
            active_policy: in_force,
            reloads: ReloadHandle::new(clock.clone()).0,
            crawlers,
            default_profile: Profile::Generic,
        };
        let apis = AdminApis {
            readiness,
            process: ProcessInfo::new("it", clock.clone()),
            ..apis(metrics.clone(), policy, stops)
        };
        let admin = AdminServer::new(AdminGuard::new([], token), apis);
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
