//! `crawlgate robots fetch`: a host's robots.txt, fetched as the proxy would, and what it means. Nobody's pace is known
//! here, so it is asked at once.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::runtime::Builder;

use crate::cli::args::{OutputFormat, RobotsFetchArgs};
use crate::cli::sanitize::sanitize_text;
use crate::cli::{Exit, console, inputs};
use crate::clock::Clock;
use crate::config::load::Overrides;
use crate::config::settings::Settings;
use crate::metrics::Metrics;
use crate::model::certificate_verification::CertificateVerification;
use crate::model::crawler::Crawler;
use crate::model::units::format_duration;
use crate::pacing::pace::HostPace;
use crate::pacing::queue::WaitOrder;
use crate::pipeline::admission::{AdmissionLimits, AdmissionQueue};
use crate::pipeline::robots_fetch::RobotsFetchRequest;
use crate::policy::options::politeness::PaceKey;
use crate::proxy::header_filter::ViaName;
use crate::proxy::robots::RobotsFetch;
use crate::robots::RobotsFile;
use crate::robots::product_token::product_token;
use crate::robots::state::{RobotsRules, RobotsState, RobotsValidators};
use crate::server::new_robots_fetcher;
use crate::store::HostStore;
use crate::urls::target::UrlTarget;

use super::{RobotsCheckAnswer, extensions};

/// Exit 1 if the file cannot be had.
pub(super) fn run(args: &RobotsFetchArgs) -> Exit {
    let agent = product_token(&args.agent);
    if agent.is_empty() {
        return console::report_invalid(
            &"--agent has to begin with a product token: letters, digits, - and _",
        );
    }
    let target = match UrlTarget::parse(&args.url) {
        Ok(target) => target,
        Err(mistake) => return console::report_invalid(&format!("{mistake}: {:?}", args.url)),
    };
    let overrides = Overrides {
        config: args.config.clone(),
        ..Overrides::default()
    };
    let settings = match inputs::load_settings(&overrides) {
        Ok(loaded) => loaded.settings,
        Err(exit) => return exit,
    };
    let clock = Clock::system();
    match fetch_robots(&settings, &target, agent, &clock) {
        Ok(fetch) => print_report(&fetch, &target, agent, args.format, &clock),
        Err(mistake) => console::report_cannot_run(&mistake),
    }
}

fn fetch_robots(
    settings: &Settings,
    target: &UrlTarget,
    agent: &str,
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
    let hold = AdmissionQueue::new(HostStore::new(), limits, clock.clone(), metrics.clone());
    let errand = RobotsFetchRequest {
        agent: agent.into(),
        crawler: Crawler::anonymous(),
        key: PaceKey::Host,
        pace: HostPace::UNLIMITED,
        per_address: None,
        order: WaitOrder::Weighted,
        admission: Arc::new(hold),
        verify: CertificateVerification::On,
    };
    runtime.block_on(async {
        let fetcher = new_robots_fetcher(settings, &metrics, clock, ViaName::new("robots"), vec![]);
        let fetcher = fetcher.map_err(|error| error.to_string())?;
        Ok(fetcher
            .fetch(target, &errand, RobotsValidators::default())
            .await)
    })
}

fn print_report(
    fetch: &RobotsFetch,
    target: &UrlTarget,
    agent: &str,
    format: OutputFormat,
    clock: &Clock,
) -> Exit {
    let known = RobotsState::from_fetch(None, &fetch.fetched(), clock.now());
    let exit = match known.rules {
        RobotsRules::File(_) | RobotsRules::AllowAll => Exit::Success,
        RobotsRules::Unknown => Exit::Negative,
    };
    let told = RobotsFetchReport {
        fetch,
        known: &known,
        target,
        agent,
    };
    let text = match format {
        OutputFormat::Text => told.to_text(),
        OutputFormat::Json => format!("{}\n", told.to_json()),
    };
    console::print(&text, exit)
}

/// What is told of a fetch.
struct RobotsFetchReport<'a> {
    fetch: &'a RobotsFetch,
    known: &'a RobotsState,
    target: &'a UrlTarget,
    agent: &'a str,
}

impl RobotsFetchReport<'_> {
    fn to_text(&self) -> String {
        let url = self.fetch.url.as_ref().unwrap_or(self.target);
        let status = self
            .known
            .status
            .map_or(String::new(), |status| format!(", status {status}"));
        let mut text = format!("{}\n", sanitize_text(url.as_str()));
        text.push_str(&format!(
            "  outcome  {}{status}\n",
            self.known.outcome.as_str()
        ));
        if let Some(fault) = self.known.fault {
            text.push_str(&format!("  failure  {}\n", fault.description));
        }
        text.push_str(&format!("  meaning  {}\n", self.meaning()));
        text.push_str(&format!(
            "  holds    {}\n",
            format_duration(self.known.fresh_for)
        ));
        let past = format_duration(self.known.stale_for());
        text.push_str(&format!(
            "  then     {past} more while it is fetched anew\n"
        ));
        if let Some(rules) = self.known.file() {
            text.push_str(&self.file_text(rules));
        }
        text
    }

    fn file_text(&self, rules: &RobotsFile) -> String {
        let (bytes, lines, unknown) = (
            rules.text().len(),
            rules.directives(),
            rules.unknown_lines(),
        );
        let mut text = format!(
            "  file     {bytes} bytes, {lines} lines that are read, {unknown} with other keys\n"
        );
        for (word, value) in extensions::labeled_lines(rules, self.agent) {
            text.push_str(&format!("  {word:<8} {value}\n"));
        }
        let answer = self.answer(rules);
        text.push_str(&format!(
            "  {:<8} {}\n",
            self.agent,
            answer.to_text(self.target.as_str())
        ));
        text
    }

    fn answer<'r>(&self, rules: &'r RobotsFile) -> RobotsCheckAnswer<'r> {
        RobotsCheckAnswer::new(rules, self.agent, self.target.path_and_query())
    }

    fn meaning(&self) -> &'static str {
        match self.known.rules {
            RobotsRules::File(_) => "its rules hold",
            RobotsRules::AllowAll => "everything may be fetched",
            RobotsRules::Unknown => "nothing may be fetched until it can be had",
        }
    }

    fn to_json(&self) -> Json {
        let rules = self.known.file();
        let mut told = json!({
            "url": self.fetch.url.as_ref().map(UrlTarget::as_str),
            "outcome": self.known.outcome.as_str(),
            "status": self.known.status,
            "standing": match self.known.rules {
                RobotsRules::File(_) => "rules",
                RobotsRules::AllowAll => "allow_all",
                RobotsRules::Unknown => "unknown",
            },
            "holds": format_duration(self.known.fresh_for),
            "holds_on": format_duration(self.known.stale_for()),
            "bytes": rules.map(|rules| rules.text().len()),
            "ruling": rules.map(|rules| self.answer(rules).to_json(self.target.as_str())),
        });
        if let Json::Object(told) = &mut told {
            told.extend(extensions::to_json(rules, self.agent));
        }
        told
    }
}
