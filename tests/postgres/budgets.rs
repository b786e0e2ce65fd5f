//! The accounts of daily budgets: several nodes take from one at the same time, and never more than the limit.

use std::time::Duration;

use crawlgate::fleet::store::{PostgresConfig, StoreSession, StoreUrl};
use crawlgate::pipeline::budget::BudgetKind;
use crawlgate::pipeline::budget::sharing::GrantRequest;

use crate::node::NodeConfig;
use crate::server::{PASSWORD, Postgres};

fn request(day: u64, limit: u64, amount: u64) -> GrantRequest {
    GrantRequest {
        budget: "crawler news".into(),
        kind: BudgetKind::Urls,
        day,
        limit,
        amount,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nodes_together_never_take_more_than_the_limit() {
    const LIMIT: u64 = 1_000;
    let Some(postgres) = Postgres::start() else {
        return;
    };
    let url = postgres.url("crawlgate", PASSWORD);
    let (code, text) = NodeConfig::new("a", &url).run("fleet found");
    assert_eq!(code, 0, "{text}");
    let config = PostgresConfig {
        url: StoreUrl::parse(&url).unwrap(),
        timeout: Duration::from_secs(10),
    };
    let mut nodes = tokio::task::JoinSet::new();
    for node in 0..6 {
        let config = config.clone();
        nodes.spawn(async move {
            let (session, _) = StoreSession::open(&config).await.unwrap();
            let mut random = fastrand::Rng::with_seed(node);
            let mut taken = 0;
            loop {
                let amount = random.u64(1..20);
                let granted = session
                    .take_budget(&request(7, LIMIT, amount))
                    .await
                    .unwrap();
                assert!(granted <= amount);
                if granted == 0 {
                    return taken;
                }
                taken += granted;
            }
        });
    }
    let taken = nodes.join_all().await;
    assert_eq!(taken.iter().sum::<u64>(), LIMIT, "{taken:?}");
    assert!(
        taken.iter().filter(|taken| **taken > 0).count() > 1,
        "{taken:?}"
    );

    let (session, _) = StoreSession::open(&config).await.unwrap();
    // A limit that a reload has lowered, or raised; another day.
    for (asked, granted) in [
        (request(7, LIMIT / 2, 5), 0),
        (request(7, LIMIT + 3, 5), 3),
        (request(8, LIMIT, 5), 5),
        (request(8, 3, 5), 0),
        (request(9, 3, 5), 3),
    ] {
        assert_eq!(
            session.take_budget(&asked).await.unwrap(),
            granted,
            "{asked:?}"
        );
    }
    session.forget_budgets(8).await.unwrap();
    let days = postgres.sql("select string_agg(day::text, ',' order by day) from crawlgate_budget");
    assert_eq!(days, "8,9");
}
