//! Crawlers as clients, operators and scrapers see them: the real binary, over sockets.

use std::net::SocketAddr;

use crawlgate::pipeline::crawlers::password::PasswordHash;

use crate::support::client::RawClient;
use crate::support::command::crawlgate;
use crate::support::origin::ScriptedOrigin;
use crate::support::proxy::TestProxy;
use crate::support::temp_dir::TempDir;
use crate::support::wait::wait_until;

/// `news` is refused below `/private`; the depth limit is 2.
const POLICY: &str = "
policy: 1
name: who
options: { disposition: allow, max_depth: 2, robots: { obey: false }, politeness: { delay: 0s, concurrency: 100 } }
rules:
  - { id: not-for-news, forbid: { crawler: news, path: /private } }
  - { id: nobody, forbid: { path: /never } }
";

const CHALLENGE: &str = "proxy-authenticate: Basic realm=\"crawlgate\", charset=\"UTF-8\"";

/// A proxy before an origin. `news` (nutch), `shop` (strict-http) and `deep` have credentials; `door` has the second
/// listener.
struct World {
    gate: TestProxy,
    door: SocketAddr,
    origin: ScriptedOrigin,
}

impl World {
    fn new(anonymous: &str) -> Self {
        let origin = ScriptedOrigin::ok();
        let hash = bcrypt::hash("s3cret", 4).unwrap();
        let config = format!(
            "listen: [127.0.0.1:0, {{ addr: 127.0.0.1:0, crawler: door }}]\n\
             admin: {{ listen: 127.0.0.1:0 }}\n\
             anonymous: {anonymous}\n\
             crawlers:\n\
             - {{ name: news, auth: {{ user: news, password_hash: '{hash}' }}, profile: nutch }}\n\
             - {{ name: shop, auth: {{ user: shop, password_hash: '{hash}' }}, profile: strict-http }}\n\
             - {{ name: deep, auth: {{ user: deep, password_hash: '{hash}' }}, may: [depth] }}\n\
             - {{ name: door }}\n\
             egress: {{ allow_loopback: true, ports: [1-65535] }}\n"
        );
        let gate = TestProxy::start(&config, POLICY);
        let output = gate.stderr();
        let listeners: Vec<&str> = output
            .lines()
            .filter_map(|line| line.strip_prefix("proxy listening on "))
            .collect();
        let door = listeners[1].parse().unwrap();
        Self { gate, door, origin }
    }

    fn url(&self, path: &str) -> String {
        self.origin.url("127.0.0.1", path)
    }

    fn client(&self) -> RawClient {
        RawClient::connect(self.gate.proxy)
    }

    /// The status of a GET on a new connection.
    fn get(&self, path: &str, fields: &str) -> u16 {
        self.client().get_with(&self.url(path), fields).status
    }

    /// Waits until a series has this value: a record ends after the last byte of the response.
    fn wait_for(&self, series: &str, value: f64) {
        self.gate.wait_for_metric(series, value);
    }
}

impl World {
    /// Standard error, once it has a line with all words of each row.
    fn logged(&self, rows: &[&[&str]]) -> String {
        wait_until("the decisions are logged", || {
            let log = self.gate.stderr();
            rows.iter().all(|row| {
                let mut lines = log.lines();
                lines.any(|line| row.iter().all(|word| line.contains(word)))
            })
        });
        self.gate.stderr()
    }
}

fn basic(user: &str, password: &str) -> String {
    use base64::Engine as _;
    let credentials =
        base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    format!("Proxy-Authorization: Basic {credentials}\r\n")
}

#[test]
fn an_unknown_client_gets_407_and_may_retry_on_the_same_connection() {
    let world = World::new("deny");
    let url = world.url("/a");
    let mut client = world.client();
    for fields in [
        String::new(),
        basic("news", "hunter2"),
        "Proxy-Authorization: Bearer x\r\n".into(),
    ] {
        let answer = client.get_with(&url, &fields);
        assert_eq!(answer.status, 407, "{fields}");
        for field in [
            CHALLENGE,
            "crawl-status: REJECTED_UNAUTHORIZED",
            "crawl-reason: unauthorized",
            "crawl-retry: never",
            "proxy-status: \"crawlgate\"; error=http_request_error; details=\"unauthorized\"",
            "cache-control: no-store",
        ] {
            assert!(answer.has_line(field), "{field} is not in {}", answer.head);
        }
        assert!(answer.body.contains("\"stage\":\"identify\""), "{answer}");
        for secret in ["hunter2", "aHVudGVyMg", "news", "$2b$"] {
            assert!(!answer.body.contains(secret), "{secret} is in {answer}");
        }
    }
    // A small body is read, so that the connection can be reused.
    let post = format!("POST {url} HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.request(&post).status, 407);
    let head = format!("HEAD {url} HTTP/1.1\r\nHost: h\r\n\r\n");
    client.send(&head);
    assert!(client.read_head().starts_with("HTTP/1.1 407 "));
    assert_eq!(client.get_with(&url, &basic("news", "s3cret")).status, 200);
    assert_eq!(client.get_with(&url, "").status, 407);
    assert_eq!(client.get_with("not a target of a proxy", "").status, 400);
}

/// A 407 would make a crawler with the right password give up.
#[test]
fn a_password_that_is_not_checked_gets_503() {
    let world = World::new("deny");
    for n in 0..10 {
        assert_eq!(world.get("/a", &basic("news", &format!("guess {n}"))), 407);
    }
    for password in ["s3cret", "guess 10"] {
        let fields = basic("news", password);
        let answer = world.client().get_with(&world.url("/a"), &fields);
        assert_eq!(answer.status, 503, "{answer}");
        assert_eq!(answer.field("crawl-reason"), Some("overloaded"));
        let wait: u64 = answer.field("retry-after").unwrap().parse().unwrap();
        assert!((1..=6).contains(&wait), "{answer}");
        assert!(answer.field("proxy-authenticate").is_none(), "{answer}");
        assert!(answer.body.contains("were not checked"), "{answer}");
    }
    // A wrong one that was checked is still wrong.
    assert_eq!(world.get("/a", &basic("news", "guess 0")), 407);
    let mut tunnel = world.client();
    let connect = format!(
        "CONNECT h.test:443 HTTP/1.1\r\nHost: h.test\r\n{}\r\n",
        basic("news", "s3cret")
    );
    let answer = tunnel.request(connect);
    assert_eq!(answer.status, 503, "{answer}");
    assert!(answer.field("retry-after").is_some(), "{answer}");
}

/// Hashes of the size that `crawlgate password` makes: the process would grow by that size with each.
#[test]
fn wrong_passwords_cost_bounded_memory() {
    let hash = PasswordHash::generate("s3cret").unwrap();
    let config = format!(
        "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0 }}\nanonymous: deny\n\
         crawlers: [{{ name: news, auth: {{ user: news, password_hash: '{hash}' }} }}]\n"
    );
    let gate = TestProxy::start(&config, POLICY);
    let memory = || gate.metric("process_resident_memory_bytes") / f64::from(1 << 20);
    let before = memory();
    for n in 0..10 {
        let fields = basic("news", &format!("guess {n}"));
        let answer = RawClient::connect(gate.proxy).get_with("http://a.test/", &fields);
        assert_eq!(answer.status, 407, "{answer}");
    }
    let grown = memory() - before;
    // Two slots of 19 MiB.
    assert!(grown < 60.0, "{grown} MiB");
}

#[test]
fn a_refused_connect_closes() {
    let world = World::new("deny");
    let connect =
        |fields: &str| format!("CONNECT h.test:443 HTTP/1.1\r\nHost: h.test\r\n{fields}\r\n");
    for fields in [String::new(), basic("news", "wrong")] {
        let mut client = world.client();
        let answer = client.request(connect(&fields));
        assert_eq!(answer.status, 407);
        assert!(answer.has_line(CHALLENGE), "{answer}");
        assert!(answer.has_line("connection: close"), "{answer}");
        assert_eq!(client.read_rest(), "");
    }
    // CONNECT of old clients, without a Host field.
    let old = format!(
        "CONNECT h.test:443 HTTP/1.0\r\n{}\r\n",
        basic("news", "wrong")
    );
    assert_eq!(world.client().request(&old).status, 407);
    assert_ne!(
        world
            .client()
            .request(connect(&basic("news", "s3cret")))
            .status,
        407
    );
}

#[test]
fn each_crawler_is_answered_by_its_profile() {
    let world = World::new("allow");
    let news = basic("news", "s3cret");
    let shop = basic("shop", "s3cret");
    let by_agent = "User-Agent: Nutch/1.0\r\n";
    for (path, fields, status) in [
        ("/a", news.as_str(), 200),
        ("/never", &news, 410),
        ("/never", &shop, 403),
        ("/never", "", 451),
        ("/never", by_agent, 410),
        ("/never", &format!("{by_agent}{shop}"), 403),
        // By rule.
        ("/private", &news, 410),
        ("/private", &shop, 200),
        ("/private", "", 200),
    ] {
        assert_eq!(world.get(path, fields), status, "{path} {fields}");
    }
}

#[test]
fn a_listener_names_its_crawler_and_credentials_name_another() {
    let world = World::new("deny");
    let url = world.url("/private");
    assert_eq!(
        RawClient::connect(world.door).get_with(&url, "").status,
        200
    );
    assert_eq!(
        RawClient::connect(world.door)
            .get_with(&url, &basic("news", "s3cret"))
            .status,
        410
    );
    assert_eq!(
        RawClient::connect(world.door)
            .get_with(&url, &basic("news", "wrong"))
            .status,
        407
    );
    world.wait_for(
        "crawlgate_requests_total{code=\"200\",crawler=\"door\",method=\"GET\",source=\"origin\"}",
        1.0,
    );
}

#[test]
fn a_depth_counts_from_permitted_crawlers_only() {
    let world = World::new("allow");
    let deep = basic("deep", "s3cret");
    for (fields, status) in [
        (format!("{deep}Crawl-Depth: 3\r\n"), 451),
        (format!("{deep}Crawl-Depth: 2\r\n"), 200),
        (format!("{deep}Crawl-Depth: deep\r\n"), 200),
        (
            format!("{}Crawl-Depth: 3\r\n", basic("news", "s3cret")),
            200,
        ),
        ("Crawl-Depth: 3\r\n".to_owned(), 200),
    ] {
        assert_eq!(world.get("/a", &fields), status, "{fields}");
    }
    let heads = world.origin.heads();
    assert_eq!(heads.len(), 4);
    for head in heads.iter().map(|head| head.to_lowercase()) {
        assert!(!head.contains("crawl-"), "{head}");
        assert!(!head.contains("proxy-authorization"), "{head}");
    }
}

#[test]
fn metrics_and_the_log_know_the_crawler() {
    let world = World::new("allow");
    fn decisions(crawler: &str, verdict: &str, reason: &str, stage: &str) -> String {
        format!(
            "crawlgate_decisions_total{{crawler=\"{crawler}\",reason=\"{reason}\",stage=\"{stage}\",verdict=\"{verdict}\"}}"
        )
    }
    let repeats =
        |crawler: &str| format!("crawlgate_repeat_rejections_total{{crawler=\"{crawler}\"}}");
    // Configured names have series from the start.
    for crawler in ["anonymous", "news", "shop", "deep", "door"] {
        world.wait_for(&decisions(crawler, "reject", "rule", "request"), 0.0);
        world.wait_for(&repeats(crawler), 0.0);
    }
    let news = basic("news", "s3cret");
    assert_eq!(world.get("/never", &news), 410);
    assert_eq!(world.get("/never", &basic("shop", "s3cret")), 403);
    world.wait_for(&decisions("news", "reject", "rule", "request"), 1.0);
    // Two crawlers with one URL are no repetition; one crawler with the same URL twice is.
    world.wait_for(&repeats("shop"), 0.0);
    assert_eq!(world.get("/never", &news), 410);
    world.wait_for(&repeats("news"), 1.0);
    world.wait_for(&repeats("shop"), 0.0);
    assert_eq!(world.get("/a", &basic("nobody", "s3cret")), 407);
    world.wait_for(
        &decisions("anonymous", "reject", "unauthorized", "identify"),
        1.0,
    );
    let output = world.logged(&[
        &["\"crawler\":\"shop\"", "\"rule\":\"nobody\""],
        &["\"crawler\":\"anonymous\"", "\"reason\":\"unauthorized\""],
    ]);
    for secret in [
        "s3cret",
        "$2b$",
        &news["Proxy-Authorization: Basic ".len()..news.len() - 2],
    ] {
        assert!(!output.contains(secret), "{output}");
    }
}

#[test]
fn an_open_relay_does_not_start() {
    let folder = TempDir::new();
    let hash = bcrypt::hash("s3cret", 4).unwrap();
    let auth = format!("auth: {{ user: a, password_hash: '{hash}' }}");
    for (listen, rest, refused) in [
        ("0.0.0.0:0", String::new(), "`anonymous: deny`"),
        (
            "'[::]:0'",
            format!("crawlers: [{{ name: a, {auth} }}]"),
            "open relay",
        ),
        (
            "[{ addr: 0.0.0.0:0, crawler: a }]",
            format!("anonymous: deny\ncrawlers: [{{ name: a, {auth} }}]"),
            "Give a `sources`",
        ),
        (
            "[{ addr: 0.0.0.0:0, crawler: a }]",
            "crawlers: [{ name: a }, { name: b, sources: [10.0.0.0/8] }]".to_owned(),
            "any client that reaches it would be a",
        ),
    ] {
        folder.write(
            "c.yaml",
            format!("listen: {listen}\nadmin: {{ listen: 127.0.0.1:0 }}\n{rest}\n"),
        );
        let output = crawlgate(folder.path(), "run --config c.yaml", "");
        assert_eq!(output.code, 2, "{listen} {rest}: {}", output.stderr);
        assert!(
            output.stderr.contains(refused),
            "{listen} {rest}: {output:?}"
        );
        assert!(!output.stderr.contains("$2b$"), "{}", output.stderr);
    }
}

#[test]
fn a_restricted_listener_off_loopback_starts() {
    let hash = bcrypt::hash("s3cret", 4).unwrap();
    for rest in [
        format!(
            "anonymous: deny\ncrawlers: [{{ name: a, auth: {{ user: a, password_hash: '{hash}' }} }}]"
        ),
        "crawlers: [{ name: a, sources: [192.0.2.0/24] }]".to_owned(),
    ] {
        let config = format!("listen: 0.0.0.0:0\nadmin: {{ listen: 127.0.0.1:0 }}\n{rest}\n");
        assert!(TestProxy::start(&config, POLICY).is_running(), "{rest}");
    }
}

#[test]
fn the_password_command_prints_a_hash() {
    let folder = TempDir::new();
    let output = crawlgate(folder.path(), "password", "correct horse\n");
    assert_eq!((output.code, output.stderr.as_str()), (0, ""));
    let hash = output.stdout.strip_suffix('\n').unwrap();
    folder.write(
        "c.yaml",
        format!("crawlers: [{{ name: a, auth: {{ user: a, password_hash: \"{hash}\" }} }}]\n"),
    );
    folder.write("policy.yaml", POLICY);
    let output = crawlgate(folder.path(), "check c.yaml", "");
    assert_eq!(output.code, 0, "{}{}", output.stdout, output.stderr);
    for (input, mistake) in [
        ("", "the password is empty"),
        ("\n", "the password is empty"),
        ("a\tb\n", "control"),
    ] {
        let output = crawlgate(folder.path(), "password", input);
        assert_eq!(output.code, 2, "{input:?}");
        assert!(output.stderr.contains(mistake), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

/// `check` and `explain` report names that the configuration does not define, if they read one.
#[test]
fn unknown_crawlers_are_reported_if_a_configuration_is_read() {
    let folder = TempDir::new();
    folder.write(
        "config/policy.yaml",
        POLICY.replace("crawler: news", "crawler: [newz, anonymous]"),
    );
    folder.write(
        "config/crawlgate.yaml",
        "crawlers: [{ name: news, sources: [10.1.0.0/16], profile: nutch }]\n",
    );
    fn run(folder: &TempDir, arguments: &[&str]) -> crate::support::command::CommandOutput {
        crawlgate(folder.path(), arguments, "")
    }
    let warning = "policy.yaml:6:45: warning: the configuration defines no crawler of this name; found `newz`";
    let help = "known: news, anonymous";
    for arguments in [
        &["check"][..],
        &["check", "config/policy.yaml", "config/crawlgate.yaml"],
    ] {
        let output = run(&folder, arguments);
        let reported = [warning, help, "did you mean `news`?"]
            .iter()
            .all(|text| output.stderr.contains(text));
        assert!(
            output.code == 0 && reported,
            "{arguments:?}: {}",
            output.stderr
        );
    }
    assert!(
        !run(&folder, &["check", "config/policy.yaml"])
            .stderr
            .contains("knows no crawler")
    );

    let explain = [
        "explain",
        "http://h.test/never",
        "--format",
        "json",
        "--crawler",
    ];
    let status = |more: &[&str]| {
        let output = run(&folder, &[&explain, more].concat());
        let json: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        let warnings = output
            .stderr
            .lines()
            .filter(|line| !line.starts_with("note: "));
        (
            json["decision"]["status"].as_u64().unwrap(),
            warnings.map(|line| format!("{line}\n")).collect::<String>(),
        )
    };
    assert_eq!(status(&["news"]), (410, String::new()));
    assert_eq!(
        status(&["news", "--profile", "generic"]),
        (451, String::new())
    );
    let (code, output) = status(&["newz"]);
    assert!(code == 451, "{output}");
    assert!(
        output.contains("warning: the configuration has no crawler newz"),
        "{output}"
    );
    assert_eq!(
        status(&["newz", "--policy", "config/policy.yaml"]),
        (451, String::new())
    );
}
