//! The sweep: OmniFind's scenario in the store. The space of a crawler is split, and URLs are in no space.

use std::sync::Arc;
use std::time::Duration;

use crawlgate::clock::Clock;
use crawlgate::ledger::event::LedgerEventKind;
use crawlgate::ledger::key::LedgerKey;
use crawlgate::ledger::observation::{ObservationOutcome, ObservedResponse, RefusalRecording};
use crawlgate::ledger::record::{IndexState, UnixMillis};
use crawlgate::ledger::transition::ErrorTolerance;
use crawlgate::model::crawl_status::CrawlStatus;
use crawlgate::pipeline::snapshot::ActivePolicy;
use crawlgate::pipeline::sweep::{LedgerSweeper, SweepGap, SweepMode, SweepPhase, SweepProgress};
use crawlgate::policy::Policy;
use crawlgate::policy::compile::load_builtin;
use crawlgate::store::ledger::{FeedCursor, Ledger, LedgerSettings};

use crate::support::ledger::observation;
use crate::support::pipeline::snapshot_of;
use crate::support::policy::compile_policy;
use crate::support::wait::paused_runtime;

use super::answered;
use crate::support::temp_dir::TempDir;

const URLS: usize = 300;
/// Uses the time of the test, so that waits take no real time.
const LONG: Duration = Duration::from_secs(3600);

fn policy(spaces: &str) -> Arc<Policy> {
    let text = format!("policy: 1\nname: t\noptions: {{ disposition: allow }}\nspaces:\n{spaces}");
    Arc::new(compile_policy(text).policy)
}

/// `news` keeps a.test, another crawler gets b.test, and none gets c.test.
fn split() -> Arc<Policy> {
    policy(
        "  - name: a
    crawlers: [news]
    rules: [{ match: first, rules: [{ when: { domain: a.test } }, { id: not-a, forbid: { always: true } }] }]
  - name: b
    crawlers: [other]
    rules: [{ match: first, rules: [{ when: { domain: b.test } }, { id: not-b, forbid: { always: true } }] }]
global_space: union
",
    )
}

fn crawled(ledger: &Ledger) {
    for n in 0..URLS {
        let area = ["a", "b", "c"][n % 3];
        ledger.record(answered("news", &format!("http://{area}.test/{n}"), 200));
    }
    // Never delivered: an error with an event. It is not known, so that it is not excluded.
    ledger.record(answered("news", "http://c.test/gone", 404));
}

fn report(ledger: &Ledger, kind: LedgerEventKind, area: &str) -> usize {
    let events = ledger.events(FeedCursor(0), usize::MAX).unwrap();
    let of = events
        .iter()
        .filter(|(_, event)| event.kind == kind && event.url.contains(area));
    of.map(|(_, event)| &event.url)
        .collect::<std::collections::BTreeSet<_>>()
        .len()
}

fn counts(progress: &SweepProgress) -> (u64, u64, u64) {
    (progress.removed, progress.moved, progress.allowed)
}

fn third() -> u64 {
    URLS as u64 / 3
}

#[test]
fn a_dry_run_counts_and_lists_without_changes() {
    paused_runtime().block_on(async {
        let ledger = Ledger::in_memory(ErrorTolerance {
            temporary_errors: 5,
        });
        crawled(&ledger);
        let sweeper = LedgerSweeper::new(1_000_000, Clock::system());
        sweeper.sweep(&ledger, &split(), SweepMode::DryRun).await;
        let progress = sweeper.progress().unwrap();
        assert_eq!(
            (progress.state, progress.examined, progress.total),
            (SweepPhase::Done, 301, 301)
        );
        assert_eq!(counts(&progress), (third(), third(), third() + 1));
        let gap = SweepGap {
            crawler: "news".into(),
            url: "http://c.test/2".into(),
            rule: Some("not-a".into()),
            code: Some(760),
        };
        assert!(progress.gaps.contains(&gap), "{:?}", progress.gaps);
        assert!(progress.gaps.len() == 200, "{:?}", progress.gaps);
        ledger.flush().await;
        assert_eq!(ledger.events(FeedCursor(0), 10).unwrap().len(), 1);
        assert!(
            ledger
                .look_up(LedgerKey::for_url("news", "http://c.test/2"))
                .unwrap()
                .code
                .is_none()
        );
    });
}

#[test]
fn each_removal_is_reported_once_over_a_restart_and_moves_are_not_removals() {
    let folder = TempDir::new();
    let settings = LedgerSettings {
        cache: 64 << 10,
        ..LedgerSettings::default()
    };
    let open = || Ledger::open(folder.path(), settings).unwrap();
    let policy = split();
    let ledger = open();
    crawled(&ledger);
    paused_runtime().block_on(ledger.flush());
    // Ten records per second: parts of one URL.
    fn slow() -> LedgerSweeper {
        LedgerSweeper::new(10, Clock::system())
    }
    let mut looked_at = 0;
    let mut ledger = Some(ledger);
    for stop_at in [70, 180] {
        let sweeper = slow();
        let broken_off = ledger.take().unwrap();
        paused_runtime().block_on(async {
            let watch = async {
                while sweeper
                    .progress()
                    .is_none_or(|progress| progress.examined < stop_at)
                {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            tokio::select! {
                () = sweeper.resume(&broken_off, &policy) => panic!("it was to be broken off"),
                () = watch => {}
            }
        });
        assert!(sweeper.progress().unwrap().examined > looked_at);
        looked_at = sweeper.progress().unwrap().examined;
        drop(broken_off);
        ledger = Some(open());
    }
    let ledger = ledger.unwrap();
    let sweeper = slow();
    paused_runtime().block_on(async {
        sweeper.resume(&ledger, &policy).await;
        ledger.flush().await;
    });
    let progress = sweeper.progress().unwrap();
    assert_eq!(
        (progress.state, counts(&progress)),
        (SweepPhase::Done, (third(), third(), third() + 1))
    );
    assert_eq!(report(&ledger, LedgerEventKind::Removal, "/c."), URLS / 3);
    assert_eq!(report(&ledger, LedgerEventKind::Moved, "/b."), URLS / 3);
    // The error from before is still there.
    assert_eq!(
        ledger.events(FeedCursor(0), usize::MAX).unwrap().len(),
        2 * URLS / 3 + 1
    );
    fn code(ledger: &Ledger, url: &str) -> Option<u16> {
        ledger
            .look_up(LedgerKey::for_url("news", url))
            .unwrap()
            .code
    }
    let codes = [
        code(&ledger, "http://a.test/0"),
        code(&ledger, "http://b.test/1"),
        code(&ledger, "http://c.test/2"),
    ];
    assert_eq!(codes, [None, Some(761), Some(760)]);

    // A finished sweep stays finished after a restart; another start repeats no event.
    drop(ledger);
    let ledger = open();
    let again = slow();
    paused_runtime().block_on(async {
        again.resume(&ledger, &policy).await;
        assert_eq!(again.progress().unwrap().state, SweepPhase::Done);
        LedgerSweeper::new(1_000_000, Clock::system())
            .sweep(&ledger, &policy, SweepMode::ForGood)
            .await;
        ledger.flush().await;
    });
    assert_eq!(
        ledger.events(FeedCursor(0), usize::MAX).unwrap().len(),
        2 * URLS / 3 + 1
    );
}

#[test]
fn a_dry_run_after_a_sweep_finds_nothing() {
    paused_runtime().block_on(async {
        let ledger = Ledger::in_memory(ErrorTolerance {
            temporary_errors: 5,
        });
        crawled(&ledger);
        let sweeper = LedgerSweeper::new(1_000_000, Clock::system());
        let policy = split();
        sweeper.sweep(&ledger, &policy, SweepMode::ForGood).await;
        let swept = sweeper.progress().unwrap();
        assert_eq!(
            (counts(&swept), swept.unchanged),
            ((third(), third(), third() + 1), 0)
        );
        ledger.record(answered("news", "http://c.test/new", 200));
        sweeper.sweep(&ledger, &policy, SweepMode::DryRun).await;
        let dry = sweeper.progress().unwrap();
        assert_eq!(
            (counts(&dry), dry.unchanged),
            ((1, 0, third() + 1), 2 * third())
        );
        let gaps: Vec<&str> = dry.gaps.iter().map(|gap| &*gap.url).collect();
        assert_eq!((gaps, dry.examined), (vec!["http://c.test/new"], 302));
    });
}

#[test]
fn a_policy_that_takes_force_is_swept_for_and_breaks_off_the_one_before() {
    paused_runtime().block_on(async {
        let ledger = Ledger::in_memory(ErrorTolerance {
            temporary_errors: 5,
        });
        crawled(&ledger);
        let open =
            policy("  - { name: all, rules: [{ id: all, forbid: { host: nowhere.test } }] }\n");
        let active_policy = Arc::new(ActivePolicy::new(snapshot_of(open)));
        let sweeper = LedgerSweeper::new(10, Clock::system());
        let task = {
            let sweeper = sweeper.clone();
            let active_policy = Arc::clone(&active_policy);
            let ledger = ledger.clone();
            tokio::spawn(
                async move { sweeper.serve(&active_policy, || Some(ledger.clone())).await },
            )
        };
        let until = async |done: &dyn Fn(&SweepProgress) -> bool| {
            let waited = async {
                while !sweeper.progress().is_some_and(|progress| done(&progress)) {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            tokio::time::timeout(LONG, waited)
                .await
                .expect("the sweep comes to that");
        };
        until(&|progress| progress.examined > 20).await;
        assert!(
            sweeper.order(SweepMode::DryRun, "7", 9).is_err(),
            "one is under way"
        );
        let split = split();
        active_policy.replace(snapshot_of(Arc::clone(&split)));
        until(&|progress| {
            *progress.revision == *split.revision() && progress.state == SweepPhase::Done
        })
        .await;
        assert_eq!(
            counts(&sweeper.progress().unwrap()),
            (third(), third(), third() + 1)
        );
        sweeper.order(SweepMode::DryRun, "7", 9).unwrap();
        // The latest requested sweep runs, not an earlier one that has not started or still runs.
        let asked = sweeper.progress().unwrap();
        assert_eq!(
            (asked.state, asked.mode, asked.examined),
            (SweepPhase::Running, SweepMode::DryRun, 0)
        );
        assert!(
            sweeper.order(SweepMode::ForGood, "7", 9).is_err(),
            "one is asked for"
        );
        until(&|progress| progress.mode == SweepMode::DryRun && progress.state == SweepPhase::Done)
            .await;
        ledger.flush().await;
        assert_eq!(report(&ledger, LedgerEventKind::Removal, "/c."), URLS / 3);
        // A policy without spaces is swept for as well.
        let plain = Arc::new(load_builtin().unwrap().policy);
        active_policy.replace(snapshot_of(Arc::clone(&plain)));
        until(&|progress| {
            *progress.revision == *plain.revision() && progress.state == SweepPhase::Done
        })
        .await;
        assert_eq!(sweeper.progress().unwrap().mode, SweepMode::ForGood);
        task.abort();
    });
}

#[test]
fn an_aborted_sweep_starts_again() {
    paused_runtime().block_on(async {
        let ledger = Ledger::in_memory(ErrorTolerance {
            temporary_errors: 5,
        });
        crawled(&ledger);
        let split = split();
        let plain = Arc::new(load_builtin().unwrap().policy);
        let active_policy = Arc::new(ActivePolicy::new(snapshot_of(Arc::clone(&split))));
        let sweeper = LedgerSweeper::new(10, Clock::system());
        let task = {
            let sweeper = sweeper.clone();
            let active_policy = Arc::clone(&active_policy);
            let ledger = ledger.clone();
            tokio::spawn(
                async move { sweeper.serve(&active_policy, || Some(ledger.clone())).await },
            )
        };
        let until = async |done: &dyn Fn(&SweepProgress) -> bool| {
            let waited = async {
                while !sweeper.progress().is_some_and(|progress| done(&progress)) {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            tokio::time::timeout(LONG, waited)
                .await
                .expect("the sweep comes to that");
        };
        fn is_of(progress: &SweepProgress, policy: &Policy) -> bool {
            *progress.revision == *policy.revision()
        }
        until(&|progress| progress.examined > 20).await;
        // Another policy ends a sweep in progress, and is swept for itself.
        active_policy.replace(snapshot_of(Arc::clone(&plain)));
        until(&|progress| is_of(progress, &plain) && progress.examined > 20).await;
        // A sweep under the first policy is not complete when that policy returns.
        active_policy.replace(snapshot_of(Arc::clone(&split)));
        until(&|progress| is_of(progress, &split) && progress.state == SweepPhase::Done).await;
        ledger.record(answered("news", "http://c.test/later", 200));
        active_policy.replace(snapshot_of(plain));
        tokio::time::sleep(Duration::from_secs(60)).await;
        active_policy.replace(snapshot_of(split));
        let later = LedgerKey::for_url("news", "http://c.test/later");
        until(&|_| {
            ledger
                .look_up(later)
                .is_some_and(|record| record.code == Some(760))
        })
        .await;
        task.abort();
    });
}

/// A crawler without a space: its URLs get their status, and leave the index if the rule says that they are gone.
#[test]
fn a_policy_without_spaces_is_swept_for() {
    paused_runtime().block_on(async {
        let ledger = Ledger::in_memory(ErrorTolerance {
            temporary_errors: 5,
        });
        crawled(&ledger);
        // Refused by their content type, which the sweep does not know; one of them is known to the crawler.
        for (url, code) in [("http://a.test/image", None), ("http://a.test/film", Some(760))] {
            let refused = ObservationOutcome::Answered(ObservedResponse {
                status: 200,
                crawl_status: CrawlStatus::Filter,
                code,
                failure: None,
                removal: None,
                document: None,
                recording: RefusalRecording::Keep,
            });
            ledger.record(observation("news", url, 1, refused));
        }
        let plain = |rules: &str| {
            let text = format!(
                "policy: 1\nname: t\noptions: {{ disposition: allow }}\nrules:\n  - {{ id: news-only, \
                 when: {{ referer: 'http://x/' }}, set: {{ source: x }} }}\n{rules}"
            );
            Arc::new(compile_policy(text).policy)
        };
        let strict = plain(
            "  - { id: left, forbid: { domain: b.test } }
  - { id: gone, forbid: { domain: c.test }, reject: gone }
",
        );
        let sweeper = LedgerSweeper::new(1_000_000, Clock::system());
        sweeper.sweep(&ledger, &strict, SweepMode::DryRun).await;
        let dry = sweeper.progress().unwrap();
        assert_eq!(
            (dry.removed, dry.unchanged, dry.refused, dry.allowed),
            (third(), 1, third() + 1, third() + 1)
        );
        assert_eq!(
            dry.examined,
            dry.removed + dry.unchanged + dry.refused + dry.allowed
        );
        assert_eq!(dry.gaps.len() as u64, 2 * third());

        sweeper.sweep(&ledger, &strict, SweepMode::ForGood).await;
        ledger.flush().await;
        assert_eq!(report(&ledger, LedgerEventKind::Removal, "/c."), URLS / 3);
        assert_eq!(report(&ledger, LedgerEventKind::Removal, "/b."), 0);
        let record = |url: &str| ledger.look_up(LedgerKey::for_url("news", url)).unwrap();
        let left = record("http://b.test/1");
        assert_eq!(
            (left.status.0, left.index_state, left.last_seen),
            (CrawlStatus::Filter, IndexState::Possible, UnixMillis(1))
        );
        // The counts are those of `ledger list`.
        sweeper.sweep(&ledger, &strict, SweepMode::DryRun).await;
        let dry = sweeper.progress().unwrap();
        assert_eq!(
            (dry.removed, dry.unchanged, dry.refused, dry.allowed),
            (0, third() + 1, third() + 1, third() + 1)
        );
        let filtered = ledger.stats().urls[&CrawlStatus::Filter];
        assert_eq!(filtered, dry.unchanged + dry.refused);

        sweeper.sweep(&ledger, &plain(""), SweepMode::ForGood).await;
        ledger.flush().await;
        assert_eq!(record("http://b.test/1").status.0, CrawlStatus::Accepted);
        assert_eq!(record("http://a.test/image").status.0, CrawlStatus::Filter);
        let film = record("http://a.test/film");
        assert_eq!((film.status.0, film.code), (CrawlStatus::Filter, Some(760)));
    });
}

/// A refusal that depends on the request is not one of the URL.
#[test]
fn a_rule_on_requests_does_not_refuse_in_a_sweep() {
    paused_runtime().block_on(async {
        let ledger = Ledger::in_memory(ErrorTolerance {
            temporary_errors: 5,
        });
        crawled(&ledger);
        let policy = compile_policy(
            "policy: 1\nname: t\noptions: { disposition: allow }\nrules:\n  - { id: linked, require: { referer: \
             { regex: . } }, reject: gone }\n  - { id: later, forbid: { domain: b.test }, reject: later }\n",
        );
        let sweeper = LedgerSweeper::new(1_000_000, Clock::system());
        let policy = Arc::new(policy.policy);
        sweeper.sweep(&ledger, &policy, SweepMode::ForGood).await;
        let progress = sweeper.progress().unwrap();
        assert_eq!(
            (progress.removed, progress.refused, progress.allowed),
            (0, 0, 3 * third() + 1)
        );
    });
}

/// A closed ledger fails like one with a failing disk.
#[test]
fn an_unreadable_record_does_not_end_a_sweep() {
    paused_runtime().block_on(async {
        let ledger = Ledger::in_memory(ErrorTolerance {
            temporary_errors: 5,
        });
        crawled(&ledger);
        ledger.close();
        let sweeper = LedgerSweeper::new(1_000_000, Clock::system());
        let policy = split();
        let swept =
            tokio::time::timeout(LONG, sweeper.sweep(&ledger, &policy, SweepMode::DryRun)).await;
        let progress = sweeper.progress().unwrap();
        assert!(swept.is_err(), "{progress:?}");
        assert!(progress.state == SweepPhase::Running, "{progress:?}");
    });
}
