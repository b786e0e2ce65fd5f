//! The budgets of a day: counted by name, reset by the wall clock, preserved over a restart, and refused over real sockets.

use std::sync::Arc;
use std::time::Duration;

use crawlgate::clock::{Clock, ManualClock};
use crawlgate::pipeline::budget::{
    BudgetAction, BudgetKind, BudgetLimits, BudgetRequest, BudgetTracker, UrlNovelty, host_number,
};
use crawlgate::store::budgets::BudgetsFile;

use crate::effects::Site;
use crate::support::policy::allow_all;
use crate::support::proxy::CONFIG;

mod sharing;

const DAY: u64 = 86_400;

fn budgets() -> (BudgetTracker, ManualClock) {
    let (clock, manual_clock) = Clock::manual();
    (BudgetTracker::new(clock), manual_clock)
}

fn new(host: &str) -> BudgetRequest {
    BudgetRequest {
        novelty: UrlNovelty::New,
        host: host_number(host),
    }
}

#[test]
fn a_day_ends_by_the_wall_clock() {
    let (budgets, manual_clock) = budgets();
    let limits = BudgetLimits {
        urls: Some(2),
        ..BudgetLimits::default()
    };
    let ask = |deed| budgets.apply("host a", limits, new("a"), deed);
    assert_eq!(ask(BudgetAction::Check), Ok(()), "asking spends nothing");
    manual_clock.advance(Duration::from_secs(DAY - 10));
    assert_eq!(ask(BudgetAction::Charge), Ok(()));
    assert_eq!(ask(BudgetAction::Check), Ok(()));
    assert_eq!(ask(BudgetAction::Charge), Ok(()));
    let used_up = ask(BudgetAction::Charge).unwrap_err();
    assert_eq!(
        (used_up.kind, used_up.resets_in),
        (BudgetKind::Urls, Duration::from_secs(10))
    );
    assert_eq!(
        budgets.apply("host b", limits, new("b"), BudgetAction::Charge),
        Ok(()),
        "another name"
    );
    // A clock that is set back gives no second day.
    manual_clock.adjust_wall_time(-3_600);
    assert_eq!(
        ask(BudgetAction::Check).unwrap_err().resets_in,
        Duration::from_secs(3_610)
    );
    manual_clock.adjust_wall_time(3_600);
    manual_clock.advance(Duration::from_secs(10));
    assert_eq!(ask(BudgetAction::Charge), Ok(()));
    budgets.sweep();
    assert_eq!(ask(BudgetAction::Charge), Ok(()), "today's are not swept");
    assert!(ask(BudgetAction::Check).is_err(), "today's are not swept");
}

#[test]
fn bytes_count_once_they_have_passed_and_hosts_once_each() {
    let (budgets, _hand) = budgets();
    let limits = BudgetLimits {
        bytes: Some(100),
        hosts: Some(2),
        ..BudgetLimits::default()
    };
    let spend = |host| {
        budgets
            .apply("domain d", limits, new(host), BudgetAction::Charge)
            .map_err(|used_up| used_up.kind)
    };
    assert_eq!([spend("a.d"), spend("b.d"), spend("a.d")], [Ok(()); 3]);
    assert_eq!(spend("c.d"), Err(BudgetKind::Hosts));
    budgets.add_bytes("domain d", 99);
    assert_eq!(spend("b.d"), Ok(()));
    budgets.add_bytes("domain d", 1_000);
    assert_eq!(spend("b.d"), Err(BudgetKind::Bytes));
}

#[test]
fn a_restart_gives_no_second_day_and_the_next_day_forgets() {
    let directory = crate::support::temp_dir::TempDir::new();
    let limits = BudgetLimits {
        urls: Some(1),
        hosts: Some(1),
        ..BudgetLimits::default()
    };
    let (clock, manual_clock) = Clock::manual();
    fn open(clock: &Clock, directory: &crate::support::temp_dir::TempDir) -> BudgetTracker {
        let budgets = BudgetTracker::new(clock.clone());
        budgets
            .restore(BudgetsFile::in_directory(directory.path()))
            .unwrap();
        budgets
    }
    let first = open(&clock, &directory);
    assert!(!first.needs_write());
    first
        .apply("domain d", limits, new("a.d"), BudgetAction::Charge)
        .unwrap();
    assert!(first.needs_write());
    first.persist().unwrap();
    first.add_bytes("domain d", 5);
    assert!(!first.needs_write(), "not again so soon");
    first.persist().unwrap();
    let again = open(&clock, &directory);
    assert!(
        again
            .apply("domain d", limits, new("a.d"), BudgetAction::Check)
            .is_err()
    );
    let more = BudgetLimits {
        urls: None,
        bytes: Some(5),
        ..limits
    };
    assert_eq!(
        again
            .apply("domain d", more, new("a.d"), BudgetAction::Check)
            .unwrap_err()
            .kind,
        BudgetKind::Bytes
    );
    let hosts = BudgetLimits {
        hosts: Some(1),
        ..BudgetLimits::default()
    };
    assert_eq!(
        again
            .apply("domain d", hosts, new("b.d"), BudgetAction::Check)
            .unwrap_err()
            .kind,
        BudgetKind::Hosts
    );
    assert_eq!(
        again.apply("domain d", hosts, new("a.d"), BudgetAction::Check),
        Ok(())
    );
    manual_clock.advance(Duration::from_secs(DAY));
    assert_eq!(
        open(&clock, &directory).apply("domain d", limits, new("b.d"), BudgetAction::Check),
        Ok(())
    );
    std::fs::write(directory.path().join("budgets.json"), "{}").unwrap();
    let reported = BudgetTracker::new(clock.clone())
        .restore(BudgetsFile::in_directory(directory.path()))
        .unwrap_err();
    assert!(reported.to_string().contains("budgets.json"), "{reported}");
}

#[test]
fn too_many_names_make_room_by_those_that_spent_least() {
    let (budgets, _hand) = budgets();
    let limits = BudgetLimits {
        urls: Some(1_000),
        ..BudgetLimits::default()
    };
    for _ in 0..1_000 {
        budgets
            .apply("host big", limits, new("big"), BudgetAction::Charge)
            .unwrap();
    }
    for name in 0..400_000 {
        budgets
            .apply(
                &format!("host h{name}"),
                limits,
                new("h"),
                BudgetAction::Charge,
            )
            .unwrap();
    }
    assert!(
        budgets
            .apply("host big", limits, new("big"), BudgetAction::Check)
            .is_err()
    );
}

#[test]
fn many_threads_spend_no_more_than_there_is() {
    let (budgets, _hand) = budgets();
    let budgets = Arc::new(budgets);
    let limits = BudgetLimits {
        urls: Some(1_000),
        ..BudgetLimits::default()
    };
    let spent: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    (0..500)
                        .filter(|_| {
                            budgets
                                .apply("crawler c", limits, new("h"), BudgetAction::Charge)
                                .is_ok()
                        })
                        .count()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(spent, 1_000);
}

#[test]
fn an_exhausted_budget_is_refused_until_the_end_of_the_day() {
    let rules = "  - { id: few, about: a small site, when: { under: /few }, set: { budget: { urls: 2, per: crawler } } }
  - { id: small, when: { under: /small }, set: { budget: { bytes: 1B, per: space } } }
  - { id: closed, when: { under: /closed }, set: { budget: { urls: 0, new_urls: 0 } } }";
    // A separate store: accounts outlive the proxy.
    let config = format!("{CONFIG}store: {{ path: store }}\n");
    let site = Site::with_config(&config, &allow_all("  index: true", rules), |_| None);
    for (path, reported) in [
        ("/few", None),
        ("/other", None),
        ("/few/1?a", None),
        (
            "/few",
            Some((
                "few",
                "today's requests of this crawler are used up; a small site",
            )),
        ),
        ("/small", None),
        (
            "/closed",
            Some(("closed", "today's requests for this host are used up")),
        ),
        ("/other", None),
    ] {
        let answer = site.get(path);
        let Some((rule, detail)) = reported else {
            assert_eq!(answer.status, 200, "{path}");
            continue;
        };
        assert_eq!(answer.status, 451, "{path}");
        for (field, value) in [
            ("crawl-reason", "budget"),
            ("crawl-status", "REJECTED_BUDGET"),
            ("crawl-retry", "after"),
            ("crawl-rule", rule),
        ] {
            assert_eq!(answer.value(field), value, "{path}");
        }
        let retry: u64 = answer.value("retry-after").parse().unwrap();
        assert!((1..=DAY).contains(&retry), "{retry}");
        assert!(answer.body.contains(detail), "{}", answer.body);
    }
    // Bytes count after the end of the response, which the client may see first.
    crate::support::wait::wait_until("the bytes are counted", || site.get("/small").status == 451);
    assert_eq!(
        site.origin
            .heads()
            .iter()
            .filter(|head| head.starts_with("GET /closed"))
            .count(),
        0
    );
}
