//! Crawlers as clients, operators and scrapers see them: the real binary, over sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::support::command::crawlgate;
use crate::support::folder::Folder;
use crate::support::gate::Gate;

/// `news` is refused what `/private` holds; nobody goes deeper than two.
const POLICY: &str = "
policy: 1
name: who
options: { disposition: allow, max_depth: 2, robots: { obey: false }, politeness: { delay: 0s, concurrency: 100 } }
rules:
  - { id: not-for-news, forbid: { crawler: news, path: /private } }
  - { id: nobody, forbid: { path: /never } }
";

const CHALLENGE: &str = "proxy-authenticate: Basic realm=\"crawlgate\", charset=\"UTF-8\"";

/// An origin that keeps the heads it gets and answers each with an empty 200.
struct Origin {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Origin {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (address, heads) = (
            listener.local_addr().unwrap(),
            Arc::new(Mutex::new(Vec::new())),
        );
        let kept = Arc::clone(&heads);
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                thread::spawn(move || serve(socket, &kept));
            }
        });
        Self { address, heads }
    }
}

fn serve(socket: TcpStream, kept: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(socket);
    while let Some(head) = head(&mut reader) {
        kept.lock().unwrap().push(head.to_lowercase());
        let _ = reader
            .get_mut()
            .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    }
}

fn head(reader: &mut impl BufRead) -> Option<String> {
    let mut head = String::new();
    loop {
        let before = head.len();
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
        if &head[before..] == "\r\n" {
            return Some(head);
        }
    }
}

/// A gate before an origin. `news` (nutch), `shop` (strict-http) and `deep` have credentials; `door` has the second
/// listener.
struct World {
    gate: Gate,
    door: SocketAddr,
    origin: Origin,
}

impl World {
    fn new(anonymous: &str) -> Self {
        let origin = Origin::start();
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
        let gate = Gate::start(&config, POLICY);
        let said = gate.said();
        let listeners: Vec<&str> = said
            .lines()
            .filter_map(|line| line.strip_prefix("proxy listening on "))
            .collect();
        let door = listeners[1].parse().unwrap();
        Self { gate, door, origin }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.origin.address)
    }

    fn client(&self) -> Client {
        Client::to(self.gate.proxy)
    }

    /// The status of a GET over a connection of its own.
    fn get(&self, path: &str, fields: &str) -> u16 {
        self.client().get(&self.url(path), fields).status()
    }

    fn metrics(&self) -> String {
        let mut socket = TcpStream::connect(self.gate.admin).unwrap();
        write!(
            socket,
            "GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.gate.admin
        )
        .unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        text
    }

    /// The value of a series; waits for it, since a record ends behind the answer's last byte.
    fn counted(&self, series: &str, value: &str) {
        let line = format!("{series} {value}");
        let began = Instant::now();
        while !self.metrics().lines().any(|l| l == line) {
            let found: Vec<String> = self
                .metrics()
                .lines()
                .filter(|l| l.starts_with(series))
                .map(Into::into)
                .collect();
            assert!(
                began.elapsed() < Duration::from_secs(5),
                "{line} is not among {found:?}"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl World {
    /// Everything the gate said, once it has a line with all words of each row.
    fn logged(&self, rows: &[&[&str]]) -> String {
        let began = Instant::now();
        loop {
            let said = self.gate.said();
            let has = |row: &&[&str]| {
                said.lines()
                    .any(|line| row.iter().all(|word| line.contains(word)))
            };
            if rows.iter().all(has) {
                return said;
            }
            assert!(
                began.elapsed() < Duration::from_secs(5),
                "{rows:?} are not in {said}"
            );
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A connection to the proxy.
struct Client(BufReader<TcpStream>);

struct Answer {
    head: String,
    body: String,
}

impl Answer {
    fn status(&self) -> u16 {
        self.head[9..12].parse().unwrap()
    }

    fn has(&self, field: &str) -> bool {
        self.head.lines().any(|line| line == field)
    }
}

impl Client {
    fn to(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        Self(BufReader::new(socket))
    }

    fn get(&mut self, url: &str, fields: &str) -> Answer {
        self.ask(&format!("GET {url} HTTP/1.1\r\nHost: h\r\n{fields}\r\n"))
    }

    fn ask(&mut self, bytes: &str) -> Answer {
        self.0.get_mut().write_all(bytes.as_bytes()).unwrap();
        let head = head(&mut self.0).expect("an answer");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length = length
            .filter(|_| !bytes.starts_with("HEAD"))
            .map_or(0, |l| l.parse().unwrap());
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        Answer {
            head,
            body: String::from_utf8(body).unwrap(),
        }
    }

    fn ends(mut self) -> bool {
        self.0.read(&mut [0]).is_ok_and(|bytes| bytes == 0)
    }
}

fn basic(user: &str, password: &str) -> String {
    use base64::Engine as _;
    let credentials =
        base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    format!("Proxy-Authorization: Basic {credentials}\r\n")
}

#[test]
fn a_stranger_gets_407_and_may_try_again_on_the_same_connection() {
    let world = World::new("deny");
    let url = world.url("/a");
    let mut client = world.client();
    for fields in [
        String::new(),
        basic("news", "hunter2"),
        "Proxy-Authorization: Bearer x\r\n".into(),
    ] {
        let answer = client.get(&url, &fields);
        assert_eq!(answer.status(), 407, "{fields}");
        for field in [
            CHALLENGE,
            "crawl-status: REJECTED_UNAUTHORIZED",
            "crawl-reason: unauthorized",
            "crawl-retry: never",
            "proxy-status: \"crawlgate\"; error=http_request_error; details=\"unauthorized\"",
            "cache-control: no-store",
        ] {
            assert!(answer.has(field), "{field} is not in {}", answer.head);
        }
        assert!(
            answer.body.contains("\"stage\":\"identify\""),
            "{}",
            answer.body
        );
        for secret in ["hunter2", "aHVudGVyMg", "news", "$2b$"] {
            assert!(
                !answer.body.contains(secret),
                "{secret} is in {}",
                answer.body
            );
        }
    }
    // A small body is read, so that the connection is kept.
    let post = format!("POST {url} HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.ask(&post).status(), 407);
    let head = format!("HEAD {url} HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(client.ask(&head).status(), 407);
    assert_eq!(client.get(&url, &basic("news", "s3cret")).status(), 200);
    assert_eq!(client.get(&url, "").status(), 407);
    assert_eq!(client.get("not a target of a proxy", "").status(), 400);
}

#[test]
fn a_refused_connect_closes() {
    let world = World::new("deny");
    let connect =
        |fields: &str| format!("CONNECT h.test:443 HTTP/1.1\r\nHost: h.test\r\n{fields}\r\n");
    for fields in [String::new(), basic("news", "wrong")] {
        let mut client = world.client();
        let answer = client.ask(&connect(&fields));
        assert_eq!(answer.status(), 407);
        assert!(
            answer.has(CHALLENGE) && answer.has("connection: close"),
            "{}",
            answer.head
        );
        assert!(client.ends());
    }
    // CONNECT of old clients, with no Host field.
    let old = format!(
        "CONNECT h.test:443 HTTP/1.0\r\n{}\r\n",
        basic("news", "wrong")
    );
    assert_eq!(world.client().ask(&old).status(), 407);
    assert_ne!(
        world
            .client()
            .ask(&connect(&basic("news", "s3cret")))
            .status(),
        407
    );
}

#[test]
fn each_crawler_is_answered_in_its_own_way() {
    let world = World::new("allow");
    let (news, shop) = (basic("news", "s3cret"), basic("shop", "s3cret"));
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
    assert_eq!(Client::to(world.door).get(&url, "").status(), 200);
    assert_eq!(
        Client::to(world.door)
            .get(&url, &basic("news", "s3cret"))
            .status(),
        410
    );
    assert_eq!(
        Client::to(world.door)
            .get(&url, &basic("news", "wrong"))
            .status(),
        407
    );
    world.counted(
        "crawlgate_requests_total{code=\"200\",crawler=\"door\",method=\"GET\",source=\"origin\"}",
        "1",
    );
}

#[test]
fn a_depth_counts_from_those_who_may_give_one() {
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
    let heads = world.origin.heads.lock().unwrap();
    assert_eq!(heads.len(), 4);
    for head in heads.iter() {
        assert!(
            !head.contains("crawl-") && !head.contains("proxy-authorization"),
            "{head}"
        );
    }
}

#[test]
fn metrics_and_the_log_know_the_crawler() {
    let world = World::new("allow");
    let decisions = |crawler: &str, verdict: &str, reason: &str, stage: &str| {
        format!(
            "crawlgate_decisions_total{{crawler=\"{crawler}\",reason=\"{reason}\",stage=\"{stage}\",verdict=\"{verdict}\"}}"
        )
    };
    let repeats =
        |crawler: &str| format!("crawlgate_repeat_rejections_total{{crawler=\"{crawler}\"}}");
    // Configured names stand there from the start.
    for crawler in ["anonymous", "news", "shop", "deep", "door"] {
        world.counted(&decisions(crawler, "reject", "rule", "request"), "0");
        world.counted(&repeats(crawler), "0");
    }
    let news = basic("news", "s3cret");
    assert_eq!(world.get("/never", &news), 410);
    assert_eq!(world.get("/never", &basic("shop", "s3cret")), 403);
    world.counted(&decisions("news", "reject", "rule", "request"), "1");
    // Two crawlers that ask for one URL repeat nothing; one that asks twice does.
    world.counted(&repeats("shop"), "0");
    assert_eq!(world.get("/never", &news), 410);
    world.counted(&repeats("news"), "1");
    world.counted(&repeats("shop"), "0");
    assert_eq!(world.get("/a", &basic("nobody", "s3cret")), 407);
    world.counted(
        &decisions("anonymous", "reject", "unauthorized", "identify"),
        "1",
    );
    let said = world.logged(&[
        &["\"crawler\":\"shop\"", "\"rule\":\"nobody\""],
        &["\"crawler\":\"anonymous\"", "\"reason\":\"unauthorized\""],
    ]);
    for secret in [
        "s3cret",
        "$2b$",
        &news["Proxy-Authorization: Basic ".len()..news.len() - 2],
    ] {
        assert!(!said.contains(secret), "{said}");
    }
}

#[test]
fn an_open_relay_does_not_start() {
    let folder = Folder::new();
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
        let said = crawlgate(folder.path(), &["run", "--config", "c.yaml"], "");
        assert_eq!(said.code, 2, "{listen} {rest}: {}", said.err);
        assert!(said.err.contains(refused), "{listen} {rest}: {}", said.err);
        assert!(!said.err.contains("$2b$"), "{}", said.err);
    }
}

#[test]
fn a_listener_off_loopback_that_says_who_may_starts() {
    let hash = bcrypt::hash("s3cret", 4).unwrap();
    for rest in [
        format!(
            "anonymous: deny\ncrawlers: [{{ name: a, auth: {{ user: a, password_hash: '{hash}' }} }}]"
        ),
        "crawlers: [{ name: a, sources: [192.0.2.0/24] }]".to_owned(),
    ] {
        let config = format!("listen: 0.0.0.0:0\nadmin: {{ listen: 127.0.0.1:0 }}\n{rest}\n");
        assert!(Gate::start(&config, POLICY).is_up(), "{rest}");
    }
}

#[test]
fn a_password_in_a_hash_out() {
    let folder = Folder::new();
    let said = crawlgate(folder.path(), &["password"], "correct horse\n");
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    let hash = said.out.strip_suffix('\n').unwrap();
    folder.write(
        "c.yaml",
        format!("crawlers: [{{ name: a, auth: {{ user: a, password_hash: \"{hash}\" }} }}]\n"),
    );
    folder.write("policy.yaml", POLICY);
    let said = crawlgate(folder.path(), &["check", "c.yaml"], "");
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    for (input, mistake) in [
        ("", "the password is empty"),
        ("\n", "the password is empty"),
        ("a\tb\n", "control"),
    ] {
        let said = crawlgate(folder.path(), &["password"], input);
        assert_eq!(said.code, 2, "{input:?}");
        assert!(
            said.err.contains(mistake) && said.out.is_empty(),
            "{}",
            said.err
        );
    }
}

/// `check` and `explain` speak of names that the configuration does not know, where they read one.
#[test]
fn unknown_names_are_told_where_a_configuration_is_read() {
    let folder = Folder::new();
    folder.write(
        "config/policy.yaml",
        POLICY.replace("crawler: news", "crawler: [newz, anonymous]"),
    );
    folder.write(
        "config/crawlgate.yaml",
        "crawlers: [{ name: news, sources: [10.1.0.0/16], profile: nutch }]\n",
    );
    let run = |arguments: &[&str]| crawlgate(folder.path(), arguments, "");
    let warning = "policy.yaml:6:45: warning: the configuration defines no crawler of this name; found `newz`";
    let help = "known: news, anonymous";
    for arguments in [
        &["check"][..],
        &["check", "config/policy.yaml", "config/crawlgate.yaml"],
    ] {
        let said = run(arguments);
        let told = [warning, help, "did you mean `news`?"]
            .iter()
            .all(|text| said.err.contains(text));
        assert!(said.code == 0 && told, "{arguments:?}: {}", said.err);
    }
    assert!(
        !run(&["check", "config/policy.yaml"])
            .err
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
        let said = run(&[&explain, more].concat());
        let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        (json["decision"]["status"].as_u64().unwrap(), said.err)
    };
    assert_eq!(status(&["news"]), (410, String::new()));
    assert_eq!(
        status(&["news", "--profile", "generic"]),
        (451, String::new())
    );
    let (code, said) = status(&["newz"]);
    assert!(
        code == 451 && said.contains("warning: the configuration has no crawler newz"),
        "{said}"
    );
    assert_eq!(
        status(&["newz", "--policy", "config/policy.yaml"]),
        (451, String::new())
    );
}
