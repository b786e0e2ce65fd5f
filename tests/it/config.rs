//! The configuration: defaults, errors, the search for the file, the effects of the command line and the environment.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crawlgate::config::file::ConfigFile;
use crawlgate::config::load::{Environment, LoadedConfig, Overrides, load};
use crawlgate::config::policy;
use crawlgate::config::settings::{
    AdminConfig, AuthorityFiles, EventsConfig, LedgerConfig, LedgerMode, ListenerConfig,
    PolicyOrigin, StoreConfig, TlsConfig, TrustRoots, WorkerCount,
};
use crawlgate::config::{BasePaths, Settings};
use crawlgate::diagnostics::problems::Problems;
use crawlgate::ledger::removal::{RemovalGuardSettings, RemovalSchedule};
use crawlgate::ledger::transition::ErrorTolerance;
use crawlgate::metrics::labels::MetricsMode;
use crawlgate::metrics::log::{
    LogDestination, LogFileRotation, LogFullAction, LogLineFormat, LogSettings, QueryVisibility,
    SampleRate,
};
use crawlgate::model::certificate_verification::CertificateVerification;
use crawlgate::model::crawler::CrawlerHint;
use crawlgate::model::profile::Profile;
use crawlgate::model::rule_id::Slug;
use crawlgate::pipeline::crawlers::AnonymousAccess;
use crawlgate::pipeline::crawlers::password::{HashMemory, PasswordMatch};
use crawlgate::proxy::intercept::RefusalDelivery;
use crawlgate::proxy::local_reply::ProfileSelection;
use crawlgate::proxy::resolve::NameServers;
use crawlgate::store::ledger::{LedgerFullAction, LedgerSettings};
use crawlgate::urls::target::UrlTarget;

use crate::support::temp_dir::TempDir;

/// The configuration block of the contract, with `crawlers`, `allow_private` and `parents`, which are shown there as
/// examples, at their defaults.
const CONTRACT: &str = r#"
listen: 127.0.0.1:3128               # or a list of {addr, crawler: NAME, tls: {cert, key}, proxy_protocol: {trusted: [cidr]}}
admin: { listen: 127.0.0.1:3129, token_file: none }  # /metrics /healthz /readyz /ca.pem /api/v1/… /ui ; a token is required off loopback
identity: { listen: none }           # or an address that serves the key directories
policy: { path: policy.yaml, watch: true, shadow: none }   # or { url: https://…, poll: 30s, verify_key: … }
profile: by-user-agent               # or one profile for all
crawlers: []
anonymous: allow                     # or deny: 407.
tls:
  intercept: true
  intercept_to_reject: true
  ca: { cert: ../certs/ca.pem, key: ../certs/ca.key, create: true }     # or a list: the first signs, all are exported
  bundle: ../certs/bundle.pem        # system roots + CA, for clients whose variable replaces the roots
  verify_upstream: true
  roots: native                      # or webpki
  extra_roots: []
  leaf_cache: 10000
  mints_per_client: 200/s            # burst 2000
h2: { clients: true, prior_knowledge: false, streams: 100, resets: 100 }
egress:
  allow_private: []
  allow_loopback: false
  ports: [80, 443, 1024-65535]
  connect_ports: [443, 80]
  tls_ports: [443]                   # where a blind tunnel may carry TLS
  resolver: system                   # or { servers: ["ip:port"] }
  hosts: {}                          # name: ip, vetted like any address
  parents: {}
store: { kind: embedded, path: ../var/crawlgate, timeout: 2s }   # or kind: postgres, with url
ledger: { keep: auto, on_full: wait, queue: 10000, temporary_errors: 5, cache: 64MiB, sweep_rate: 10000, removal_guard: { hold: 5 %, grace: 10m }, events: { file: none, webhook: none, keep: 30d } }
limits: { connections: 10000, per_client: 1000, head: 32KiB, fields: 100, target: 8KiB, origin_head: 128KiB, origin_fields: 256, request_body: 10MiB, queue_per_host: 1000, queue: 10000, max_hold: 60s, tunnels_per_host: 32, idle_pool: 1024, idle_per_host: 2 }
timeouts: { head: 10s, idle: 60s, tls: 10s, dns: 5s, connect: 5s, connect_total: 10s, response_head: 60s, body_idle: 60s, write_stall: 60s, request: 10m, tunnel_idle: 5m, tunnel: 1h, drain: 30s, drain_delay: 0s }
runtime: { workers: auto }           # 1 = one thread
logs:
  decisions: auto                    # or stderr, stdout, none, or a path
  format: json                       # or squid
  allows: 1.0                        # share of allowed requests that is logged
  on_full: drop                      # or wait
  rotate: { size: 256MiB, keep: 8, max_age: none }
  query: full
telemetry: { metrics: full, otlp: none }
"#;

fn listener(address: &str, crawler: Option<&str>) -> ListenerConfig {
    ListenerConfig {
        address: address.parse().unwrap(),
        crawler: crawler.and_then(Slug::new),
        tls: None,
        proxy_protocol: Vec::new(),
    }
}

fn nothing(_: &str) -> Option<String> {
    None
}

/// Reads a configuration; returns its problems, one per line.
fn read(text: &str) -> (ConfigFile, Vec<String>) {
    let mut problems = Problems::new();
    let base = BasePaths::default();
    let config = ConfigFile::parse(&Arc::from("c.yaml"), text, &base, &nothing, &mut problems);
    (
        config,
        problems
            .into_vec()
            .iter()
            .map(ToString::to_string)
            .collect(),
    )
}

fn overrides(config: &Path) -> Overrides {
    Overrides {
        config: Some(config.to_owned()),
        ..Overrides::default()
    }
}

/// Loads in a directory; returns the problems, one per line, if it is refused.
fn loaded(directory: &Path, overrides: &Overrides) -> Result<LoadedConfig, Vec<String>> {
    let around = Environment {
        directory,
        variables: &nothing,
    };
    load(overrides, &around).map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

/// The defaults of `tls`, with their files in this directory.
fn home_of_tls(certs: &str) -> TlsConfig {
    fn file(certs: &str, name: &str) -> std::path::PathBuf {
        Path::new(certs).join(name)
    }
    TlsConfig {
        authorities: vec![AuthorityFiles {
            cert: file(certs, "ca.pem"),
            key: file(certs, "ca.key"),
            create: true,
        }],
        bundle: file(certs, "bundle.pem"),
        ..TlsConfig::in_directory(Path::new(""))
    }
}

#[test]
fn the_defaults_are_those_of_the_contract() {
    let (config, problems) = read(CONTRACT);
    assert_eq!(problems, [""; 0]);
    let silent = ConfigFile::with_defaults(&BasePaths::default());
    assert_eq!(config.policy.as_ref().unwrap().path, "policy.yaml");
    assert_eq!(config.settings.tls, home_of_tls("../certs"));
    let store = Some("../var/crawlgate".into());
    assert_eq!(config.settings.store.path, store);
    let without_paths = ConfigFile {
        policy: None,
        settings: Settings {
            tls: silent.settings.tls.clone(),
            store: silent.settings.store.clone(),
            ..config.settings
        },
        ..config
    };
    assert_eq!(without_paths, silent);
    assert_eq!(read("").0, silent);
    assert_eq!(read("limits:\n# all of them commented out\n").0, silent);
}

/// Each key of this version has a different value, so that no key is read in place of another.
const EVERY_KEY: &str = r#"
listen: [127.0.0.1:1, { addr: "[::1]:2", crawler: news-bot }]
admin: { listen: 127.0.0.1:3, token_file: secret/token, names: [Gate.Corp.Example, "crawlgate:3129"], public_url: "https://gate.corp.example:3129/" }
identity: { listen: 127.0.0.1:4 }
policy: { path: rules, watch: false, contact: crawl-team@corp.example }
profile: heritrix
anonymous: deny
crawlers:
  - { name: news-bot, auth: { user: news, password_hash: "$2y$04$iofWQRpaN9T3zoFsvjEFYuOGiDpeCKe/4aVcx2pycp1KHIM/cNHHO" }, profile: scrapy }
  - { name: lab, sources: [10.1.2.3/16, 192.0.2.7], may: [depth] }
tls:
  intercept: true
  intercept_to_reject: false
  ca: [{ cert: new.pem, key: new.key, create: false }, { cert: /etc/old.pem, key: ../old.key }]
  bundle: all.pem
  verify_upstream: false
  roots: webpki
  extra_roots: [corp.pem]
  leaf_cache: 1
  mints_per_client: 2/s
egress:
  allow_private: [{ host: "*.Corp.Example", cidr: 10.2.3.4/16 }]
  allow_loopback: true
  ports: [1-65535]
  connect_ports: 443
  tls_ports: [8443, 443]
  resolver: { servers: ["192.0.2.53:53"] }
  hosts: { A.example: 10.2.0.7, b.example: [10.2.0.8, "fd00::8"] }
limits: { connections: 1, per_client: 2, head: 16KiB, fields: 3, target: 4KiB, origin_head: 17KiB, origin_fields: 4, request_body: 5B, idle_pool: 6, idle_per_host: 7, tunnels_per_host: 8 }
timeouts: { head: 1s, idle: 2s, dns: 3s, connect: 4s, connect_total: 5s, response_head: 6s, body_idle: 7s, write_stall: 8s, request: 9s, drain: 10s, drain_delay: 11s, tls: 12s, tunnel_idle: 13s, tunnel: 14s }
runtime: { workers: 3 }
logs: { decisions: ../var/decisions.jsonl, format: squid, allows: 0.25, on_full: wait, query: none, rotate: { size: 1GiB, keep: 0 } }
store: { kind: embedded, path: state/of/it }
ledger: { keep: always, on_full: drop, queue: 1, temporary_errors: 2, cache: 3MiB, sweep_rate: 4, removal_guard: { hold: off, grace: 7s }, events: { file: fed.jsonl, webhook: "https://Index.example/gone?k=1", keep: 5m } }
telemetry: { metrics: none }
"#;

/// The settings of `tls` in [`EVERY_KEY`].
fn every_key_of_tls(etc: &Path) -> TlsConfig {
    fn authority(etc: &std::path::Path, cert: &str, key: &str, create: bool) -> AuthorityFiles {
        AuthorityFiles {
            cert: etc.join(cert),
            key: etc.join(key),
            create,
        }
    }
    TlsConfig {
        intercept: true,
        refusal_delivery: RefusalDelivery::AtConnect,
        authorities: vec![
            authority(etc, "new.pem", "new.key", false),
            authority(etc, "/etc/old.pem", "../old.key", true),
        ],
        bundle: etc.join("all.pem"),
        verify: CertificateVerification::Skip,
        roots: TrustRoots::Webpki,
        extra_roots: vec![etc.join("corp.pem")],
        leaf_cache: 1,
        mints_per_client: 2,
        handshake_timeout: Duration::from_secs(12),
    }
}

/// The settings of `admin` in [`EVERY_KEY`].
fn every_key_of_admin(etc: &Path) -> AdminConfig {
    AdminConfig {
        listen: "127.0.0.1:3".parse().unwrap(),
        token_file: Some(etc.join("secret/token")),
        names: vec!["gate.corp.example".into(), "crawlgate:3129".into()],
        public_url: Some("https://gate.corp.example:3129".into()),
    }
}

/// The settings of `ledger` in [`EVERY_KEY`].
fn every_key_of_ledger(etc: &Path) -> LedgerConfig {
    let events = EventsConfig {
        file: Some(etc.join("fed.jsonl")),
        webhook: UrlTarget::parse("https://index.example/gone?k=1").ok(),
        keep: Duration::from_secs(300),
    };
    LedgerConfig {
        keep: LedgerMode::Always,
        store: LedgerSettings {
            tolerance: ErrorTolerance {
                temporary_errors: 2,
            },
            queue: 1,
            on_full: LedgerFullAction::Drop,
            cache: 3 << 20,
            removals: RemovalSchedule::Immediate,
        },
        sweep_rate: 4,
        removal_guard: RemovalGuardSettings {
            hold: None,
            grace: Duration::from_secs(7),
        },
        events,
    }
}

#[test]
fn every_key_reaches_its_setting() {
    let folder = TempDir::new();
    let file = folder.write("etc/crawlgate.yaml", EVERY_KEY);
    folder.write("etc/rules/a.yaml", "");
    let settings = loaded(folder.path(), &overrides(&file)).unwrap().settings;
    let etc = folder.path().join("etc");
    assert_eq!(
        settings.listen,
        [
            listener("127.0.0.1:1", None),
            listener("[::1]:2", Some("news-bot"))
        ]
    );
    assert_eq!(settings.admin, every_key_of_admin(&etc));
    assert_eq!(settings.identity_listen, "127.0.0.1:4".parse().ok());
    assert_eq!(settings.telemetry.metrics.mode, MetricsMode::EssentialOnly);
    assert_eq!(
        settings.policy.origin,
        PolicyOrigin::Path(etc.join("rules"))
    );
    assert!(!settings.policy.watch);
    assert_eq!(
        settings.policy.contact.as_deref(),
        Some("crawl-team@corp.example")
    );
    assert_eq!(
        settings.profile,
        ProfileSelection::Always(Profile::Heritrix)
    );
    assert_eq!(settings.workers, WorkerCount::Count(3));
    assert_eq!(settings.anonymous, AnonymousAccess::Deny);
    let [news, lab] = &settings.crawlers[..] else {
        panic!("{:?}", settings.crawlers)
    };
    assert_eq!(
        (news.crawler.as_str(), news.crawler.profile()),
        ("news-bot", Some(Profile::Scrapy))
    );
    let auth = news.auth.as_ref().unwrap();
    assert_eq!(
        (
            &*auth.user,
            auth.password.verify("s3cret", &mut HashMemory::default())
        ),
        ("news", Some(PasswordMatch::Match))
    );
    assert_eq!(
        (lab.crawler.as_str(), lab.crawler.profile(), &lab.auth),
        ("lab", None, &None)
    );
    assert_eq!(
        lab.sources,
        [
            "10.1.0.0/16".parse().unwrap(),
            "192.0.2.7/32".parse().unwrap()
        ]
    );
    assert!(lab.crawler.allows_hint(CrawlerHint::Depth));
    assert!(!lab.crawler.allows_hint(CrawlerHint::Trace));
    assert!(!news.crawler.allows_hint(CrawlerHint::Depth));
    assert_eq!(settings.tls, every_key_of_tls(&etc));
    assert_eq!(settings.ledger, every_key_of_ledger(&etc));
    let egress = settings.egress;
    assert_eq!(egress.allow_private[0].host, "*.corp.example");
    assert_eq!(egress.allow_private[0].cidr, "10.2.0.0/16".parse().unwrap());
    assert!(egress.allow_loopback);
    assert_eq!(egress.ports, [1..=65535]);
    assert_eq!(settings.tunnels.connect_ports, [443..=443]);
    assert_eq!(settings.tunnels.tls_ports, [443..=443, 8443..=8443]);
    assert_eq!(
        settings.dns.servers,
        NameServers::Servers(vec!["192.0.2.53:53".parse().unwrap()])
    );
    let hosts = [
        ("a.example", vec!["10.2.0.7"]),
        ("b.example", vec!["10.2.0.8", "fd00::8"]),
    ];
    let hosts = hosts.map(|(name, all)| {
        (
            name.to_owned(),
            all.iter().map(|a| a.parse().unwrap()).collect(),
        )
    });
    assert_eq!(settings.dns.hosts, BTreeMap::from(hosts));
    let accept = settings.accept;
    let upstream = settings.upstream;
    let tunnels = &settings.tunnels;
    let counts = [
        accept.connections,
        accept.per_client,
        accept.reader.limits.fields,
        upstream.max_fields,
        upstream.pool.total,
        upstream.pool.per_host,
        tunnels.per_host,
    ];
    assert_eq!(counts, [1, 2, 3, 4, 6, 7, 8]);
    assert_eq!(settings.max_request_body, 5);
    assert_eq!(
        [
            accept.reader.limits.bytes,
            accept.reader.limits.target,
            upstream.max_head_size
        ],
        [16 << 10, 4 << 10, 17 << 10]
    );
    let seconds = [
        accept.reader.head,
        accept.reader.idle,
        upstream.pool.idle,
        settings.dns.timeout,
        upstream.dial.connect,
        tunnels.dial.connect,
        upstream.dial.total,
        tunnels.dial.total,
        upstream.response_head_timeout,
        upstream.body_idle_timeout,
        accept.reader.write_stall,
        upstream.body_timeout,
        settings.drain.timeout,
        settings.drain.delay,
        settings.tls.handshake_timeout,
        tunnels.hello,
        tunnels.idle,
        tunnels.total,
    ];
    assert_eq!(
        seconds.map(|d| d.as_secs()),
        [1, 2, 2, 3, 4, 4, 5, 5, 6, 7, 8, 9, 10, 11, 12, 12, 13, 14]
    );
    assert_eq!(
        settings.logs,
        LogSettings {
            destination: LogDestination::Path(etc.join("../var/decisions.jsonl")),
            format: LogLineFormat::Squid,
            rotate: Some(LogFileRotation {
                size: 1 << 30,
                keep: 0,
                max_age: None,
            }),
            allow_sample: SampleRate::new(0.25).unwrap(),
            on_full: LogFullAction::Wait,
            query: QueryVisibility::Redacted,
            ..LogSettings::default()
        }
    );
    assert_eq!(settings.store.path, Some(etc.join("state/of/it")));
}

#[test]
fn a_log_need_not_be_rotated() {
    assert_eq!(
        read("logs: { rotate: { size: none } }")
            .0
            .settings
            .logs
            .rotate,
        None
    );
}

#[test]
fn a_log_may_be_rotated_by_age_alone() {
    let rotate = |text: &str| {
        read(&format!("logs: {{ rotate: {text} }}"))
            .0
            .settings
            .logs
            .rotate
    };
    let month = Some(Duration::from_secs(30 * 86_400));
    let found = rotate("{ size: none, max_age: 30d }").unwrap();
    assert_eq!(
        (found.size, found.keep, found.max_age),
        (LogFileRotation::NO_SIZE, 8, month)
    );
    let found = rotate("{ max_age: 30d }").unwrap();
    assert_eq!((found.size, found.max_age), (256 << 20, month));
    assert_eq!(rotate("{ max_age: none }"), Some(LogFileRotation::DEFAULT));
}

#[test]
fn redact_query_is_a_deprecated_name_of_query() {
    for (logs, query, warnings) in [
        ("query: full", QueryVisibility::Shown, vec![]),
        ("query: names", QueryVisibility::NamesOnly, vec![]),
        ("query: none", QueryVisibility::Redacted, vec![]),
        (
            "redact_query: true",
            QueryVisibility::Redacted,
            vec!["`redact_query` is deprecated: write `query: none`"],
        ),
        (
            "redact_query: false",
            QueryVisibility::Shown,
            vec!["`redact_query` is deprecated: write `query: full`"],
        ),
        (
            "query: names, redact_query: true",
            QueryVisibility::NamesOnly,
            vec!["`redact_query` is deprecated: write `query: none`"],
        ),
    ] {
        let (config, problems) = read(&format!("logs: {{ {logs} }}"));
        assert_eq!(config.settings.logs.query, query, "{logs}");
        let problems = problems.join("\n");
        for warning in &warnings {
            assert!(problems.contains(warning), "{logs}: {problems}");
        }
        assert_eq!(
            problems.matches("deprecated").count(),
            warnings.len(),
            "{problems}"
        );
    }
}

/// One error per row, with the whole message.
const BROKEN: [(&str, &str); 70] = [
    (
        "lisen: 1",
        "c.yaml:1:1: error: unknown key; found `lisen`; allowed: crawlers, listen, anonymous, admin, identity, policy, profile, tls, h2, egress, limits, timeouts, runtime, logs, store, ledger, fleet, telemetry; did you mean `listen`?",
    ),
    (
        "- a",
        "c.yaml:1:1: error: the configuration must be a mapping (`key: value`); found `a list`",
    ),
    (
        "listen: []",
        "c.yaml:1:9: error: `listen` needs at least one address",
    ),
    (
        "listen: localhost:3128",
        "c.yaml:1:9: error: write the address, not the name: 127.0.0.1:3128; found `localhost:3128`",
    ),
    (
        "listen: 3128",
        "c.yaml:1:9: error: write an address and a port, such as 127.0.0.1:3128 or [::1]:3128; found `3128`",
    ),
    (
        "listen: 127.0.0.1:99999",
        "c.yaml:1:9: error: write an address and a port, such as 127.0.0.1:3128 or [::1]:3128; found `127.0.0.1:99999`",
    ),
    (
        "listen: [127.0.0.1:1, 127.0.0.1:1]",
        "c.yaml:1:23: error: the address occurs twice in `listen`; found `127.0.0.1:1`",
    ),
    (
        "listen: [{ add: 127.0.0.1:1 }]",
        "c.yaml:1:10: error: `addr` is missing\nc.yaml:1:12: error: unknown key; found `add`; allowed: addr, crawler, tls, proxy_protocol; did you mean `addr`?",
    ),
    (
        "listen: [{ addr: 127.0.0.1:1, crawler: a }]",
        "c.yaml:1:40: error: no crawler has this name; found `a`; define it under `crawlers`",
    ),
    (
        "listen: [{ addr: 127.0.0.1:1, tls: {} }]",
        "c.yaml:1:36: error: `cert` is missing\nc.yaml:1:36: error: `key` is missing",
    ),
    (
        "admin: { listen: 127.0.0.1:3128 }",
        "c.yaml:1:18: error: crawlers connect to this address: the admin listener needs another; found `127.0.0.1:3128`",
    ),
    (
        "identity: { listen: 127.0.0.1:3129 }",
        "c.yaml:1:21: error: another listener has this address: the key directory needs its own; found `127.0.0.1:3129`",
    ),
    (
        "identity: { listen: localhost:1 }",
        "c.yaml:1:21: error: write the address, not the name: 127.0.0.1:1; found `localhost:1`",
    ),
    (
        "admin: 127.0.0.1:1",
        "c.yaml:1:8: error: `admin` must be a mapping (`key: value`); found `127.0.0.1:1`; its keys are listen, token_file, names, public_url",
    ),
    (
        "policy: { url: \"https://p.example/\" }",
        "c.yaml:1:16: error: `policy.url` is not in this version; leave it out",
    ),
    (
        "policy: { shadow: [other.yaml] }",
        "c.yaml:1:19: error: expected text; found `a list`",
    ),
    (
        "policy: { watch: yes }",
        "c.yaml:1:18: error: expected true or false; found `yes`; allowed: true, false; did you mean `true`?",
    ),
    (
        "profile: scapy",
        "c.yaml:1:10: error: not an allowed value; found `scapy`; allowed: by-user-agent, generic, strict-http, scrapy, crawlee, browsertrix, warcprox, heritrix, nutch, stormcrawler, norconex, cloudview, httpx, newspaper, lychee; did you mean `scrapy`?",
    ),
    (
        "tls: { ca: [] }",
        "c.yaml:1:12: error: `ca` needs at least one authority: {cert: FILE, key: FILE}; found `a list`",
    ),
    (
        "tls: { ca: { cert: mine.pem } }",
        "c.yaml:1:12: error: `key` is missing",
    ),
    (
        "tls: { mints_per_client: 200 }",
        "c.yaml:1:26: error: write a number per second, such as 200/s; found `200`",
    ),
    (
        "tls: { roots: mozilla }",
        "c.yaml:1:15: error: not an allowed value; found `mozilla`; allowed: native, webpki",
    ),
    (
        "tls: { leaf_cache: 0 }",
        "c.yaml:1:20: error: expected an integer from 1 to 10000000; found `0`",
    ),
    (
        "tls: { intercpt: true }",
        "c.yaml:1:8: error: unknown key; found `intercpt`; allowed: intercept, intercept_to_reject, verify_upstream, ca, bundle, roots, extra_roots, leaf_cache, mints_per_client; did you mean `intercept`?",
    ),
    (
        "egress: { connect_ports: [ssh] }",
        "c.yaml:1:27: error: write a port from 1 to 65535, or a range such as 1024-65535; found `ssh`",
    ),
    (
        "egress: { parents: { a: { proxies: \"ftp://p:1\" } } }",
        "c.yaml:1:36: error: write the URL of a proxy: http://HOST:PORT, https://HOST:PORT or socks5://HOST:PORT; found `ftp://p:1`",
    ),
    (
        "egress: { parents: { a: { proxies: \"http://u:geheim@p:1\" } } }",
        "c.yaml:1:36: error: credentials do not belong here: use `user` and `password_file`",
    ),
    (
        "egress: { parents: { a: { proxies: \"http://p\" } } }",
        "c.yaml:1:36: error: the port of the proxy is needed, such as http://proxy.corp.example:3128; found `http://p`",
    ),
    (
        "egress: { parents: { a: { proxies: [], user: me } } }",
        "c.yaml:1:25: error: `user` and `password_file` belong together\nc.yaml:1:36: error: a parent has 1 to 100 proxies; found `a list`",
    ),
    (
        "egress: { parents: { none: { proxies: \"socks5://p\" } } }",
        "c.yaml:1:22: error: a name consists of at most 64 lower-case letters, digits and hyphens, and is not `none`; found `none`",
    ),
    (
        "egress: { bind: [{ crawler: a, address: [10.0.0.1, 10.0.0.2] }] }",
        "c.yaml:1:18: error: no crawler has this name; found `a`; define it under `crawlers`\nc.yaml:1:41: error: one address, or one of IPv4 and one of IPv6, is needed here; found `a list`",
    ),
    (
        "listen: { addr: \"127.0.0.1:1\", proxy_protocol: { trusted: [] } }",
        "c.yaml:1:59: error: `trusted` needs at least one network; found `a list`",
    ),
    (
        "listen: { addr: \"127.0.0.1:1\", proxy_protocol: { trusted: everyone } }",
        "c.yaml:1:59: error: write a network, such as 10.1.0.0/16, or an address; found `everyone`",
    ),
    (
        "egress: { ports: [0] }",
        "c.yaml:1:19: error: write a port from 1 to 65535, or a range such as 1024-65535; found `0`",
    ),
    (
        "egress: { ports: [90-80] }",
        "c.yaml:1:19: error: the range ends before it begins; found `90-80`",
    ),
    (
        "egress: { allow_private: [{ host: \"a.*\", cidr: 10.0.0.0/8 }] }",
        "c.yaml:1:35: error: write a host, or *. before a domain: *.corp.example; found `a.*`",
    ),
    (
        "egress: { allow_private: [{ host: a, cidr: 127.0.0.0/8 }] }",
        "c.yaml:1:44: error: reaches loopback (127.0.0.0/8), which cannot be allowed; found `127.0.0.0/8`",
    ),
    (
        "egress: { allow_private: [{ host: a, cidr: 169.254.169.254 }] }",
        "c.yaml:1:44: error: reaches link-local addresses, cloud metadata among them (169.254.0.0/16), which cannot be allowed; found `169.254.169.254`",
    ),
    (
        "egress: { allow_private: [{ host: a, cidr: 10.2 }] }",
        "c.yaml:1:44: error: write a network, such as 10.2.0.0/16; found `10.2`",
    ),
    (
        "egress: { resolver: { servers: [192.0.2.1] } }",
        "c.yaml:1:33: error: write the port too: 192.0.2.1:53; found `192.0.2.1`",
    ),
    (
        "egress: { resolver: { servers: [] } }",
        "c.yaml:1:21: error: `servers` needs at least one address; found `a mapping`",
    ),
    (
        "egress: { hosts: { \"a b\": 10.0.0.1 } }",
        "c.yaml:1:20: error: write a host name, such as intra.example.com; found `a b`",
    ),
    (
        "egress: { hosts: { a: b } }",
        "c.yaml:1:23: error: write an IP address, such as 10.2.0.7; found `b`",
    ),
    (
        "store: { url: \"redis://u:geheim@h\" }",
        "c.yaml:1:15: error: write a URL such as postgresql://crawlgate:${PGPASSWORD}@db.internal/crawlgate; several hosts are separated by commas",
    ),
    (
        "limits: { head: 32 }",
        "c.yaml:1:17: error: expected a size; found `32`; written like 512B, 64KiB, 10MiB, 1GiB; did you mean `32B`?",
    ),
    (
        "limits: { origin_head: 4KiB }",
        "c.yaml:1:24: error: a size from 8KiB to 16MiB is needed here; found `4KiB`",
    ),
    (
        "limits: { connections: 0 }",
        "c.yaml:1:24: error: expected an integer from 1 to 10000000; found `0`",
    ),
    (
        "logs: { format: squib }",
        "c.yaml:1:17: error: not an allowed value; found `squib`; allowed: json, squid; did you mean `squid`?",
    ),
    (
        "logs: { rotate: { size: 4KiB } }",
        "c.yaml:1:25: error: a size from 64KiB to 1024GiB, or none, is needed here; found `4KiB`",
    ),
    (
        "logs: { rotate: { keep: -1 } }",
        "c.yaml:1:25: error: expected an integer from 0 to 1000; found `-1`",
    ),
    (
        "logs: { rotate: none }",
        "c.yaml:1:17: error: `logs.rotate` must be a mapping (`key: value`); found `none`",
    ),
    (
        "logs: { rotate: { max_age: 12h } }",
        "c.yaml:1:28: error: a duration from 1d to 3650d is needed here; found `12h`",
    ),
    (
        "logs: { rotate: { sise: 1GiB } }",
        "c.yaml:1:19: error: unknown key; found `sise`; allowed: size, keep, max_age; did you mean `size`?",
    ),
    (
        "timeouts: { head: 0s }",
        "c.yaml:1:19: error: a duration from 1ms to 365d is needed here; found `0s`",
    ),
    (
        "timeouts: { tunnel_idle: 0s }",
        "c.yaml:1:26: error: a duration from 1ms to 365d is needed here; found `0s`",
    ),
    (
        "runtime: { workers: 0 }",
        "c.yaml:1:21: error: expected an integer from 1 to 1024; found `0`",
    ),
    (
        "logs: { allows: 1.5 }",
        "c.yaml:1:17: error: expected a number from 0 to 1; found `1.5`",
    ),
    (
        "logs: { on_full: drpo }",
        "c.yaml:1:18: error: not an allowed value; found `drpo`; allowed: drop, wait; did you mean `drop`?",
    ),
    (
        "ledger: { keep: sometimes }",
        "c.yaml:1:17: error: not an allowed value; found `sometimes`; allowed: auto, always, never",
    ),
    (
        "ledger: { cache: 1KiB }",
        "c.yaml:1:18: error: a size from 1MiB to 1024GiB is needed here; found `1KiB`",
    ),
    (
        "ledger: { events: { webhook: index } }",
        "c.yaml:1:30: error: a URL, or none, is needed here: https://index.example/removals; found `index`",
    ),
    (
        "ledger: { events: { keep: 1s } }",
        "c.yaml:1:27: error: a duration from 1m to 3650d is needed here; found `1s`",
    ),
    (
        "telemetry: { metrics: some }",
        "c.yaml:1:23: error: not an allowed value; found `some`; allowed: full, none",
    ),
    (
        "admin: { names: [gate, \"*.corp.example\"] }",
        "c.yaml:1:24: error: write a name, such as crawlgate or gate.corp.example:3129; found `*.corp.example`",
    ),
    (
        "admin: { names: \"http://gate/\" }",
        "c.yaml:1:17: error: write a name, such as crawlgate or gate.corp.example:3129; found `http://gate/`",
    ),
    (
        "admin: { names: \"gate:0\" }",
        "c.yaml:1:17: error: write a name, such as crawlgate or gate.corp.example:3129; found `gate:0`",
    ),
    (
        "admin: { public_url: gate.corp.example }",
        "c.yaml:1:22: error: write the URL of the admin listener, such as https://gate.corp.example:3129; found `gate.corp.example`",
    ),
    (
        "policy: { contact: \"\" }",
        "c.yaml:1:20: error: write a mail address or a URL, in ASCII and of at most 200 characters; found ``",
    ),
    (
        "telemetry: { otlp: \"http://o:4317\" }",
        "c.yaml:1:20: error: `telemetry.otlp`, if not `none`, must be a mapping (`key: value`); found `http://o:4317`",
    ),
    (
        "logs: { decisions: \"${HOME_OF_LOGS}/d\" }",
        "c.yaml:1:20: error: the environment variable HOME_OF_LOGS is not set",
    ),
];

#[test]
fn every_error_has_its_location() {
    let wrong: Vec<(&str, String, &str)> = BROKEN
        .into_iter()
        .map(|(text, expected)| (text, read(text).1.join("\n"), expected))
        .filter(|(_, found, expected)| found != expected)
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn all_errors_are_reported_in_one_run() {
    let (_, problems) =
        read("listen: x\nlimits: { head: 1, heads: 2 }\nlogs: { format: squib }\nlogs: {}\n");
    let places: Vec<&str> = problems
        .iter()
        .map(|p| p.split(": ").next().unwrap())
        .collect();
    assert_eq!(
        places,
        [
            "c.yaml:1:9",
            "c.yaml:2:17",
            "c.yaml:2:20",
            "c.yaml:3:17",
            "c.yaml:4:1"
        ]
    );
}

/// Defaults may be written differently.
#[test]
fn settings_without_effect_are_accepted() {
    for text in [
        "limits: { max_hold: 1m }",
        "egress: { connect_ports: [80, 443] }",
        "logs: { rotate: { size: 262144KiB } }",
        "store: { kind: embedded, path: /anywhere/else }",
        "tls: {}",
        "listen: { addr: 127.0.0.1:0 }",
    ] {
        assert_eq!(read(text).1, [""; 0], "{text}");
    }
}

#[test]
fn variables_come_from_the_environment() {
    let folder = TempDir::new();
    let text = "listen: 127.0.0.1:${PORT}\nruntime: { workers: \"${WORKERS}\" }\nlogs: { decisions: \"a$$${NAME}\" }\n";
    let file = folder.write("c.yaml", text);
    fn variables(name: &str) -> Option<String> {
        let table = [("PORT", "8080"), ("WORKERS", "2"), ("NAME", "${PORT}")];
        table
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, value)| (*value).to_owned())
    }
    let around = Environment {
        directory: folder.path(),
        variables: &variables,
    };
    let settings = load(&overrides(&file), &around).unwrap().settings;
    assert_eq!(settings.listen, [listener("127.0.0.1:8080", None)]);
    assert_eq!(settings.workers, WorkerCount::Count(2));
    assert_eq!(
        settings.logs.destination,
        LogDestination::Path(folder.path().join("a$${PORT}"))
    );
}

#[test]
fn the_configuration_file_is_named_or_found_or_absent() {
    let folder = TempDir::new();
    let none = loaded(folder.path(), &Overrides::default()).unwrap();
    let certs = folder.path().join("certs");
    let store = StoreConfig {
        path: Some(folder.path().join("var/crawlgate")),
        ..Settings::default().store
    };
    let usual = Settings {
        tls: home_of_tls(certs.to_str().unwrap()),
        store,
        ..Settings::default()
    };
    assert_eq!((none.file, &none.settings), (None, &usual));
    assert_eq!(none.problems.len(), 1, "{:?}", none.problems);
    assert!(
        none.problems[0]
            .to_string()
            .contains("warning: there is no policy"),
        "{}",
        none.problems[0]
    );

    folder.write("config/policy.yaml", "policy: 1");
    let policy = loaded(folder.path(), &Overrides::default()).unwrap();
    let usual = PolicyOrigin::Path(folder.path().join("config/policy.yaml"));
    assert_eq!(
        (policy.settings.policy.origin, policy.problems.len()),
        (usual.clone(), 0)
    );

    let found = folder.write("config/crawlgate.yaml", "profile: nutch");
    let configured = loaded(folder.path(), &Overrides::default()).unwrap();
    assert_eq!(configured.file.as_deref(), Some(found.as_path()));
    assert_eq!(configured.settings.policy.origin, usual);
    assert_eq!(
        configured.settings.store.path,
        Some(folder.path().join("var/crawlgate")),
        "beside config/"
    );

    let other = folder.write("other/named.yaml", "profile: scrapy");
    let variables =
        |name: &str| (name == "CRAWLGATE_CONFIG").then(|| other.to_str().unwrap().to_owned());
    let around = Environment {
        directory: folder.path(),
        variables: &variables,
    };
    let by_variable = load(&Overrides::default(), &around).unwrap();
    assert_eq!(
        by_variable.settings.profile,
        ProfileSelection::Always(Profile::Scrapy)
    );
    assert_eq!(by_variable.settings.policy.origin, PolicyOrigin::BuiltIn);
    let by_argument = load(&overrides(&found), &around).unwrap();
    assert_eq!(
        by_argument.settings.profile,
        ProfileSelection::Always(Profile::Nutch)
    );
}

#[test]
fn the_command_line_has_the_last_word() {
    let folder = TempDir::new();
    let file = folder.write(
        "c.yaml",
        "listen: [127.0.0.1:1, 127.0.0.1:2]\npolicy: { path: missing.yaml }\n",
    );
    let named = Overrides {
        config: Some(file),
        policy: Some("p.yaml".into()),
        listen: Some("127.0.0.1:5".parse().unwrap()),
        admin: Some("127.0.0.1:6".parse().unwrap()),
    };
    let settings = loaded(folder.path(), &named).unwrap().settings;
    assert_eq!(settings.listen, [listener("127.0.0.1:5", None)]);
    assert_eq!(settings.admin.listen, "127.0.0.1:6".parse().unwrap());
    assert_eq!(settings.policy.origin, PolicyOrigin::Path("p.yaml".into()));
}

#[test]
fn a_key_directory_needs_keys() {
    let mut settings = Settings {
        identity_listen: Some("127.0.0.1:1".parse().unwrap()),
        ..Settings::default()
    };
    let errors = settings.safety_errors();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].starts_with("identity.listen: no crawler has keys"));
    settings.identities.push(crawlgate::identity::CrawlerKeys {
        crawler: "a".into(),
        files: vec![],
        directory: "https://bot.example".into(),
    });
    assert_eq!(settings.safety_errors(), [""; 0]);
}

#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let folder = TempDir::new();
    let latin = folder.write("latin.yaml", b"listen: \xe9");
    let missing_policy = folder.write("c.yaml", "policy: { path: missing.yaml }");
    for (path, expected) in [
        (
            folder.path().join("none.yaml"),
            "error: there is no such file; name another with --config",
        ),
        (
            folder.path().to_owned(),
            "the configuration cannot be read: Is a directory",
        ),
        (latin, "the file is not UTF-8: byte 9 is wrong"),
        (
            missing_policy,
            "c.yaml:1:17: error: there is no such policy; found `missing.yaml`",
        ),
    ] {
        let problems = loaded(folder.path(), &overrides(&path)).unwrap_err();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(expected), "{problems:?}");
    }
}

#[test]
fn the_shipped_configuration_loads_without_a_warning() {
    let loaded = loaded(
        Path::new(""),
        &overrides(Path::new("config/crawlgate.yaml")),
    )
    .unwrap();
    assert_eq!(loaded.problems, []);
    let origin = PolicyOrigin::Path("config/policy.yaml".into());
    let mut expected = Settings::default();
    expected.policy.origin = origin;
    expected.tls = TlsConfig {
        intercept: true,
        ..home_of_tls("config/../certs")
    };
    expected.store.path = Some("config/../var/crawlgate".into());
    assert_eq!(
        loaded.settings, expected,
        "the file shows defaults, but for tls.intercept"
    );
    assert_eq!(expected.safety_errors(), [""; 0]);
}

/// Keys of unreleased features, which the shipped file summarises instead of naming each.
const SUMMED_UP: [&str; 2] = ["kind", "metrics"];

/// The shipped file names every key.
#[test]
fn the_shipped_configuration_shows_every_key() {
    let text = std::fs::read_to_string("config/crawlgate.yaml").unwrap();
    let lines = CONTRACT
        .lines()
        .map(|line| line.split(" #").next().unwrap());
    let words =
        lines.flat_map(|line| line.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')));
    let keys: Vec<&str> = words
        .filter_map(|word| word.strip_suffix(':'))
        .filter(|key| !key.is_empty())
        .collect();
    assert!(keys.len() > 70, "{keys:?}");
    for key in keys.into_iter().filter(|key| !SUMMED_UP.contains(key)) {
        assert!(
            text.contains(key),
            "config/crawlgate.yaml does not mention `{key}`"
        );
    }
}

/// A policy reads no file outside its directory, not even by a link; a mounted ConfigMap contains many links inside it.
#[test]
#[cfg(unix)]
fn links_stay_inside_the_directory_of_the_policy() {
    use std::os::unix::fs::symlink;
    let folder = TempDir::new();
    fn policy(list: &str) -> String {
        format!(
            "policy: 1\nname: a\noptions: {{ disposition: allow }}\nlists: {{ l: {{ kind: hosts, file: {list} }} }}\n\
             rules: [{{ id: r, forbid: {{ in: l }} }}]\n"
        )
    }
    folder.write("outside.txt", "secret.example\n");
    folder.write("etc/..2026/policy.yaml", policy("list.txt"));
    folder.write("etc/..2026/list.txt", "a.example\n");
    folder.write("etc/leaks.yaml", policy("leak.txt"));
    fn path(folder: &TempDir, name: &str) -> std::path::PathBuf {
        folder.path().join(name)
    }
    symlink("..2026", path(&folder, "etc/..data")).unwrap();
    symlink("..data/policy.yaml", path(&folder, "etc/policy.yaml")).unwrap();
    symlink("..data/list.txt", path(&folder, "etc/list.txt")).unwrap();
    symlink("../outside.txt", path(&folder, "etc/leak.txt")).unwrap();
    folder.write("elsewhere/list.txt", "b.example\n");
    symlink("../etc/policy.yaml", path(&folder, "elsewhere/linked.yaml")).unwrap();

    let open = |name: &str| policy::open(&PolicyOrigin::Path(path(&folder, name)));
    open("etc/policy.yaml").unwrap();
    open("elsewhere/linked.yaml").unwrap();
    let problems = open("etc/leaks.yaml").unwrap_err();
    let reported = problems.iter().map(ToString::to_string).collect::<String>();
    assert!(
        reported.contains("a symbolic link leads out of the policy's directory"),
        "{reported}"
    );
    assert!(!reported.contains("secret.example"), "{reported}");
}

/// The configuration of the benchmark, with its placeholders filled in.
#[test]
fn the_benchmark_configuration_loads() {
    let (config, problems) = read(
        "listen: 127.0.0.1:0\nadmin:\n  listen: 127.0.0.1:0\npolicy:\n  path: /b/crawlgate-policy.yaml\n\
         tls:\n  intercept: false\negress:\n  allow_loopback: true\n  ports: [1-65535]\n  connect_ports: [1-65535]\n\
         runtime:\n  workers: 1\nstore:\n  kind: embedded\n  path: /b/store\nlogs:\n  decisions: none\n",
    );
    assert_eq!(problems, [""; 0]);
    assert_eq!(config.settings.workers, WorkerCount::Count(1));
    assert_eq!(config.settings.logs.destination, LogDestination::None);
}
