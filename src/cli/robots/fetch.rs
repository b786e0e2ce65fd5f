//! `crawlgate robots fetch`: a host's robots.txt, fetched as the proxy would, and what it means. Nobody's pace is known
//! here, so it is asked at once.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};
use tokio::runtime::Builder;

use crate::cli::args::{Format, RobotsFetchArgs};
use crate::cli::harmless::harmless;
use crate::cli::serve::robots_fetcher;
use crate::cli::{Exit, open, out};
use crate::clock::Clock;
use crate::config::load::Overrides;
use crate::config::settings::Settings;
use crate::gate::hold::{Hold, HoldLimits};
use crate::gate::robots::Errand;
use crate::metrics::Metrics;
use crate::policy::options::politeness::PaceKey;
use crate::politeness::order::Order;
use crate::politeness::pace::Pace;
use crate::proxy::clean::ViaName;
use crate::proxy::robots::Fetch;
use crate::robots::Parsed;
use crate::robots::agent::product_token;
use crate::robots::standing::{Known, Standing, Validators};
use crate::store::Store;
use crate::vocab::crawler::Crawler;
use crate::vocab::target::UrlTarget;
use crate::vocab::units::show_duration;
use crate::vocab::verify::Verify;

use super::{Answer, beyond};

/// Exit 1 if the file cannot be had.
pub(super) fn run(args: &RobotsFetchArgs) -> Exit {
    let agent = product_token(&args.agent);
    if agent.is_empty() {
        return out::complain(
            &"--agent has to begin with a product token: letters, digits, - and _",
        );
    }
    let target = match UrlTarget::parse(&args.url) {
        Ok(target) => target,
        Err(mistake) => return out::complain(&format!("{mistake}: {:?}", args.url)),
    };
    let overrides = Overrides {
        config: args.config.clone(),
        ..Overrides::default()
    };
    let settings = match open::settings(&overrides) {
        Ok(loaded) => loaded.settings,
        Err(exit) => return exit,
    };
    let clock = Clock::system();
    match fetched(&settings, &target, agent, &clock) {
        Ok(fetch) => told(&fetch, &target, agent, args.format, &clock),
        Err(mistake) => out::say_and_fail(&mistake),
    }
}

fn fetched(
    settings: &Settings,
    target: &UrlTarget,
    agent: &str,
    clock: &Clock,
) -> Result<Fetch, String> {
    let metrics = Metrics::new(&[], &[]).map_err(|error| error.to_string())?;
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    let limits = HoldLimits {
        of_one: 1,
        of_all: 1,
        longest: Duration::ZERO,
    };
    let hold = Hold::new(Store::embedded(), limits, clock.clone(), metrics.clone());
    let errand = Errand {
        agent: agent.into(),
        crawler: Crawler::anonymous(),
        key: PaceKey::Host,
        pace: Pace::FREE,
        per_address: None,
        order: Order::Weighted,
        hold: Arc::new(hold),
        verify: Verify::On,
    };
    runtime.block_on(async {
        let fetcher = robots_fetcher(settings, &metrics, clock, ViaName::new("robots"), vec![]);
        let fetcher = fetcher.map_err(|error| error.to_string())?;
        Ok(fetcher.fetch(target, &errand, Validators::default()).await)
    })
}

fn told(fetch: &Fetch, target: &UrlTarget, agent: &str, format: Format, clock: &Clock) -> Exit {
    let known = Known::after(None, &fetch.fetched(), clock.now());
    let exit = match known.standing {
        Standing::Rules(_) | Standing::AllowAll => Exit::Success,
        Standing::Unknown => Exit::Negative,
    };
    let told = Told {
        fetch,
        known: &known,
        target,
        agent,
    };
    let text = match format {
        Format::Text => told.to_text(),
        Format::Json => format!("{}\n", told.to_json()),
    };
    out::write(&text, exit)
}

/// What is told of a fetch.
struct Told<'a> {
    fetch: &'a Fetch,
    known: &'a Known,
    target: &'a UrlTarget,
    agent: &'a str,
}

impl Told<'_> {
    fn to_text(&self) -> String {
        let url = self.fetch.url.as_ref().unwrap_or(self.target);
        let status = self
            .known
            .status
            .map_or(String::new(), |status| format!(", status {status}"));
        let mut text = format!("{}\n", harmless(url.as_str()));
        text.push_str(&format!(
            "  outcome  {}{status}\n",
            self.known.ending.as_str()
        ));
        if let Some(fault) = self.known.fault {
            text.push_str(&format!("  failure  {}\n", fault.words));
        }
        text.push_str(&format!("  meaning  {}\n", self.meaning()));
        text.push_str(&format!(
            "  holds    {}\n",
            show_duration(self.known.holds_for)
        ));
        let past = show_duration(self.known.holds_on_for());
        text.push_str(&format!(
            "  then     {past} more while it is fetched anew\n"
        ));
        if let Some(rules) = self.known.rules() {
            text.push_str(&self.file(rules));
        }
        text
    }

    fn file(&self, rules: &Parsed) -> String {
        let (bytes, lines, unknown) = (rules.text().len(), rules.directives(), rules.unknown());
        let mut text = format!(
            "  file     {bytes} bytes, {lines} lines that are read, {unknown} with other keys\n"
        );
        for (word, value) in beyond::in_text(rules, self.agent) {
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

    fn answer<'r>(&self, rules: &'r Parsed) -> Answer<'r> {
        Answer::of(rules, self.agent, self.target.path_and_query())
    }

    fn meaning(&self) -> &'static str {
        match self.known.standing {
            Standing::Rules(_) => "its rules hold",
            Standing::AllowAll => "everything may be fetched",
            Standing::Unknown => "nothing may be fetched until it can be had",
        }
    }

    fn to_json(&self) -> Json {
        let rules = self.known.rules();
        let mut told = json!({
            "url": self.fetch.url.as_ref().map(UrlTarget::as_str),
            "outcome": self.known.ending.as_str(),
            "status": self.known.status,
            "standing": match self.known.standing {
                Standing::Rules(_) => "rules",
                Standing::AllowAll => "allow_all",
                Standing::Unknown => "unknown",
            },
            "holds": show_duration(self.known.holds_for),
            "holds_on": show_duration(self.known.holds_on_for()),
            "bytes": rules.map(|rules| rules.text().len()),
            "ruling": rules.map(|rules| self.answer(rules).to_json(self.target.as_str())),
        });
        if let Json::Object(told) = &mut told {
            told.extend(beyond::in_json(rules, self.agent));
        }
        told
    }
}
