//! The admin API over sockets: its responses about a policy that the test provides.

mod cases;
mod explain;
mod guards;
mod policy;
mod status;

use std::path::Path;
use std::sync::Arc;

use crawlgate::admin::AdminApis;
use crawlgate::admin::guard::{AdminGuard, AdminToken};
use crawlgate::admin::health::Readiness;
use crawlgate::admin::policy_api::PolicyApi;
use crawlgate::admin::status::ProcessInfo;
use crawlgate::admin::stops::StopsApi;
use crawlgate::clock::{Clock, ManualClock};
use crawlgate::metrics::labels::{MetricsMode, RuleKind, RuleMode};
use crawlgate::metrics::policy::PolicyMetrics;
use crawlgate::metrics::record::UrlRetention;
use crawlgate::metrics::{Metrics, MetricsExtent};
use crawlgate::model::crawler::Crawler;
use crawlgate::model::profile::Profile;
use crawlgate::model::reason::Reason;
use crawlgate::model::rule_id::Slug;
use crawlgate::pipeline::policy_source::{PolicySource, PreviousPolicy};
use crawlgate::pipeline::reload::ReloadHandle;
use crawlgate::pipeline::snapshot::{ActivePolicy, PolicySnapshot};
use crawlgate::pipeline::stop_registry::StopRegistry;
use http::Method;
use serde_json::Value as Json;

use crate::support::admin::{TestAdmin, apis};
use crate::support::pipeline::dry_runner;
use crate::support::policy::compile_policy;
use crate::support::recorder::unwritten_recorder;

/// The token of servers that require one.
pub(crate) const TOKEN: &str = "correct-horse-battery";

/// An admin listener.
pub(crate) struct ApiBench {
    admin: TestAdmin,
    clock: Clock,
    manual_clock: ManualClock,
    metrics: Metrics,
    counters: Arc<PolicyMetrics>,
}

impl ApiBench {
    /// A server with this policy; `news` is a crawler with the profile of Scrapy.
    pub(crate) async fn new(policy: &str) -> Self {
        Self::with(policy, None, Readiness::new(Vec::new)).await
    }

    /// A server that requires [`TOKEN`].
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

    /// A server with a previous policy.
    pub(crate) async fn with(policy: &str, before: Option<&str>, readiness: Readiness) -> Self {
        Self::build(policy, before, readiness, None, MetricsMode::All).await
    }

    /// A server with `telemetry.metrics: none`.
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
        let extent = MetricsExtent {
            mode: counting,
            ..MetricsExtent::default()
        };
        let (clock, manual_clock) = Clock::manual();
        let crawlers: Arc<[Crawler]> =
            [Crawler::new(&Slug::new("news").unwrap()).with_profile(Profile::Scrapy)].into();
        let metrics = Metrics::with_extent(extent, &crawlers, &[]).unwrap();
        let compiled = compile_policy(policy);
        let mut written = PolicySource::from_compiled(&compiled, Path::new("p.yaml"))
            .with_loaded_at(clock.wall_time());
        if let Some(before) = before {
            let before = compile_policy(before);
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
        let active_policy = Arc::new(ActivePolicy::new(
            PolicySnapshot::new(policy, Arc::clone(&counters)).with_source(Arc::new(written)),
        ));
        let stops = Arc::new(StopRegistry::new(10, clock.clone(), metrics.clone()));
        let stops = StopsApi {
            stops,
            active_policy: Arc::clone(&active_policy),
            crawlers: Arc::clone(&crawlers),
        };
        let policy = PolicyApi {
            dry_runner: dry_runner(&active_policy),
            active_policy,
            reloads: ReloadHandle::new(clock.clone()).0,
            crawlers,
            default_profile: Profile::Generic,
        };
        let apis = AdminApis {
            readiness,
            process: ProcessInfo::new("it", clock.clone()),
            ..apis(metrics.clone(), policy, stops)
        };
        Self {
            admin: TestAdmin::start(AdminGuard::new([], token), apis).await,
            clock,
            manual_clock,
            metrics,
            counters,
        }
    }

    /// Counts requests that this rule matched and refused.
    pub(crate) fn refuse(&self, rule: u32, times: u32) {
        let recorder = unwritten_recorder(&self.metrics, &self.clock);
        for _ in 0..times {
            let mut record = recorder.begin(self.clock.now(), &Method::GET);
            record.set_policy(&self.counters);
            record.set_matched_rules([rule]);
            record.set_rejected(Reason::Rule, Some(rule), UrlRetention::Host);
        }
    }

    /// The status and the document of a response.
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

    /// Sends a request with a valid Host and these header fields, each line with its CRLF.
    pub(crate) async fn ask_with(&self, line: &str, fields: &str, body: &[u8]) -> String {
        self.admin.request(line, fields, body).await
    }

    /// Sends bytes and reads until the server closes.
    pub(crate) async fn raw(&self, request: &[u8]) -> String {
        self.admin.exchange(request).await
    }
}
