//! Safe removals: the grace time, the share above which removals are held, and policies that are taken back.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crawlgate::clock::{Clock, ManualClock};
use crawlgate::ledger::event::LedgerEventKind;
use crawlgate::ledger::key::LedgerKey;
use crawlgate::ledger::observation::{
    BadOutcome, DeliveredDocument, ObservationOutcome, ObservedRefusal, ObservedResponse,
    RefusalRecording,
};
use crawlgate::ledger::record::{IndexState, LedgerRecord, UnixMillis};
use crawlgate::ledger::removal::{
    RemovalAccount, RemovalCauseKind, RemovalGuardSettings, RemovalSchedule,
};
use crawlgate::metrics::Metrics;
use crawlgate::model::certificate_verification::CertificateVerification;
use crawlgate::model::crawl_status::CrawlStatus;
use crawlgate::model::crawler::Crawler;
use crawlgate::model::removal::{RemovalAction, RemovalOutcome};
use crawlgate::model::rule_id::Slug;
use crawlgate::pipeline::admission::{AdmissionLimits, AdmissionQueue};
use crawlgate::pipeline::robots_fetch::{CachedRobots, RobotsFetchRequest, RobotsProvider};
use crawlgate::pipeline::sweep::removals::{RemovalScheduler, RobotsSource};
use crawlgate::pipeline::sweep::{LedgerSweeper, SweepMode};
use crawlgate::policy::Policy;
use crawlgate::robots::fetch_outcome::RobotsFetchOutcome;
use crawlgate::robots::state::{RobotsFetchResult, RobotsState};
use crawlgate::store::HostStore;
use crawlgate::store::ledger::{FeedCursor, Ledger, LedgerSettings, LedgerUpdate};
use crawlgate::urls::target::UrlTarget;

use crate::support::ledger::{delivered, observation};
use crate::support::pipeline::{ScriptedRobots, ScriptedState, snapshot_of};
use crate::support::policy::compile_policy;
use crate::support::temp_dir::TempDir;
use crate::support::wait::paused_runtime;

const URLS: usize = 2_000;
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(86_400);
/// 2026-01-01T00:00:00Z, when a manual clock begins.
const START: u64 = 1_767_225_600_000;

fn policy(rules: &str) -> Arc<Policy> {
    policy_with("removal: { robots_txt: remove }", rules)
}

fn policy_with(options: &str, rules: &str) -> Arc<Policy> {
    let text = format!("policy: 1\nname: t\noptions: {{ disposition: allow, {options} }}\n{rules}");
    Arc::new(compile_policy(text).policy)
}

fn good() -> Arc<Policy> {
    policy("rules: []\n")
}

/// `require` where `forbid` was meant.
fn bad() -> Arc<Policy> {
    policy("rules: [{ id: oops, require: { under: /private }, reject: gone }]\n")
}

/// A policy with the same mistake and another revision.
fn still_bad() -> Arc<Policy> {
    policy("rules: [{ id: oops, require: { under: /secret }, reject: gone }]\n")
}

fn url(n: usize) -> String {
    format!("http://h.test/{n}")
}

fn page() -> ObservationOutcome {
    delivered(DeliveredDocument::default())
}

/// A ledger, a sweeper and a scheduler of removals, whose steps the test takes.
struct Bench {
    ledger: Ledger,
    sweeper: LedgerSweeper,
    scheduler: RemovalScheduler,
    robots: FetchedRobots,
    admission: Arc<AdmissionQueue>,
    clock: Clock,
    manual_clock: ManualClock,
}

/// The robots.txt of every host, which the scheduler has fetched if it needs to.
struct FetchedRobots {
    clock: Clock,
    known: Mutex<Option<ScriptedState>>,
    /// The only base URL that has the known state; `None` for all.
    known_base: Option<&'static str>,
    /// The result of a fetch; `None` if it does not end.
    next: Option<RobotsTxt>,
    /// The bases of the URLs, and the product tokens, of the fetches.
    fetches: Mutex<Vec<(String, Box<str>)>>,
}

/// A robots.txt in a test.
#[derive(Clone, Copy, Debug)]
enum RobotsTxt {
    Absent,
    Failing,
    /// With these lines.
    File(&'static str),
}

/// Forbids everything to the crawler `newsbot`.
const FORBIDDING: RobotsTxt = RobotsTxt::File("User-agent: newsbot\nDisallow: /\n");
/// Forbids the URLs of these tests to nobody.
const OTHER: RobotsTxt = RobotsTxt::File("User-agent: newsbot\nDisallow: /other\n");

impl RobotsTxt {
    /// The state after it was fetched.
    fn fetched_at(self, at: Instant) -> Arc<RobotsState> {
        let failed = RobotsFetchResult::failed;
        let fetched = match self {
            Self::Absent => failed(RobotsFetchOutcome::Absent),
            Self::Failing => failed(RobotsFetchOutcome::ServerError),
            Self::File(lines) => RobotsFetchResult {
                status: Some(200),
                body: lines.as_bytes(),
                ..failed(RobotsFetchOutcome::File)
            },
        };
        Arc::new(RobotsState::from_fetch(None, &fetched, at))
    }
}

impl FetchedRobots {
    fn new(clock: &Clock) -> Self {
        Self {
            clock: clock.clone(),
            known: Mutex::default(),
            known_base: None,
            next: None,
            fetches: Mutex::default(),
        }
    }

    /// Sets a state that was fetched just now.
    fn set_known(&self, robots: RobotsTxt) {
        let state = robots.fetched_at(self.clock.now());
        *self.known.lock().unwrap() = Some(ScriptedState::Fresh(state));
    }

    fn fetches(&self) -> usize {
        self.fetches.lock().unwrap().len()
    }
}

impl RobotsProvider for FetchedRobots {
    fn cached(&self, target: &UrlTarget, _: CertificateVerification) -> Option<CachedRobots> {
        if self.known_base.is_some_and(|base| base != target.base()) {
            return None;
        }
        let known = self.known.lock().unwrap();
        known.as_ref().and_then(ScriptedState::cached)
    }

    fn last_known(&self, _: &UrlTarget, _: CertificateVerification) -> Option<Arc<RobotsState>> {
        panic!("no request reads it");
    }

    fn refresh(
        &self,
        target: &UrlTarget,
        _: CertificateVerification,
        newer_than: Option<Instant>,
        request: impl FnOnce() -> RobotsFetchRequest,
    ) {
        assert!(newer_than.is_some_and(|time| time < self.clock.now()));
        let fetch = (target.base().to_owned(), request().agent);
        self.fetches.lock().unwrap().push(fetch);
        if let Some(next) = self.next {
            self.set_known(next);
        }
    }

    async fn fetch(&self, _: &UrlTarget, _: RobotsFetchRequest) -> Arc<RobotsState> {
        panic!("nobody waits");
    }
}

impl Bench {
    fn new(settings: RemovalGuardSettings) -> Self {
        let ledger = Ledger::in_memory_with(LedgerSettings {
            removals: RemovalSchedule::Deferred,
            ..LedgerSettings::default()
        });
        for n in 0..URLS {
            ledger.record(observation("news", &url(n), START, page()));
        }
        let (clock, manual_clock) = Clock::manual();
        Self {
            ledger,
            sweeper: LedgerSweeper::new(1_000_000, clock.clone()),
            scheduler: scheduler(settings, &clock),
            robots: FetchedRobots::new(&clock),
            admission: admission(&clock),
            clock,
            manual_clock,
        }
    }

    /// Makes a policy the active one, and sweeps for it.
    async fn activate(&self, policy: &Arc<Policy>) {
        self.sweeper.resume(&self.ledger, policy).await;
        self.ledger.flush().await;
    }

    async fn order(&self, policy: &Arc<Policy>) {
        self.order_by(&self.scheduler, policy).await;
    }

    async fn order_by(&self, scheduler: &RemovalScheduler, policy: &Arc<Policy>) {
        let source = RobotsSource {
            robots: &self.robots,
            admission: &self.admission,
        };
        let snapshot = Arc::new(snapshot_of(Arc::clone(policy)));
        let ordered = scheduler.order_due(&self.ledger, &snapshot, &source).await;
        ordered.unwrap();
        self.ledger.flush().await;
    }

    fn pending(&self, kind: RemovalCauseKind) -> u64 {
        self.ledger.stats().pending_removals[&kind]
    }

    fn record(&self, n: usize) -> Arc<LedgerRecord> {
        self.ledger
            .look_up(LedgerKey::for_url("news", &url(n)))
            .unwrap()
    }

    /// Records that a URL is refused before its origin is asked.
    fn refuse_by_robots_txt(&self, n: usize, action: RemovalAction) {
        self.refuse_url_by_robots_txt(&url(n), action);
    }

    /// Records that the document of a URL is refused.
    fn refuse_by_noindex(&self, n: usize) {
        let refusal = ObservationOutcome::Answered(ObservedResponse {
            status: 200,
            crawl_status: CrawlStatus::Noindex,
            code: None,
            failure: None,
            removal: Some(BadOutcome {
                outcome: RemovalOutcome::Noindex,
                action: RemovalAction::Remove,
            }),
            document: None,
            recording: RefusalRecording::Keep,
        });
        let now = START + self.elapsed();
        self.ledger
            .record(observation("news", &url(n), now, refusal));
    }

    fn refuse_url_by_robots_txt(&self, url: &str, action: RemovalAction) {
        let refused = self.refused_by_robots_txt(url, action);
        self.ledger.record(refused);
    }

    fn refused_by_robots_txt(&self, url: &str, action: RemovalAction) -> LedgerUpdate {
        let refusal = ObservationOutcome::Refused(ObservedRefusal {
            crawl_status: CrawlStatus::RobotsTxt,
            code: None,
            removal: Some(BadOutcome {
                outcome: RemovalOutcome::RobotsTxt,
                action,
            }),
            recording: RefusalRecording::Skip,
        });
        let now = START + self.elapsed();
        observation("news", url, now, refusal)
    }

    fn elapsed(&self) -> u64 {
        let since = self
            .clock
            .wall_time()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        since.as_millis() as u64 - START
    }
}

fn admission(clock: &Clock) -> Arc<AdmissionQueue> {
    let limits = AdmissionLimits {
        per_host: 10,
        total: 10,
        max_wait: MINUTE,
    };
    let metrics = Metrics::new(&[], &[]).unwrap();
    Arc::new(AdmissionQueue::new(
        HostStore::new(),
        limits,
        clock.clone(),
        metrics,
    ))
}

fn scheduler(settings: RemovalGuardSettings, clock: &Clock) -> RemovalScheduler {
    let crawlers: Arc<[Crawler]> = Arc::default();
    RemovalScheduler::new(settings, 1_000_000, crawlers, clock.clone())
}

/// The number of removals of each URL.
fn removals(ledger: &Ledger) -> BTreeMap<String, usize> {
    count_events(ledger, LedgerEventKind::Removal)
}

/// The number of events of a kind of each URL.
fn count_events(ledger: &Ledger, kind: LedgerEventKind) -> BTreeMap<String, usize> {
    let mut count = BTreeMap::new();
    let events = ledger.events(FeedCursor(0), usize::MAX).unwrap();
    for (_, event) in events.iter().filter(|(_, event)| event.kind == kind) {
        *count.entry(event.url.to_string()).or_default() += 1;
    }
    count
}

#[test]
fn a_policy_that_is_taken_back_within_the_grace_time_removes_nothing() {
    paused_runtime().block_on(async {
        let bench = Bench::new(RemovalGuardSettings::default());
        bench.activate(&good()).await;
        bench.activate(&bad()).await;
        assert_eq!(bench.pending(RemovalCauseKind::Policy), URLS as u64);
        bench.order(&bad()).await;
        let record = bench.record(7);
        assert_eq!(record.index_state, IndexState::Possible);
        assert_eq!(record.status.0, CrawlStatus::Filter);
        bench.manual_clock.advance(Duration::from_secs(1));
        // Long after that, but before the sweep has examined a single URL.
        bench.manual_clock.advance(DAY);
        bench.order(&good()).await;
        assert_eq!(removals(&bench.ledger), BTreeMap::new());
        bench.activate(&good()).await;
        assert_eq!(bench.pending(RemovalCauseKind::Policy), 0);
        assert_eq!(bench.record(7).status.0, CrawlStatus::Accepted);
        bench.order(&bad()).await;
        assert_eq!(removals(&bench.ledger), BTreeMap::new());
    });
}

/// A policy that only refuses for now says nothing about the index, and leaves no removal of the one before it.
#[test]
fn a_policy_that_refuses_for_now_cancels_the_removals_of_another_one() {
    paused_runtime().block_on(async {
        let bench = Bench::new(RemovalGuardSettings::default());
        bench.activate(&bad()).await;
        let later = policy("rules: [{ id: later, forbid: { host: h.test }, reject: later }]\n");
        bench.activate(&later).await;
        assert_eq!(bench.pending(RemovalCauseKind::Policy), 0);
        bench.manual_clock.advance(DAY);
        bench.order(&later).await;
        assert_eq!(removals(&bench.ledger).len(), 0);
    });
}

#[test]
fn removals_by_a_mistake_are_held_at_the_share_until_they_are_confirmed() {
    paused_runtime().block_on(async {
        let bench = Bench::new(RemovalGuardSettings::default());
        bench.activate(&bad()).await;
        bench.manual_clock.advance(9 * MINUTE);
        bench.order(&bad()).await;
        assert_eq!(removals(&bench.ledger).len(), 0, "the grace time");
        bench.manual_clock.advance(MINUTE);
        bench.order(&bad()).await;
        assert_eq!(removals(&bench.ledger).len(), 100);
        let held = bench.scheduler.held();
        assert_eq!(
            (held.len(), held[0].count, held[0].held.limit),
            (1, 1_900, 100)
        );
        let cause = format!("policy:{}", bad().revision());
        assert_eq!(held[0].held.cause.to_string(), cause);

        // Neither time, nor the same mistake in other words, nor a restart releases them.
        bench.manual_clock.advance(2 * DAY);
        bench.order(&bad()).await;
        bench.activate(&still_bad()).await;
        bench.order(&still_bad()).await;
        let restarted = scheduler(RemovalGuardSettings::default(), &bench.clock);
        bench.order_by(&restarted, &still_bad()).await;
        assert_eq!(restarted.held().len(), 1);
        assert_eq!(removals(&bench.ledger).len(), 100);
        assert_eq!(bench.scheduler.held()[0].count, 1_900);

        let robots = RemovalAccount::RobotsTxt("h.test".into());
        assert!(
            bench
                .scheduler
                .confirm(&bench.ledger, Some(&robots))
                .is_empty()
        );
        assert_eq!(bench.scheduler.confirm(&bench.ledger, None).len(), 1);
        bench.order(&still_bad()).await;
        let removed = removals(&bench.ledger);
        assert_eq!(removed.len(), URLS);
        assert!(removed.values().all(|count| *count == 1));
        assert_eq!(bench.pending(RemovalCauseKind::Policy), 0);
        bench.order(&still_bad()).await;
        assert_eq!(
            (bench.scheduler.held().len(), removals(&bench.ledger).len()),
            (0, URLS)
        );

        // The policy is corrected: every URL is restored.
        bench.activate(&good()).await;
        bench.order(&good()).await;
        let restored = count_events(&bench.ledger, LedgerEventKind::Restored);
        assert_eq!(restored.len(), URLS);
        assert!(restored.values().all(|count| *count == 1));
        assert_eq!(removals(&bench.ledger), removed);
        assert_eq!(bench.record(7).index_state, IndexState::Restored);
    });
}

#[test]
fn the_share_is_that_of_the_index() {
    paused_runtime().block_on(async {
        let settings = RemovalGuardSettings {
            hold: Some(20),
            grace: Duration::ZERO,
        };
        let bench = Bench::new(settings);
        bench.activate(&bad()).await;
        bench.order(&bad()).await;
        assert_eq!(removals(&bench.ledger).len(), URLS / 5);
        assert_eq!(bench.scheduler.held()[0].count, URLS as u64 * 4 / 5);
        // A policy that allows the rest ends the hold.
        bench.activate(&good()).await;
        bench.order(&good()).await;
        assert_eq!(bench.scheduler.held(), []);
    });
}

#[test]
fn what_is_allowed_again_is_not_removed() {
    paused_runtime().block_on(async {
        let bench = Bench::new(RemovalGuardSettings::default());
        bench.activate(&good()).await;
        for n in 0..3 {
            bench.refuse_by_robots_txt(n, RemovalAction::Remove);
        }
        bench.ledger.flush().await;
        assert_eq!(bench.pending(RemovalCauseKind::RobotsTxt), 3);
        // The policy does not know about robots.txt.
        let since = bench.record(1).pending_removal.as_ref().unwrap().since;
        assert_eq!(since, UnixMillis(START));
        bench.manual_clock.advance(5 * MINUTE);
        bench
            .sweeper
            .sweep(&bench.ledger, &good(), SweepMode::ForGood)
            .await;
        bench.refuse_by_robots_txt(0, RemovalAction::Remove);
        bench.refuse_by_robots_txt(1, RemovalAction::Keep);
        bench
            .ledger
            .record(observation("news", &url(2), START, page()));
        bench.ledger.flush().await;
        assert_eq!(bench.pending(RemovalCauseKind::RobotsTxt), 1);
        bench.manual_clock.advance(5 * MINUTE);
        let forbidding = RobotsTxt::File("User-agent: *\nDisallow: /\n");
        bench.robots.set_known(forbidding);
        bench.order(&good()).await;
        let removed: Vec<String> = removals(&bench.ledger).into_keys().collect();
        assert_eq!(removed, [url(0)], "ten minutes after the first refusal");
    });
}

/// The time of a fetch.
#[derive(Clone, Copy, Debug)]
enum FetchTime {
    /// Before it refused the URL.
    BeforeRefusal,
    AfterRefusal,
}

/// The file as it is fetched after the refusal decides.
#[test]
fn a_removal_by_robots_txt_is_confirmed_by_a_newer_file() {
    use FetchTime::{AfterRefusal, BeforeRefusal};
    use RobotsTxt::{Absent, Failing};
    use ScriptedState::{Expired, Fresh};
    type ToScripted = fn(Arc<RobotsState>) -> ScriptedState;
    // The file in the cache and the one that a fetch returns; the numbers of removed and pending URLs, and of fetches.
    let fresh: ToScripted = Fresh;
    let expired: ToScripted = Expired;
    let cases = [
        (Some((fresh, Absent, AfterRefusal)), None, (0, 0, 0)),
        (Some((fresh, FORBIDDING, AfterRefusal)), None, (1, 0, 0)),
        (Some((fresh, OTHER, AfterRefusal)), None, (0, 0, 0)),
        // The state that has refused the URL does not confirm that.
        (Some((fresh, FORBIDDING, BeforeRefusal)), None, (0, 1, 2)),
        (
            Some((fresh, FORBIDDING, BeforeRefusal)),
            Some(OTHER),
            (0, 0, 1),
        ),
        (
            Some((fresh, FORBIDDING, BeforeRefusal)),
            Some(FORBIDDING),
            (1, 0, 1),
        ),
        // A file that is not known, or is out of date.
        (None, Some(FORBIDDING), (1, 0, 1)),
        (None, Some(Absent), (0, 0, 1)),
        (
            Some((expired, FORBIDDING, AfterRefusal)),
            Some(OTHER),
            (0, 0, 1),
        ),
        (
            Some((expired, OTHER, AfterRefusal)),
            Some(FORBIDDING),
            (1, 0, 1),
        ),
        (None, Some(Failing), (0, 1, 2)),
        (None, None, (0, 1, 2)),
    ];
    paused_runtime().block_on(async {
        for (row, (known, next, expected)) in cases.into_iter().enumerate() {
            let mut bench = Bench::new(RemovalGuardSettings::default());
            bench.robots.next = next;
            let before = bench.clock.now();
            let slug = Slug::new("news").unwrap();
            let crawler = Crawler::new(&slug).with_robots_agent("newsbot");
            bench.scheduler = RemovalScheduler::new(
                RemovalGuardSettings::default(),
                1_000_000,
                [crawler].into(),
                bench.clock.clone(),
            );
            bench.refuse_by_robots_txt(0, RemovalAction::Remove);
            bench.ledger.flush().await;
            bench.manual_clock.advance(10 * MINUTE);
            *bench.robots.known.lock().unwrap() = known.map(|(to_scripted, robots, time)| {
                to_scripted(robots.fetched_at(match time {
                    BeforeRefusal => before,
                    AfterRefusal => bench.clock.now(),
                }))
            });
            bench.order(&good()).await;
            // By now the fetch has ended.
            bench.order(&good()).await;
            let found = (
                removals(&bench.ledger).len(),
                bench.pending(RemovalCauseKind::RobotsTxt),
                bench.robots.fetches(),
            );
            assert_eq!(found, expected, "row {row}");
        }
    });
}

/// Without a product token in the policy or the configuration, that of the refused request chooses the group.
#[test]
fn the_user_agent_of_the_refused_request_chooses_the_group() {
    const CORRECTED: RobotsTxt = RobotsTxt::File("User-agent: *\nDisallow:\n");
    const ALL_BUT_NEWSBOT: RobotsTxt =
        RobotsTxt::File("User-agent: newsbot\nDisallow:\n\nUser-agent: *\nDisallow: /\n");
    let compatible = "Mozilla/5.0 (compatible; NewsBot/2.0)";
    let cases = [
        (Some("NewsBot/2.0"), FORBIDDING, 1),
        (Some(compatible), FORBIDDING, 1),
        (Some("other/1"), FORBIDDING, 0),
        (None, FORBIDDING, 0),
        (Some("NewsBot/2.0"), ALL_BUT_NEWSBOT, 0),
        (Some("other/1"), ALL_BUT_NEWSBOT, 1),
        (None, ALL_BUT_NEWSBOT, 1),
        (Some("other/1"), CORRECTED, 0),
        (None, CORRECTED, 0),
    ];
    paused_runtime().block_on(async {
        for (user_agent, robots, expected) in cases {
            let bench = Bench::new(RemovalGuardSettings::default());
            let mut refused = bench.refused_by_robots_txt(&url(0), RemovalAction::Remove);
            refused.observation.user_agent = user_agent.map(Into::into);
            bench.ledger.record(refused);
            bench.ledger.flush().await;
            bench.manual_clock.advance(10 * MINUTE);
            bench.robots.set_known(robots);
            bench.order(&good()).await;
            let found = removals(&bench.ledger).len();
            assert_eq!(found, expected, "{user_agent:?}: {robots:?}");
            assert_eq!(bench.pending(RemovalCauseKind::RobotsTxt), 0);
        }
    });
}

/// Only what is known decides, if a policy refuses the host by now.
#[test]
fn a_host_that_the_policy_refuses_is_not_contacted_to_confirm_a_removal() {
    let by_host = "rules: [{ id: no, forbid: { host: h.test }, reject: keep }]\n";
    let for_now = "rules: [{ id: no, forbid: { host: h.test }, reject: later }]\n";
    let by_address = "rules: [{ id: no, forbid: { address: [ 192.0.2.0/24 ] }, reject: keep }]\n";
    // The file in the cache, fetched after the refusal; the numbers of removed and of pending URLs.
    let known = [
        (None, (0, 1)),
        (Some(RobotsTxt::Absent), (0, 0)),
        (Some(FORBIDDING), (1, 0)),
    ];
    paused_runtime().block_on(async {
        for rules in [by_host, for_now, by_address] {
            for (known, expected) in known {
                let mut bench = Bench::new(RemovalGuardSettings::default());
                bench.robots.next = Some(FORBIDDING);
                let mut fetched = observation("news", &url(0), START, page());
                fetched.observation.address = "192.0.2.7".parse().ok();
                bench.ledger.record(fetched);
                bench.refuse_by_robots_txt(0, RemovalAction::Remove);
                bench.ledger.flush().await;
                bench.manual_clock.advance(10 * MINUTE);
                if let Some(known) = known {
                    bench.robots.set_known(known);
                }
                let refusing = policy_with(
                    "robots: { agent: newsbot }, removal: { robots_txt: remove }",
                    rules,
                );
                bench.order(&refusing).await;
                bench.order(&refusing).await;
                let found = (
                    removals(&bench.ledger).len(),
                    bench.pending(RemovalCauseKind::RobotsTxt),
                );
                assert_eq!(found, expected, "{rules}: {known:?}");
                assert_eq!(bench.robots.fetches(), 0, "{rules}: {known:?}");
            }
        }
    });
}

/// `removal: norconex` was loaded by mistake, and is taken back within the grace time.
#[test]
fn a_choice_of_removals_that_is_taken_back_orders_nothing() {
    paused_runtime().block_on(async {
        let bench = Bench::new(RemovalGuardSettings::default());
        bench.refuse_by_robots_txt(0, RemovalAction::Remove);
        bench.refuse_by_noindex(1);
        bench.ledger.flush().await;
        bench.manual_clock.advance(10 * MINUTE);
        bench.robots.set_known(FORBIDDING);
        bench
            .order(&policy_with("robots: { agent: newsbot }", "rules: []\n"))
            .await;
        assert_eq!(removals(&bench.ledger), BTreeMap::new());
        assert_eq!(bench.pending(RemovalCauseKind::RobotsTxt), 0);
        assert_eq!(bench.pending(RemovalCauseKind::Noindex), 0);
    });
}

/// All of them are examined in a pass, at the pace of the scheduler; the file of each base is requested once.
#[test]
fn removals_that_cannot_be_confirmed_stay_pending() {
    paused_runtime().block_on(async {
        let mut bench = Bench::new(RemovalGuardSettings {
            hold: None,
            grace: MINUTE,
        });
        let crawlers: Arc<[Crawler]> = Arc::default();
        let settings = bench.scheduler.settings();
        bench.scheduler = RemovalScheduler::new(settings, 100, crawlers, bench.clock.clone());
        for n in 0..URLS {
            bench.refuse_by_robots_txt(n, RemovalAction::Remove);
        }
        bench.ledger.flush().await;
        bench.manual_clock.advance(MINUTE);
        let began = tokio::time::Instant::now();
        bench.order(&good()).await;
        let time = began.elapsed();
        assert!(time >= Duration::from_secs(20), "{time:?} for {URLS} URLs");
        assert_eq!(bench.robots.fetches(), 1);
        assert_eq!(bench.pending(RemovalCauseKind::RobotsTxt), URLS as u64);
        bench.robots.set_known(RobotsTxt::Absent);
        bench.order(&good()).await;
        assert_eq!(bench.pending(RemovalCauseKind::RobotsTxt), 0);
        assert_eq!(removals(&bench.ledger).len(), 0);
    });
}

/// Files that never become known do not keep others of the host from being examined.
#[test]
fn a_file_that_stays_unknown_holds_up_no_other_one() {
    paused_runtime().block_on(async {
        let mut bench = Bench::new(RemovalGuardSettings::default());
        bench.robots.known_base = Some("https://h.test/");
        let last = "https://h.test/last";
        bench
            .ledger
            .record(observation("news", last, START, page()));
        for n in 0..URLS {
            bench.refuse_by_robots_txt(n, RemovalAction::Remove);
        }
        bench.manual_clock.advance(Duration::from_secs(1));
        bench.refuse_url_by_robots_txt(last, RemovalAction::Remove);
        bench.ledger.flush().await;
        bench.manual_clock.advance(10 * MINUTE);
        bench.robots.set_known(RobotsTxt::Absent);
        bench.order(&good()).await;
        assert_eq!(bench.pending(RemovalCauseKind::RobotsTxt), URLS as u64);
    });
}

/// Passes the directory to the process that is killed.
const FOLDER: &str = "CRAWLGATE_TEST_REMOVALS";
/// The number of times that the process is killed.
const KILLS: usize = 10;
/// Enough for a limit above the minimum, and for a sweep and orders of several commits.
const KILLED_URLS: usize = 4_000;
/// Everything is ordered, and counted.
const WHOLE: RemovalGuardSettings = RemovalGuardSettings {
    hold: Some(100),
    grace: Duration::ZERO,
};

fn open(folder: &Path) -> Ledger {
    let settings = LedgerSettings {
        cache: 64 << 10,
        removals: RemovalSchedule::Deferred,
        ..LedgerSettings::default()
    };
    Ledger::open(folder, settings).unwrap()
}

/// Sweeps and orders, as after a start, until nothing is pending.
fn remove_all(ledger: &Ledger, clock: &Clock) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let policy = bad();
        let sweeper = LedgerSweeper::new(1_000_000, clock.clone());
        let scheduler = scheduler(WHOLE, clock);
        sweeper.resume(ledger, &policy).await;
        ledger.flush().await;
        let robots = ScriptedRobots::default();
        let source = RobotsSource {
            robots: &robots,
            admission: &admission(clock),
        };
        let snapshot = Arc::new(snapshot_of(Arc::clone(&policy)));
        while ledger.has_pending_removals() {
            let ordered = scheduler.order_due(ledger, &snapshot, &source).await;
            ordered.unwrap();
            ledger.flush().await;
        }
    });
}

#[test]
#[ignore = "runs only as the process that is killed"]
fn removes_until_it_is_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    remove_all(&open(Path::new(&folder)), &Clock::manual().0);
}

#[test]
fn each_removal_is_ordered_once_over_kill_9() {
    let folder = TempDir::new();
    let ledger = open(folder.path());
    for n in 0..KILLED_URLS {
        ledger.record(observation("news", &url(n), START, page()));
    }
    drop(ledger);
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "ledger::guarded::removes_until_it_is_killed",
                "--exact",
                "--ignored",
            ])
            .env(FOLDER, folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Later each time: during the sweep, between it and the orders, and during these.
        sleep(Duration::from_millis(
            40 + 60 * kill as u64 + fastrand::u64(..60),
        ));
        let _ = child.kill();
        child.wait().unwrap();
    }
    let ledger = open(folder.path());
    let (clock, _) = Clock::manual();
    remove_all(&ledger, &clock);
    let removed = removals(&ledger);
    assert_eq!(removed.len(), KILLED_URLS);
    let twice: Vec<_> = removed.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    let now = UnixMillis(START);
    let counted = ledger
        .ordered_removals(&RemovalAccount::Policy, now)
        .unwrap();
    assert_eq!(counted, KILLED_URLS as u64, "each is counted once");
}
