//! The rate at which certificates are issued, and waiting requests.

use std::sync::Arc;
use std::time::Duration;

use crawlgate::clock::Clock;
use crawlgate::tls::IssueError;

use super::{Mint, PATIENT, client};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_requests_share_one_certificate() {
    let mint = Mint::new(100, 200, Clock::system());
    let mut asking = tokio::task::JoinSet::new();
    for number in 0..100_u8 {
        let minter = Arc::clone(&mint.minter);
        // Half of them are one client, which pays once; the others are one each.
        let client = if number % 2 == 0 {
            client()
        } else {
            [198, 51, 100, number].into()
        };
        asking.spawn(async move {
            minter
                .get_or_issue("a.example", client, PATIENT)
                .await
                .unwrap()
        });
    }
    let leaves = asking.join_all().await;
    assert!(leaves.iter().all(|leaf| Arc::ptr_eq(leaf, &leaves[0])));
    assert_eq!((mint.made(), mint.waits()), (1, 0));
}

#[tokio::test]
async fn the_cache_is_limited_and_keeps_the_latest_hosts() {
    let (clock, _hand) = Clock::manual();
    let mint = Mint::new(1_000, 10_000, clock);
    for number in 0..10_000 {
        mint.leaf(&format!("h{number}.example")).await;
    }
    assert_eq!(mint.made(), 10_000);
    let kept = mint.minter.cached_certificates();
    assert_eq!(kept, 1_000);
    mint.leaf("h9999.example").await;
    mint.leaf("h9500.example").await;
    assert_eq!(mint.made(), 10_000, "the last ones are there");
    mint.leaf("h0.example").await;
    assert_eq!(mint.made(), 10_001);
}

/// Five a second, fifty at once; the clock is moved by hand.
#[tokio::test]
async fn a_client_over_its_rate_waits_or_is_late_and_others_are_not() {
    let (clock, manual_clock) = Clock::manual();
    let mint = Mint::new(1_000, 5, clock);
    let me = super::CLIENT;
    for number in 0..50 {
        mint.asked_at_once(&format!("h{number}.example"), me)
            .await
            .unwrap();
    }
    assert_eq!((mint.made(), mint.waits()), (50, 0));
    let late = mint.asked_at_once("one-more.example", me).await;
    assert_eq!(late.unwrap_err(), IssueError::RateLimited);
    assert_eq!((mint.made(), mint.waits()), (50, 1));

    // What is kept costs nothing, and neither do addresses that mean the same client escape.
    mint.asked_at_once("h7.example", me).await.unwrap();
    assert_eq!(
        mint.asked_at_once("x.example", "::ffff:192.0.2.1")
            .await
            .unwrap_err(),
        IssueError::RateLimited
    );
    mint.asked_at_once("x.example", "192.0.2.2").await.unwrap();
    mint.asked_at_once("x.example", me).await.unwrap();

    manual_clock.advance(Duration::from_millis(199));
    assert!(mint.asked_at_once("y.example", me).await.is_err());
    manual_clock.advance(Duration::from_millis(1));
    mint.asked_at_once("y.example", me).await.unwrap();
    assert!(mint.asked_at_once("z.example", me).await.is_err());
    manual_clock.advance(Duration::from_secs(3600));
    for number in 0..50 {
        mint.asked_at_once(&format!("i{number}.example"), me)
            .await
            .unwrap();
    }
    assert!(
        mint.asked_at_once("z.example", me).await.is_err(),
        "an hour of rest is ten seconds' worth"
    );
}

#[tokio::test]
async fn a_rate_limited_issue_continues_in_time() {
    let (clock, manual_clock) = Clock::manual();
    let mint = Mint::new(1_000, 100, clock);
    for number in 0..1_000 {
        mint.asked_at_once(&format!("h{number}.example"), super::CLIENT)
            .await
            .unwrap();
    }
    let mut waiting = tokio::task::JoinSet::new();
    for name in ["a.example", "b.example"] {
        let minter = Arc::clone(&mint.minter);
        waiting.spawn(async move { minter.get_or_issue(name, client(), PATIENT).await });
    }
    while mint.waits() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(
        mint.made(),
        1_000,
        "nothing is made as long as the clock stands"
    );
    manual_clock.advance(Duration::from_millis(20));
    for made in waiting.join_all().await {
        made.unwrap();
    }
    assert_eq!(mint.made(), 1_002, "each wait is counted once");
    assert_eq!(mint.waits(), 2, "each wait is counted once");
}
