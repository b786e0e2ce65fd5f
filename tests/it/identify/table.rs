//! The table of crawlers, without sockets.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crawlgate::clock::{Clock, ManualClock};
use crawlgate::metrics::Metrics;
use crawlgate::model::crawler::Crawler;
use crawlgate::model::rule_id::Slug;
use crawlgate::pipeline::crawlers::password::PasswordHash;
use crawlgate::pipeline::crawlers::{
    AnonymousAccess, AuthenticationError, ConnectedClient, CrawlerIdentity, CrawlerRegistration,
    CrawlerRegistry, StoredCredentials,
};
use http::header::PROXY_AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

const HOME: &str = "127.0.0.1";
/// The time in which an attempt is regained.
const SIX_SECONDS: Duration = Duration::from_secs(6);
const FAR: &str = "203.0.113.7";

/// `news` and `jürgen` have credentials, `lab` and `bench` networks, `lone` nothing but a listener.
struct IdentifyBench {
    crawlers: Arc<CrawlerRegistry>,
    manual_clock: ManualClock,
}

fn slug(name: &str) -> Slug {
    Slug::new(name).unwrap()
}

fn hash(password: &str) -> PasswordHash {
    PasswordHash::parse(&bcrypt::hash(password, 4).unwrap()).unwrap()
}

fn registration(name: &str, auth: Option<(&str, &str)>, sources: &[&str]) -> CrawlerRegistration {
    CrawlerRegistration {
        crawler: Crawler::new(&slug(name)),
        auth: auth.map(|(user, password)| StoredCredentials {
            user: user.into(),
            password: hash(password),
        }),
        sources: sources.iter().map(|net| net.parse().unwrap()).collect(),
    }
}

impl IdentifyBench {
    fn new(anonymous: AnonymousAccess) -> Self {
        Self::with(
            &[
                registration("news", Some(("news", "s3cret:with:colons")), &[]),
                registration("umlaut", Some(("jürgen", "paß")), &[]),
                registration("lab", None, &["10.1.0.0/16", "2001:db8::/32"]),
                registration("bench", None, &["10.1.7.0/24"]),
                registration("lone", None, &[]),
                registration("other", Some(("other", "else")), &[]),
            ],
            anonymous,
        )
    }

    fn with(registrations: &[CrawlerRegistration], anonymous: AnonymousAccess) -> Self {
        let (clock, manual_clock) = Clock::manual();
        let names: Vec<Crawler> = registrations.iter().map(|r| r.crawler.clone()).collect();
        let metrics = Metrics::new(&names, &[]).unwrap();
        let crawlers = CrawlerRegistry::new(registrations, anonymous, &metrics, clock).unwrap();
        Self {
            crawlers: Arc::new(crawlers),
            manual_clock,
        }
    }

    fn caller(&self, address: &str, listener: Option<&str>) -> ConnectedClient {
        self.crawlers
            .new_client(address.parse().unwrap(), listener.map(slug).as_ref())
    }

    /// The crawler of these values of Proxy-Authorization, on a new connection.
    async fn who(
        &self,
        address: &str,
        listener: Option<&str>,
        fields: &[&str],
    ) -> Result<String, AuthenticationError> {
        self.on(&self.caller(address, listener), fields).await
    }

    async fn on(
        &self,
        caller: &ConnectedClient,
        fields: &[&str],
    ) -> Result<String, AuthenticationError> {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(
                PROXY_AUTHORIZATION,
                HeaderValue::from_bytes(field.as_bytes()).unwrap(),
            );
        }
        let identity = self.crawlers.identify(caller, &headers).await?;
        Ok(identity.crawler.to_string())
    }

    async fn guess(&self, address: &str, password: &str) -> Result<String, AuthenticationError> {
        self.who(address, None, &[&basic("news", password)]).await
    }
}

fn basic(user: &str, password: &str) -> String {
    use base64::Engine as _;
    format!(
        "Basic {}",
        base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"))
    )
}

#[tokio::test]
async fn credentials_precede_the_listener_and_the_network() {
    let bench = IdentifyBench::new(AnonymousAccess::Allow);
    let good = basic("news", "s3cret:with:colons");
    let good: &[&str] = &[&good];
    for (address, listener, fields, who) in [
        (HOME, None, good, "news"),
        ("10.1.7.7", Some("lone"), good, "news"),
        ("10.1.7.7", Some("lone"), &[], "lone"),
        ("10.1.7.7", None, &[], "bench"),
        ("10.1.8.7", None, &[], "lab"),
        ("::ffff:10.1.8.7", None, &[], "lab"),
        ("2001:db8:1::1", None, &[], "lab"),
        // A crawler with a listener and networks is identified by its networks on that listener only.
        ("10.1.7.7", Some("lab"), &[], "lab"),
        (HOME, Some("lab"), &[], "anonymous"),
        (HOME, None, &[], "anonymous"),
        ("::1", None, &[], "anonymous"),
        ("::ffff:127.0.0.1", None, &[], "anonymous"),
    ] {
        assert_eq!(
            bench.who(address, listener, fields).await.as_deref(),
            Ok(who),
            "{address} {listener:?}"
        );
    }
}

#[tokio::test]
async fn unknown_and_anonymous_clients_are_distinguished() {
    let open = IdentifyBench::new(AnonymousAccess::Allow);
    let closed = IdentifyBench::new(AnonymousAccess::Deny);
    // Anonymous clients of other machines would make the proxy an open relay.
    assert_eq!(
        open.who(FAR, None, &[]).await,
        Err(AuthenticationError::MissingCredentials)
    );
    assert_eq!(
        open.who("10.2.0.1", Some("lab"), &[]).await,
        Err(AuthenticationError::MissingCredentials)
    );
    assert_eq!(
        closed.who(HOME, None, &[]).await,
        Err(AuthenticationError::MissingCredentials)
    );
    assert_eq!(
        closed.who(HOME, Some("lone"), &[]).await.as_deref(),
        Ok("lone")
    );
    assert_eq!(
        closed.who("10.1.0.1", None, &[]).await.as_deref(),
        Ok("lab")
    );
}

#[tokio::test]
async fn wrong_credentials_are_never_passed_over() {
    let bench = IdentifyBench::new(AnonymousAccess::Allow);
    let wrong = Err(AuthenticationError::InvalidCredentials);
    for (address, listener) in [(HOME, None), ("10.1.7.7", None), (HOME, Some("lone"))] {
        for (user, password) in [
            ("news", "s3cret"),
            ("nobody", "s3cret:with:colons"),
            ("other", "paß"),
        ] {
            let field = basic(user, password);
            assert_eq!(
                bench.who(address, listener, &[&field]).await,
                wrong,
                "{address} {user}"
            );
        }
        for field in ["Basic", "Basic !", "Bearer token", "", "Basic bmV3cw=="] {
            let output = bench.who(address, listener, &[field]).await;
            assert!(
                matches!(output, Err(AuthenticationError::MalformedCredentials(_))),
                "{field}: {output:?}"
            );
        }
        let twice = basic("news", "s3cret:with:colons");
        let output = bench.who(address, listener, &[&twice, &twice]).await;
        assert!(
            matches!(output, Err(AuthenticationError::MalformedCredentials(_))),
            "{output:?}"
        );
    }
}

#[tokio::test]
async fn letters_beyond_ascii_in_both_encodings() {
    let bench = IdentifyBench::new(AnonymousAccess::Deny);
    for field in ["Basic asO8cmdlbjpwYcOf", "Basic avxyZ2VuOnBh3w=="] {
        assert_eq!(
            bench.who(HOME, None, &[field]).await.as_deref(),
            Ok("umlaut")
        );
    }
}

#[tokio::test]
async fn credentials_are_ignored_if_no_crawler_has_any() {
    let bench = IdentifyBench::with(
        &[registration("lab", None, &["10.1.0.0/16"])],
        AnonymousAccess::Allow,
    );
    let any = basic("any", "thing");
    assert_eq!(
        bench.who(HOME, None, &[&any]).await.as_deref(),
        Ok("anonymous")
    );
    assert_eq!(
        bench.who("10.1.0.1", None, &[&any]).await.as_deref(),
        Ok("lab")
    );
    assert_eq!(
        bench.who(FAR, None, &[&any]).await,
        Err(AuthenticationError::MissingCredentials)
    );
}

#[tokio::test]
async fn a_connection_may_change_its_crawler() {
    let bench = IdentifyBench::new(AnonymousAccess::Allow);
    let caller = bench.caller(HOME, None);
    let news = basic("news", "s3cret:with:colons");
    let other = basic("other", "else");
    for _ in 0..2 {
        assert_eq!(bench.on(&caller, &[&news]).await.as_deref(), Ok("news"));
        assert_eq!(bench.on(&caller, &[&news]).await.as_deref(), Ok("news"));
        assert_eq!(bench.on(&caller, &[&other]).await.as_deref(), Ok("other"));
        assert_eq!(bench.on(&caller, &[]).await.as_deref(), Ok("anonymous"));
        assert_eq!(
            bench.on(&caller, &[&basic("other", "wrong")]).await,
            Err(AuthenticationError::InvalidCredentials)
        );
    }
}

#[tokio::test]
async fn a_tunnel_belongs_to_the_crawler_of_its_connect() {
    let bench = IdentifyBench::new(AnonymousAccess::Deny);
    let caller = bench.caller(FAR, None);
    let mut headers = HeaderMap::new();
    headers.insert(
        PROXY_AUTHORIZATION,
        HeaderValue::from_str(&basic("other", "else")).unwrap(),
    );
    let opener = bench.crawlers.identify(&caller, &headers).await.unwrap();
    let inside = ConnectedClient::for_tunnel(caller.address(), opener);
    assert_eq!(bench.on(&inside, &[]).await.as_deref(), Ok("other"));
    assert_eq!(
        bench.on(&inside, &["Basic !"]).await.as_deref(),
        Ok("other")
    );
}

#[tokio::test]
async fn ten_guesses_then_one_in_six_seconds() {
    let bench = IdentifyBench::new(AnonymousAccess::Allow);
    for n in 0..10 {
        assert_eq!(
            bench.guess(FAR, &format!("guess {n}")).await,
            Err(AuthenticationError::InvalidCredentials),
            "{n}"
        );
    }
    assert_eq!(
        bench.guess(FAR, "guess 10").await,
        Err(AuthenticationError::Throttled(SIX_SECONDS))
    );
    // Even the valid password is refused, so that guessing does not reveal it. From another address it is accepted.
    assert_eq!(
        bench.guess(FAR, "s3cret:with:colons").await,
        Err(AuthenticationError::Throttled(SIX_SECONDS))
    );
    assert_eq!(
        bench.guess(HOME, "s3cret:with:colons").await.as_deref(),
        Ok("news")
    );
    // The password is known to be valid now and costs no attempt.
    assert_eq!(
        bench.guess(FAR, "s3cret:with:colons").await.as_deref(),
        Ok("news")
    );
    bench.manual_clock.advance(Duration::from_secs(6));
    assert_eq!(
        bench.guess(FAR, "guess 10").await,
        Err(AuthenticationError::InvalidCredentials)
    );
    assert_eq!(
        bench.guess(FAR, "guess 11").await,
        Err(AuthenticationError::Throttled(SIX_SECONDS))
    );
}

#[tokio::test]
async fn a_stale_password_shuts_no_neighbour_out() {
    let bench = IdentifyBench::new(AnonymousAccess::Allow);
    for _ in 0..100 {
        assert_eq!(
            bench.guess(FAR, "the old one").await,
            Err(AuthenticationError::InvalidCredentials)
        );
    }
    assert_eq!(
        bench.guess(FAR, "s3cret:with:colons").await.as_deref(),
        Ok("news")
    );
}

/// After nine attempts one is left. A repeated attempt is free for a minute, then it costs again.
#[tokio::test]
async fn failed_attempts_expire_after_a_minute() {
    let bench = IdentifyBench::new(AnonymousAccess::Allow);
    for n in 0..10 {
        bench.guess(FAR, &format!("guess {n}")).await.unwrap_err();
    }
    bench.manual_clock.advance(Duration::from_secs(59));
    for _ in 0..20 {
        assert_eq!(
            bench.guess(FAR, "guess 0").await,
            Err(AuthenticationError::InvalidCredentials)
        );
    }
    bench.manual_clock.advance(Duration::from_secs(1));
    // After 60 s all ten attempts are available again: ten old ones cost ten, and the next is refused.
    for n in 0..10 {
        assert_eq!(
            bench.guess(FAR, &format!("guess {n}")).await,
            Err(AuthenticationError::InvalidCredentials),
            "{n}"
        );
    }
    assert_eq!(
        bench.guess(FAR, "another").await,
        Err(AuthenticationError::Throttled(SIX_SECONDS))
    );
}

/// Valid credentials are verified again after ten minutes: visible from an address that has no attempt left.
#[tokio::test]
async fn valid_credentials_are_verified_again_after_ten_minutes() {
    let bench = IdentifyBench::new(AnonymousAccess::Allow);
    assert_eq!(
        bench.guess(HOME, "s3cret:with:colons").await.as_deref(),
        Ok("news")
    );
    bench.manual_clock.advance(Duration::from_secs(599));
    for n in 0..10 {
        bench.guess(FAR, &format!("guess {n}")).await.unwrap_err();
    }
    assert_eq!(
        bench.guess(FAR, "s3cret:with:colons").await.as_deref(),
        Ok("news")
    );
    bench.manual_clock.advance(Duration::from_secs(1));
    assert_eq!(
        bench.guess(FAR, "s3cret:with:colons").await,
        Err(AuthenticationError::Throttled(Duration::from_secs(5)))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_credentials_at_once_are_checked_once() {
    let bench = IdentifyBench::new(AnonymousAccess::Deny);
    let guesses: Vec<_> = (0..400)
        .map(|n| {
            let crawlers = Arc::clone(&bench.crawlers);
            let password = if n % 2 == 0 {
                "s3cret:with:colons"
            } else {
                "stale"
            };
            tokio::spawn(async move {
                let caller = crawlers.new_client(FAR.parse::<IpAddr>().unwrap(), None);
                let mut headers = HeaderMap::new();
                let field = HeaderValue::from_str(&basic("news", password)).unwrap();
                headers.insert(PROXY_AUTHORIZATION, field);
                crawlers
                    .identify(&caller, &headers)
                    .await
                    .map(|who| who.crawler.to_string())
            })
        })
        .collect();
    let mut right = 0;
    for guess in guesses {
        match guess.await.unwrap() {
            Ok(name) => right += usize::from(name == "news"),
            Err(stranger) => assert_eq!(stranger, AuthenticationError::InvalidCredentials),
        }
    }
    assert_eq!(right, 200);
    // One of the ten was wrong.
    for n in 0..9 {
        assert_eq!(
            bench.guess(FAR, &format!("guess {n}")).await,
            Err(AuthenticationError::InvalidCredentials),
            "{n}"
        );
    }
    assert_eq!(
        bench.guess(FAR, "too many").await,
        Err(AuthenticationError::Throttled(SIX_SECONDS))
    );
}

/// A crawler, `news`, whose password takes long to check.
fn slow_bench() -> IdentifyBench {
    let slow = PasswordHash::parse(&bcrypt::hash("s3cret", 7).unwrap()).unwrap();
    let auth = Some(StoredCredentials {
        user: "news".into(),
        password: slow,
    });
    let registration = CrawlerRegistration {
        auth,
        ..registration("news", None, &[])
    };
    IdentifyBench::with(&[registration], AnonymousAccess::Deny)
}

/// Starts to guess, without waiting for the outcome.
fn spawn_guess(
    bench: &IdentifyBench,
    source: IpAddr,
    password: String,
) -> tokio::task::JoinHandle<Result<CrawlerIdentity, AuthenticationError>> {
    let crawlers = Arc::clone(&bench.crawlers);
    tokio::spawn(async move {
        let caller = crawlers.new_client(source, None);
        let mut headers = HeaderMap::new();
        let field = HeaderValue::from_str(&basic("news", &password)).unwrap();
        headers.insert(PROXY_AUTHORIZATION, field);
        crawlers.identify(&caller, &headers).await
    })
}

/// A source has 64 places; further guesses are refused without counting as failed ones, and no other source is affected.
#[tokio::test]
async fn pending_verifications_of_a_source_are_limited() {
    let bench = slow_bench();
    let far = FAR.parse().unwrap();
    let guesses: Vec<_> = (0..200)
        .map(|n| spawn_guess(&bench, far, format!("guess {n}")))
        .collect();
    // All of them have arrived.
    tokio::task::yield_now().await;
    assert!(bench.guess(HOME, "s3cret").await.is_ok());
    let (mut wrong, mut busy, mut throttled) = (0, 0, 0);
    for guess in guesses {
        match guess.await.unwrap().unwrap_err() {
            AuthenticationError::InvalidCredentials => wrong += 1,
            AuthenticationError::Busy => busy += 1,
            AuthenticationError::Throttled(_) => throttled += 1,
            other @ (AuthenticationError::MissingCredentials
            | AuthenticationError::MalformedCredentials(_)
            | AuthenticationError::UnknownHere) => panic!("{other:?}"),
        }
    }
    assert_eq!(wrong, 10);
    // A check may end before the last ones arrive, and a place is free a moment after its check has ended.
    assert!(
        (100..=140).contains(&busy),
        "{busy} busy, {throttled} throttled"
    );
}

/// Hundreds of sources guess at once, each several passwords. A right one from another source is checked soon.
#[tokio::test]
async fn a_flood_of_wrong_passwords_shuts_nobody_out() {
    let bench = slow_bench();
    let guesses: Vec<_> = (0..2_000)
        .map(|n| {
            let [high, low] = u16::try_from(n % 400).unwrap().to_be_bytes();
            let source = IpAddr::from([203, 0, high, low]);
            spawn_guess(&bench, source, format!("guess {n}"))
        })
        .collect();
    tokio::task::yield_now().await;
    assert!(bench.guess(HOME, "s3cret").await.is_ok());
    let finished = guesses.iter().filter(|guess| guess.is_finished()).count();
    assert!(finished < 1_000, "they still wait: {finished} have ended");
    guesses.iter().for_each(tokio::task::JoinHandle::abort);
}

/// From an address without attempts, only a cached outcome is accepted.
#[tokio::test]
async fn wrong_passwords_evict_no_right_one() {
    let bench = IdentifyBench::new(AnonymousAccess::Allow);
    assert!(bench.guess(HOME, "s3cret:with:colons").await.is_ok());
    let mut wrong = 0;
    for n in 0..6_000 {
        let source = format!("2001:db9:0:{:x}::1", n / 10);
        let guess = format!("guess {n}");
        // Twice, as clients repeat requests: what is asked for often is kept in preference.
        for _ in 0..2 {
            let error = bench.guess(&source, &guess).await.unwrap_err();
            // Some sources share their attempts.
            wrong += usize::from(error == AuthenticationError::InvalidCredentials);
        }
    }
    assert!(wrong > 2 * 4_500, "more than are cached: {wrong}");
    for n in 0..10 {
        bench.guess(FAR, &format!("new {n}")).await.unwrap_err();
    }
    let right = bench.guess(FAR, "s3cret:with:colons").await;
    assert_eq!(right.as_deref(), Ok("news"));
}

#[tokio::test]
async fn no_output_contains_a_secret() {
    let bench = IdentifyBench::new(AnonymousAccess::Allow);
    let caller = bench.caller(HOME, None);
    let field = basic("news", "s3cret:with:colons");
    bench.on(&caller, &[&field]).await.unwrap();
    let secret = [&field["Basic ".len()..], "s3cret", "$2b$", "$2y$"];
    let registration = registration("news", Some(("news", "s3cret")), &[]);
    for shown in [
        format!("{:?}", bench.crawlers),
        format!("{caller:#?}"),
        format!("{registration:?}"),
    ] {
        for secret in secret {
            assert!(!shown.contains(secret), "{secret} is in {shown}");
        }
    }
}
