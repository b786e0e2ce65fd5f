//! `crawlgate robots fetch`: fetches the robots.txt of a host as the proxy would, and shows what it allows.
//!
//! The pace of a running proxy is not known here, so the request is sent at once.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::runtime::Builder;

use crate::cli::args::{OutputFormat, RobotsFetchArgs};
use crate::cli::text::sanitize_text;
use crate::cli::{Exit, console, inputs};
use crate::clock::Clock;
use crate::config::settings::Settings;
use crate::metrics::Metrics;
use crate::model::certificate_verification::CertificateVerification;
use crate::model::crawler::Crawler;
use crate::model::http_versions::OriginHttpVersions;
use crate::model::units::format_duration;
use crate::pacing::pace::HostPace;
use crate::pacing::queue::WaitOrder;
use crate::pipeline::admission::{AdmissionLimits, AdmissionQueue};
use crate::pipeline::robots_fetch::RobotsFetchRequest;
use crate::policy::options::politeness::PaceKey;
use crate::proxy::header_filter::ViaName;
use crate::proxy::robots::RobotsFetch;
use crate::robots::RobotsFile;
use crate::robots::agent::RobotsAgent;
use crate::robots::state::{RobotsRules, RobotsState, RobotsValidators};
use crate::server::new_robots_fetcher;
use crate::store::HostStore;
use crate::urls::target::{TargetError, UrlTarget};

use super::{RobotsCheckAnswer, describe_agent, extensions, parse_agent, requested_url};

/// Runs the command. Exits with 1 if the file is unavailable.
pub(super) fn run(args: &RobotsFetchArgs) -> Result<Exit, Exit> {
    let agent = parse_agent(&args.agent)?;
    let target = UrlTarget::parse(&requested_url(&args.url))
        .map_err(|error| console::report_invalid(&invalid_url_message(&args.url, &error)))?;
    let settings = inputs::load_config(args.config.as_deref())?;
    let clock = Clock::system();
    let fetch = fetch_robots(&settings, &target, agent, &clock)
        .map_err(|error| console::report_cannot_run(&error))?;
    Ok(print_report(&fetch, &target, agent, args.format, &clock))
}

fn invalid_url_message(url: &str, error: &TargetError) -> String {
    // The name of a host alone: the scheme is part of the robots.txt's address.
    if !url.contains([':', '/']) && !url.is_empty() {
        return format!("{url:?} has no scheme: write https://{url}/ or http://{url}/");
    }
    format!("{error}: {url:?}")
}

fn fetch_robots(
    settings: &Settings,
    target: &UrlTarget,
    agent: RobotsAgent<'_>,
    clock: &Clock,
) -> Result<RobotsFetch, String> {
    let metrics = Metrics::new(&[], &[]).map_err(|error| error.to_string())?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let limits = AdmissionLimits {
        per_host: 1,
        total: 1,
        max_wait: Duration::ZERO,
    };
    let admission = AdmissionQueue::new(HostStore::new(), limits, clock.clone(), metrics.clone());
    let request = RobotsFetchRequest {
        agent: agent.token().into(),
        crawler: Crawler::anonymous(),
        key: PaceKey::Host,
        pace: HostPace::UNLIMITED,
        per_address: None,
        order: WaitOrder::Weighted,
        admission: Arc::new(admission),
        verify: CertificateVerification::On,
        versions: OriginHttpVersions::Http1And2,
        parent: None,
    };
    runtime.block_on(async {
        let fetcher = new_robots_fetcher(settings, &metrics, clock, ViaName::new("robots"), vec![]);
        let fetcher = fetcher.map_err(|error| error.to_string())?;
        Ok(fetcher
            .fetch(target, &request, RobotsValidators::default())
            .await)
    })
}

fn print_report(
    fetch: &RobotsFetch,
    target: &UrlTarget,
    agent: RobotsAgent<'_>,
    format: OutputFormat,
    clock: &Clock,
) -> Exit {
    let state = RobotsState::from_fetch(None, &fetch.fetched(), clock.now());
    let exit = match state.rules {
        RobotsRules::File(_) | RobotsRules::AllowAll => Exit::Success,
        RobotsRules::Unknown => Exit::Negative,
    };
    let report = RobotsFetchReport {
        fetch,
        state: &state,
        target,
        agent,
    };
    let text = match format {
        OutputFormat::Text => report.to_text(),
        OutputFormat::Json => format!("{}\n", report.to_json()),
    };
    console::print(&text, exit)
}

struct RobotsFetchReport<'a> {
    fetch: &'a RobotsFetch,
    state: &'a RobotsState,
    target: &'a UrlTarget,
    agent: RobotsAgent<'a>,
}

impl RobotsFetchReport<'_> {
    fn to_text(&self) -> String {
        let url = self.fetch.url.as_ref().unwrap_or(self.target);
        let outcome = self.state.outcome.as_str();
        let status = self
            .state
            .status
            .map_or(String::new(), |status| format!(", status {status}"));
        let mut text = format!("{}\n", sanitize_text(url.as_str()));
        let _ = writeln!(text, "  outcome  {outcome}{status}");
        if let Some(fault) = self.state.fault {
            let _ = writeln!(text, "  failure  {}", fault.description);
        }
        let fresh = format_duration(self.state.fresh_for);
        let stale = format_duration(self.state.stale_for());
        let _ = writeln!(text, "  meaning  {}", self.meaning());
        if let Some(agent) = describe_agent(self.agent) {
            let _ = writeln!(text, "  agent    {agent}");
        }
        let _ = writeln!(text, "  valid    {fresh}");
        let _ = writeln!(text, "  stale    {stale} more, while it is fetched again");
        if let Some(rules) = self.state.file() {
            text.push_str(&self.file_text(rules));
        }
        text
    }

    fn file_text(&self, rules: &RobotsFile) -> String {
        let mut text = format!(
            "  file     {} bytes, {} known lines, {} unknown lines\n",
            rules.text().len(),
            rules.directives(),
            rules.unknown_lines()
        );
        for (label, value) in extensions::labeled_lines(rules, self.agent) {
            let _ = writeln!(text, "  {label:<8} {value}");
        }
        let answer = self.answer(rules).to_text(self.target.as_str());
        let _ = writeln!(text, "  {:<8} {answer}", self.agent.token());
        text
    }

    fn answer<'r>(&'r self, rules: &'r RobotsFile) -> RobotsCheckAnswer<'r> {
        RobotsCheckAnswer::new(rules, self.agent, self.target.path_and_query())
    }

    fn meaning(&self) -> &'static str {
        match self.state.rules {
            RobotsRules::File(_) => "the rules of the file apply",
            RobotsRules::AllowAll => "all URLs are allowed",
            RobotsRules::Unknown => "no URL is allowed until the file is available",
        }
    }

    fn to_json(&self) -> Json {
        let rules = self.state.file();
        let mut document = json!({
            "url": self.fetch.url.as_ref().map(UrlTarget::as_str),
            "outcome": self.state.outcome.as_str(),
            "status": self.state.status,
            "standing": match self.state.rules {
                RobotsRules::File(_) => "rules",
                RobotsRules::AllowAll => "allow_all",
                RobotsRules::Unknown => "unknown",
            },
            "holds": format_duration(self.state.fresh_for),
            "holds_on": format_duration(self.state.stale_for()),
            "bytes": rules.map(|rules| rules.text().len()),
            "ruling": rules.map(|rules| self.answer(rules).to_json(self.target.as_str())),
        });
        if let Json::Object(entries) = &mut document {
            entries.extend(extensions::to_json(rules, self.agent));
        }
        document
    }
}
