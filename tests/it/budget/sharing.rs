//! Budgets that nodes share: none uses more than it was granted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crawlgate::pipeline::budget::sharing::{BudgetCharge, GrantRequest};
use crawlgate::pipeline::budget::{
    BudgetAction, BudgetExhausted, BudgetKind, BudgetLimits, BudgetRequest, BudgetTracker,
    UrlNovelty,
};

use super::{DAY, budgets, new};

/// The accounts of a store.
#[derive(Default)]
struct ModelAccounts(BTreeMap<(u64, Arc<str>, &'static str), u64>);

impl ModelAccounts {
    fn take(&mut self, request: &GrantRequest) -> u64 {
        let key = (
            request.day,
            Arc::clone(&request.budget),
            request.kind.as_str(),
        );
        let taken = self.0.entry(key).or_default();
        let granted = request.amount.min(request.limit.saturating_sub(*taken));
        *taken += granted;
        granted
    }
}

fn node() -> (BudgetTracker, crawlgate::clock::ManualClock) {
    let (budgets, manual_clock) = budgets();
    budgets.enable_sharing();
    (budgets, manual_clock)
}

/// Charges a request, with the store in between if that is needed.
fn charge(
    node: &BudgetTracker,
    accounts: &mut ModelAccounts,
    limits: BudgetLimits,
    request: BudgetRequest,
) -> Result<(), BudgetExhausted> {
    loop {
        match node.apply_shared("crawler news", limits, request, BudgetAction::Charge)? {
            BudgetCharge::Done => return Ok(()),
            BudgetCharge::MustWait => {
                let wanted = node.wanted_grants();
                assert!(!wanted.is_empty());
                for request in wanted {
                    let granted = accounts.take(&request);
                    node.grant(&request, granted);
                }
            }
        }
    }
}

#[test]
fn nodes_together_use_a_limit_and_no_more() {
    let nodes = [node(), node(), node()];
    let mut accounts = ModelAccounts::default();
    let limits = BudgetLimits {
        urls: Some(10),
        ..BudgetLimits::default()
    };
    for day in 1..3 {
        let mut sent = 0;
        for turn in 0..40 {
            let (budgets, _) = &nodes[turn % 3];
            match charge(budgets, &mut accounts, limits, new("a")) {
                Ok(()) => sent += 1,
                Err(exhausted) => assert_eq!(exhausted.kind, BudgetKind::Urls),
            }
        }
        assert_eq!(sent, 10, "day {day}");
        for (_, manual_clock) in &nodes {
            manual_clock.advance(Duration::from_secs(DAY));
        }
    }
    // A check that finds no room counts nothing, and a larger limit after a reload has room.
    let (budgets, _) = &nodes[0];
    let check = |urls| {
        let limits = BudgetLimits {
            urls: Some(urls),
            ..limits
        };
        budgets.apply_shared("crawler news", limits, new("a"), BudgetAction::Check)
    };
    assert_eq!(check(10), Ok(BudgetCharge::MustWait));
    assert!(check(0).is_err());
}

#[test]
fn each_limit_has_its_account() {
    let (budgets, _clock) = node();
    let mut accounts = ModelAccounts::default();
    let limits = BudgetLimits {
        urls: Some(5),
        new_urls: Some(3),
        bytes: Some(100),
        hosts: Some(2),
    };
    let known = |host| BudgetRequest {
        novelty: UrlNovelty::Known,
        ..new(host)
    };
    let mut ask = |request| charge(&budgets, &mut accounts, limits, request).map_err(|e| e.kind);
    assert_eq!(ask(new("a")), Ok(()));
    assert_eq!(ask(new("b")), Ok(()));
    assert_eq!(ask(new("c")), Err(BudgetKind::Hosts));
    assert_eq!(ask(new("a")), Ok(()));
    assert_eq!(ask(new("a")), Err(BudgetKind::NewUrls));
    assert_eq!(ask(known("a")), Ok(()));
    budgets.add_bytes("crawler news", 150);
    assert_eq!(ask(known("a")), Err(BudgetKind::Bytes));
}

#[tokio::test]
async fn a_request_is_told_of_the_answer() {
    let (budgets, _clock) = node();
    let limits = BudgetLimits {
        urls: Some(1),
        ..BudgetLimits::default()
    };
    let apply = |action| budgets.apply_shared("space a", limits, new("a"), action);
    let mut grants = budgets.subscribe_grants();
    assert_eq!(apply(BudgetAction::Check), Ok(BudgetCharge::MustWait));
    budgets.grant_wanted().await;
    let wanted = budgets.wanted_grants();
    assert_eq!((wanted.len(), wanted[0].amount), (1, 1));
    // Without an answer it is wanted again.
    assert_eq!(budgets.wanted_grants(), wanted);
    budgets.grant(&wanted[0], 1);
    grants.changed().await.unwrap();
    assert_eq!(budgets.wanted_grants(), []);
    assert_eq!(apply(BudgetAction::Check), Ok(BudgetCharge::Done));
    assert_eq!(apply(BudgetAction::Charge), Ok(BudgetCharge::Done));
    assert_eq!(apply(BudgetAction::Charge), Ok(BudgetCharge::MustWait));
    budgets.grant(&budgets.wanted_grants()[0], 0);
    assert_eq!(
        apply(BudgetAction::Charge).unwrap_err().kind,
        BudgetKind::Urls
    );
}
