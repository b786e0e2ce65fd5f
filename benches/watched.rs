//! Measures the processor time of the proxy per request with metrics, the decision log and the
//! admin page switched on and off.
//!
//! `cargo bench --bench watched [-- rounds=9 seconds=3 workers=1 binary=PATH only=bare,page]`. The
//! variants take turns; each turn is a new process of the real binary under the load of `request`
//! with pages of 1 KiB. Processor time is that of all threads of the process, as counted by the
//! kernel. Each result is compared with `bare` in the same round; the output has the medians. The
//! clients, the origin and the page run in this process, so no result includes their work.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a benchmark may panic and reads the clock"
)]

#[path = "request/load.rs"]
mod load;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use load::{CLIENTS, Clients, POLICY};

const SIZE: usize = 1 << 10;
/// The paths that the admin page polls while its rules are open, with the intervals in seconds.
const POLLED: [(&str, u32); 3] = [
    ("/api/v1/status", 2),
    ("/api/v1/policy", 5),
    ("/api/v1/shadow", 5),
];
const WARM_UP: Duration = Duration::from_millis(700);

/// A variant's name, its `telemetry.metrics`, its decision log, and its admin page.
type Variant = (&'static str, &'static str, RequestLog, AdminPage);

const VARIANTS: [Variant; 5] = [
    ("bare", "none", RequestLog::Off, AdminPage::Closed),
    ("metrics", "full", RequestLog::Off, AdminPage::Closed),
    ("log", "none", RequestLog::File, AdminPage::Closed),
    ("both", "full", RequestLog::File, AdminPage::Closed),
    ("page", "full", RequestLog::File, AdminPage::Open),
];

#[derive(Clone, Copy, PartialEq)]
enum RequestLog {
    Off,
    File,
}

#[derive(Clone, Copy, PartialEq)]
enum AdminPage {
    Closed,
    /// The page with its rules open: it reads the decision stream and polls [`POLLED`].
    Open,
}

fn main() {
    let arguments: BTreeMap<String, String> = std::env::args()
        .filter_map(|argument| {
            argument
                .split_once('=')
                .map(|(key, value)| (key.into(), value.into()))
        })
        .collect();
    let rounds = number(&arguments, "rounds", 9.0) as usize;
    let seconds = number(&arguments, "seconds", 3.0);
    let workers = number(&arguments, "workers", 1.0) as usize;
    let binary = arguments
        .get("binary")
        .map_or(env!("CARGO_BIN_EXE_crawlgate"), |path| path);
    let only = arguments.get("only");
    let variants: Vec<Variant> = VARIANTS
        .into_iter()
        .filter(|(name, ..)| only.is_none_or(|only| only.split(',').any(|other| other == *name)))
        .collect();

    let bench = WatchedBench {
        binary: binary.into(),
        origin: load::origin(),
        workers,
        page_age: Cell::default(),
    };
    println!(
        "{rounds} rounds of {seconds} s, {CLIENTS} clients, {workers} worker(s), pages of {SIZE} B\n"
    );
    let mut costs = vec![Vec::with_capacity(rounds); variants.len()];
    let mut page_summary = String::new();
    for round in 0..rounds {
        for turn in 0..variants.len() {
            // The first variant of a round is the last of the next round.
            let at = (turn + round) % variants.len();
            let (cost, summary) = bench.measure(variants[at], Duration::from_secs_f64(seconds));
            costs[at].push(cost);
            page_summary = summary.unwrap_or(page_summary);
        }
    }
    println!(
        "{:<10}{:>14}{:>16}{:>22}",
        "", "µs per request", "relative to bare", "middle half"
    );
    for ((name, ..), own) in variants.iter().zip(&costs) {
        let ratios = own
            .iter()
            .zip(&costs[0])
            .map(|(own, bare)| own / bare)
            .collect();
        let [low, middle, high] = quartiles(ratios);
        let percent = 100.0 * (middle - 1.0);
        let range = format!(
            "{:+.1} % to {:+.1} %",
            100.0 * (low - 1.0),
            100.0 * (high - 1.0)
        );
        println!(
            "{name:<10}{:>14.2}{percent:>+14.1} %{range:>22}",
            quartiles(own.clone())[1]
        );
    }
    println!("{page_summary}");
}

fn number(arguments: &BTreeMap<String, String>, key: &str, default: f64) -> f64 {
    arguments
        .get(key)
        .map_or(default, |value| value.parse().expect("a number"))
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

struct WatchedBench {
    binary: PathBuf,
    origin: SocketAddr,
    workers: usize,
    /// The time for which the page was open in the rounds so far. A round may be shorter than the
    /// intervals of the page, so its clock continues from round to round.
    page_age: Cell<Duration>,
}

impl WatchedBench {
    /// Measures the microseconds of processor time per request. Returns them with the summary of
    /// the page, if it was open.
    fn measure(
        &self,
        (name, metrics, log, admin_page): Variant,
        time: Duration,
    ) -> (f64, Option<String>) {
        let directory =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("watched-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("a directory");
        let decisions = match log {
            RequestLog::File => "decisions.jsonl",
            RequestLog::Off => "none",
        };
        let config = format!(
            "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0 }}\nlogs: {{ decisions: {decisions} }}\n\
             egress: {{ allow_loopback: true, ports: [1-65535] }}\nruntime: {{ workers: {} }}\n\
             telemetry: {{ metrics: {metrics} }}\nstore: {{ path: state }}\ntls: {{ intercept: false }}\n",
            self.workers
        );
        fs::write(directory.join("policy.yaml"), POLICY).expect("a file");
        fs::write(directory.join("crawlgate.yaml"), config).expect("a file");
        let proxy = Proxy::start(&self.binary, &directory);
        let page = (admin_page == AdminPage::Open)
            .then(|| PageClient::open(proxy.admin, self.page_age.get()));
        let clients = Clients::start(self.origin, Some(proxy.address), SIZE);
        thread::sleep(WARM_UP);
        let time_before = proxy.processor_time();
        let requests_before = clients.completed();
        let lines_before = page.as_ref().map(PageClient::lines);
        thread::sleep(time);
        let processor_time = proxy.processor_time() - time_before;
        let requests = clients.completed() - requests_before;
        if page.is_some() {
            self.page_age.set(self.page_age.get() + time);
        }
        let summary = page
            .as_ref()
            .zip(lines_before)
            .map(|(page, before)| page.summary(page.lines() - before, requests));
        clients.stop();
        let log_bytes = fs::read(directory.join("decisions.jsonl")).map_or(0, |text| text.len());
        assert_eq!(
            log_bytes > 0,
            log == RequestLog::File,
            "{name}: there is a decision log if it is configured"
        );
        drop(proxy);
        if let Some(page) = page {
            page.close();
        }
        let _ = fs::remove_dir_all(directory);
        (
            processor_time.as_secs_f64() * 1e6 / requests as f64,
            summary,
        )
    }
}

/// A proxy process, which is killed when the value is dropped.
struct Proxy {
    child: Child,
    address: SocketAddr,
    admin: SocketAddr,
}

impl Proxy {
    fn start(binary: &Path, directory: &Path) -> Self {
        let mut child = Command::new(binary)
            .args(["run", "--config", "crawlgate.yaml"])
            .current_dir(directory)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut lines = BufReader::new(child.stderr.take().expect("a pipe"))
            .lines()
            .map_while(Result::ok);
        let address = listen_address(&mut lines, "proxy listening on ");
        let admin = listen_address(&mut lines, "admin listening on ");
        thread::spawn(move || lines.for_each(drop));
        Self {
            child,
            address,
            admin,
        }
    }

    /// Returns the processor time of all threads, including those that have ended.
    fn processor_time(&self) -> Duration {
        let stat =
            fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("the proxy runs");
        let after_name = stat.rsplit_once(')').expect("a name").1;
        let ticks: Vec<u64> = after_name
            .split(' ')
            .skip(12)
            .take(2)
            .map(|n| n.parse().expect("ticks"))
            .collect();
        // USER_HZ is 100 on every Linux that Rust runs on.
        Duration::from_millis(ticks.iter().sum::<u64>() * 10)
    }
}

/// Returns the address after `label` in the first line that contains it.
fn listen_address(lines: &mut impl Iterator<Item = String>, label: &str) -> SocketAddr {
    let line = lines
        .find(|line| line.contains(label))
        .expect("the proxy listens");
    let address = line
        .split(label)
        .nth(1)
        .and_then(|rest| rest.split([' ', '/', ',']).next());
    address
        .and_then(|text| text.parse().ok())
        .expect("an address")
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that makes the requests of an open admin page.
struct PageClient {
    lines: Arc<AtomicU64>,
    lost: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    threads: [JoinHandle<()>; 2],
}

impl PageClient {
    /// Opens a page that has been open for `age` when the measurement starts.
    fn open(admin: SocketAddr, age: Duration) -> Self {
        let lines = Arc::new(AtomicU64::new(0));
        let lost = Arc::new(AtomicU64::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let follower = {
            let lines = Arc::clone(&lines);
            let lost = Arc::clone(&lost);
            thread::spawn(move || follow(admin, &lines, &lost))
        };
        let poller = {
            let stop = Arc::clone(&stop);
            thread::spawn(move || poll(admin, Instant::now() + WARM_UP, age, &stop))
        };
        Self {
            lines,
            lost,
            stop,
            threads: [follower, poller],
        }
    }

    fn lines(&self) -> u64 {
        self.lines.load(Ordering::Relaxed)
    }

    fn summary(&self, lines: u64, requests: u64) -> String {
        let lost = self.lost.load(Ordering::Relaxed);
        format!(
            "\nIn the last round, the page received {lines} lines for {requests} requests; {lost} more were reported as lost."
        )
    }

    /// Stops the threads of the page. The end of the proxy ends the decision stream, so this must
    /// be called after it.
    fn close(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("the page does not panic");
        }
    }
}

/// Sends a GET request. Returns `None` if the proxy has ended.
fn send_get(admin: SocketAddr, path: &str, headers: &str) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(admin).ok()?;
    let head = format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    Some(stream)
}

fn follow(admin: SocketAddr, lines: &AtomicU64, lost: &AtomicU64) {
    let stream = send_get(admin, "/api/v1/decisions?recent=0", "").expect("the proxy listens");
    let mut reader = BufReader::with_capacity(64 << 10, stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("a response");
    assert!(line.contains(" 200 "), "GET /api/v1/decisions: {line}");
    loop {
        line.clear();
        if !reader.read_line(&mut line).is_ok_and(|read| read > 0) {
            return;
        }
        if line.starts_with("{\"ts\"") {
            lines.fetch_add(1, Ordering::Relaxed);
        } else if let Some(count) = line.strip_prefix("{\"lost\":") {
            let count: String = count.chars().filter(char::is_ascii_digit).collect();
            lost.fetch_add(count.parse().unwrap_or(0), Ordering::Relaxed);
        }
    }
}

/// Polls at whole seconds of the page's clock, which is at `age` when the time is `start`.
fn poll(admin: SocketAddr, start: Instant, age: Duration, stop: &AtomicBool) {
    let mut second = age.as_secs_f64().ceil() as u32;
    loop {
        let due = start + Duration::from_secs(second.into()).saturating_sub(age);
        while Instant::now() < due {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(
                Duration::from_millis(20).min(due.saturating_duration_since(Instant::now())),
            );
        }
        for (path, _) in POLLED
            .into_iter()
            .filter(|(_, interval)| second.is_multiple_of(*interval))
        {
            let mut response = String::new();
            let Some(mut stream) = send_get(admin, path, "Connection: close\r\n") else {
                return;
            };
            if stream.read_to_string(&mut response).is_ok() && !response.is_empty() {
                let status = response.lines().next().unwrap_or_default();
                assert!(status.contains(" 200 "), "{path}: {status}");
            }
        }
        second += 1;
    }
}
