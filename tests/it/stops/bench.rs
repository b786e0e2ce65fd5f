//! The gate alone, with time that stands still, for tests of stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crawlgate::clock::Clock;
use crawlgate::gate::hold::{Hold, HoldLimits, Slot};
use crawlgate::gate::judged::Asked;
use crawlgate::gate::refusal::Refusal;
use crawlgate::gate::request::{Outcome, Passage, Waits, Way, request};
use crawlgate::gate::robots::{Errand, Found, RobotsFiles};
use crawlgate::gate::snapshot::{InForce, Snapshot};
use crawlgate::gate::stops::Stops;
use crawlgate::metrics::Metrics;
use crawlgate::policy::compile;
use crawlgate::policy::source::MemoryFiles;
use crawlgate::robots::ending::Ending;
use crawlgate::robots::standing::{Fetched, Known};
use crawlgate::store::Store;
use crawlgate::vocab::crawler::Crawler;
use crawlgate::vocab::profile::Profile;
use crawlgate::vocab::reason::Reason;
use crawlgate::vocab::rule_id::Slug;
use crawlgate::vocab::target::UrlTarget;
use crawlgate::vocab::verify::Verify;
use tokio::task::JoinHandle;

use crate::support::way::Anywhere;

pub(super) const SECOND: Duration = Duration::from_secs(1);

/// Robots.txt that is known from the first fetch on, and allows all; before that, what an old fetch has come to, if there
/// was one.
#[derive(Clone, Default)]
pub(super) struct Files {
    fetched: Arc<AtomicUsize>,
    pub(super) before: Option<Ending>,
}

impl Files {
    pub(super) fn fetched(&self) -> usize {
        self.fetched.load(Ordering::SeqCst)
    }
}

/// All of one fetch, however often it is asked for: a newer one would have requests judged again.
fn known(ending: Ending) -> Arc<Known> {
    static FETCHED: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let now = *FETCHED.get_or_init(|| Clock::of_runtime().now());
    Arc::new(Known::after(None, &Fetched::failed(ending), now))
}

impl RobotsFiles for Files {
    fn known(&self, _: &UrlTarget, _: Verify) -> Option<Found> {
        if self.fetched() > 0 {
            return Some(Found::Fresh(known(Ending::Absent)));
        }
        self.before.map(|ending| Found::Past(known(ending)))
    }

    fn renew(&self, _: &UrlTarget, _: Verify, _: impl FnOnce() -> Errand) {}

    async fn fetch(&self, _: &UrlTarget, _: Errand) -> Arc<Known> {
        self.fetched.fetch_add(1, Ordering::SeqCst);
        known(Ending::Absent)
    }
}

#[derive(Clone)]
pub(super) struct Bench {
    pub(super) in_force: Arc<InForce<()>>,
    pub(super) hold: Arc<Hold>,
    metrics: Metrics,
    pub(super) files: Files,
    pub(super) clock: Clock,
}

/// What came of a request, and when.
pub(super) struct Came {
    pub(super) outcome: Result<Slot, Box<Refusal>>,
    pub(super) held: Option<Duration>,
    pub(super) revision: String,
    pub(super) at: Instant,
}

impl Bench {
    pub(super) fn new(politeness: &str, rules: &str) -> Self {
        Self::with_places(politeness, rules, 100)
    }

    pub(super) fn with_places(politeness: &str, rules: &str, of_all: usize) -> Self {
        let (clock, metrics) = (Clock::of_runtime(), Metrics::new(&[], &[]).unwrap());
        let limits = HoldLimits {
            of_one: 100,
            of_all,
            longest: 60 * SECOND,
        };
        let hold = Arc::new(Hold::new(
            Store::embedded(),
            limits,
            clock.clone(),
            metrics.clone(),
        ));
        let in_force = Arc::new(InForce::new(snapshot(politeness, rules)));
        Self {
            in_force,
            hold,
            metrics,
            files: Files::default(),
            clock,
        }
    }

    pub(super) fn stops(&self) -> &Stops {
        self.hold.stops()
    }

    pub(super) async fn ask(&self, crawler: &Crawler, url: &str, fields: &[(&str, &str)]) -> Came {
        let mut head = http::Request::builder().uri(url);
        for (name, value) in fields {
            head = head.header(*name, *value);
        }
        let (parts, ()) = head.body(()).unwrap().into_parts();
        let asked = Asked::new(UrlTarget::parse(url).unwrap(), crawler.clone(), &parts);
        let waits = Waits {
            hold: &self.hold,
            profile: &|| Profile::Generic,
        };
        let way = Way {
            destinations: &Anywhere,
            robots: &self.files,
            in_force: &self.in_force,
            waits,
            ledger: None,
        };
        let Passage {
            outcome,
            judged,
            held,
        } = request(asked, self.in_force.load(), &way).await;
        let outcome = match outcome {
            Outcome::Forward(permit) => Ok(permit.redeem().2),
            Outcome::Robots(_) => panic!("nobody asks for a robots.txt"),
            Outcome::Answer(refusal) => Err(refusal),
        };
        let revision = judged.policy().revision().to_owned();
        Came {
            outcome,
            held,
            revision,
            at: self.clock.now(),
        }
    }

    pub(super) fn start(&self, url: &str) -> JoinHandle<Came> {
        let (bench, url) = (self.clone(), url.to_owned());
        tokio::spawn(async move { bench.ask(&Crawler::anonymous(), &url, &[]).await })
    }

    pub(super) fn gauge(&self, name: &str) -> f64 {
        self.hold.sweep();
        let text = self.metrics.render();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name}")).parse().unwrap()
    }
}

impl Came {
    pub(super) fn went(self) -> (Slot, Option<Duration>) {
        (
            self.outcome.unwrap_or_else(|refusal| panic!("{refusal:?}")),
            self.held,
        )
    }

    /// The reason, and the seconds of `Retry-After`.
    pub(super) fn refused(self) -> (Reason, Option<u64>) {
        let refusal = self.outcome.unwrap_err();
        (
            refusal.reason,
            refusal.retry_after.map(|time| time.as_secs()),
        )
    }
}

pub(super) fn snapshot(politeness: &str, rules: &str) -> Snapshot<()> {
    let text = format!(
        "policy: 1\nname: p\noptions: {{ disposition: allow, politeness: {politeness} }}\nrules: [{rules}]\n"
    );
    let compiled = compile::load(&MemoryFiles::new().with("p.yaml", text), "p.yaml");
    Snapshot::new(
        compiled
            .unwrap_or_else(|problems| panic!("{problems:?}"))
            .policy,
        (),
    )
}

pub(super) fn crawler(name: &str) -> Crawler {
    Crawler::new(&Slug::new(name).unwrap())
}

pub(super) const FREE: &str = "{ delay: 0s, max_hold: 20s }";
