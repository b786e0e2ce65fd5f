//! `crawlgate demo`: a tour without a network.
//!
//! A crawler visits a small shop of several hosts through the proxy, all on loopback. Each refusal is printed with its
//! reason.

mod crawler;
mod site;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::config::settings::{ListenerConfig, Settings};
use crate::metrics::log::LogDestination;
use crate::policy::source::MemoryFileSystem;
use crate::policy::{Policy, compile};
use crate::server::Server;

use super::Exit;
use super::console::report_cannot_run;
use super::inputs;
use crawler::CrawledPage;

const POLICY: &str = include_str!("demo/policy.yaml");

/// The reasons that the site provokes; the demo fails if one does not occur.
const EXPECTED_REASONS: [&str; 18] = [
    "rule",
    "default",
    "ambiguous_url",
    "body_too_large",
    "robots_txt",
    "robots_unreachable",
    "rate_limited",
    "host_backoff",
    "request_too_large",
    "ip_prohibited",
    "port_denied",
    "scheme_denied",
    "bad_request",
    "upstream_dns",
    "upstream_connect",
    "upstream_tls",
    "upstream_timeout",
    "upstream_protocol",
];

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

pub(super) fn run() -> Result<Exit, Exit> {
    let files = MemoryFileSystem::new().with_file("demo.yaml", POLICY);
    let compiled =
        compile::load(&files, "demo.yaml").map_err(|problems| inputs::report_errors(&problems))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| report_cannot_run(&error))?;
    let pages = runtime
        .block_on(run_tour(compiled.policy))
        .map_err(|error| report_cannot_run(&error))?;
    Ok(print_report(&pages))
}

async fn run_tour(policy: Policy) -> Result<Vec<CrawledPage>, String> {
    let site = site::start()
        .await
        .map_err(|error| format!("cannot start the demo's site: {error}"))?;
    let server = Server::start(&demo_settings(&site), policy).map_err(|error| error.to_string())?;
    let proxy = server
        .proxy
        .first()
        .copied()
        .ok_or("the proxy does not listen")?;
    print(&format!(
        "A crawler follows every link of a shop of {} hosts on loopback, through crawlgate at http://{proxy}.\n\n",
        site::HOSTS.len()
    ));
    let pages = crawler::crawl(proxy, &site.start_url(), |page| print(&format_page(page))).await;
    server.drain(std::future::pending::<()>()).await;
    Ok(pages)
}

fn demo_settings(site: &site::DemoSite) -> Settings {
    let mut settings = Settings {
        listen: vec![ListenerConfig::for_all(SocketAddr::new(LOOPBACK, 0))],
        ..Settings::default()
    };
    settings.admin.listen = SocketAddr::new(LOOPBACK, 0);
    settings.logs.destination = LogDestination::None;
    settings.store.path = None;
    // The demo crawls http only, and leaves no certificate authority behind.
    settings.tls.intercept = false;
    settings.egress.allow_loopback = true;
    settings.egress.ports = [site.port, site.closed_port, 80]
        .into_iter()
        .map(|port| port..=port)
        .collect();
    settings.dns.hosts = site::HOSTS
        .iter()
        .map(|host| ((*host).to_owned(), vec![LOOPBACK]))
        .collect();
    // The address of the metadata service of cloud machines, which hands out credentials.
    settings.dns.hosts.insert(
        "metadata.shop.test".into(),
        vec![Ipv4Addr::new(169, 254, 169, 254).into()],
    );
    settings.upstream.response_head_timeout = Duration::from_millis(300);
    settings.dns.timeout = Duration::from_secs(2);
    settings.drain.timeout = Duration::from_secs(1);
    settings
}

fn format_page(page: &CrawledPage) -> String {
    let mut line = format!("{:>4}  ", page.status);
    let _ = match (&page.reason, &page.rule) {
        (Some(reason), Some(rule)) => write!(line, "{:<34}", format!("{reason} ({rule})")),
        (Some(reason), None) => write!(line, "{reason:<34}"),
        (None, _) => write!(line, "{:<34}", "-"),
    };
    line.extend(page.url.chars().take(100));
    line.push_str(if page.url.len() > 100 { "…\n" } else { "\n" });
    line
}

/// Prints the number of refusals by reason. Exits with 1 if one of the [`EXPECTED_REASONS`] did not occur.
fn print_report(pages: &[CrawledPage]) -> Exit {
    let mut by_reason: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in pages.iter().filter_map(|page| page.reason.as_deref()) {
        *by_reason.entry(reason).or_default() += 1;
    }
    let refused: usize = by_reason.values().sum();
    let mut text = format!(
        "\n{} URLs requested, {} forwarded, {refused} refused:\n",
        pages.len(),
        pages.len() - refused
    );
    for (reason, count) in &by_reason {
        let _ = writeln!(text, "{count:>6}  {reason}");
    }
    let seen: BTreeSet<&str> = by_reason.into_keys().collect();
    let missing: Vec<&str> = EXPECTED_REASONS
        .into_iter()
        .filter(|reason| !seen.contains(reason))
        .collect();
    if missing.is_empty() {
        text.push_str(
            "\nTo use your own crawler, start `crawlgate run` and set http_proxy=http://127.0.0.1:3128\n",
        );
    } else {
        let _ = writeln!(
            text,
            "\nexpected reasons that did not occur: {}",
            missing.join(", ")
        );
    }
    print(&text);
    if missing.is_empty() {
        Exit::Success
    } else {
        Exit::Negative
    }
}

fn print(text: &str) {
    // A closed pipe (`demo | head`) is not an error.
    let _ = std::io::stdout().write_all(text.as_bytes());
}
