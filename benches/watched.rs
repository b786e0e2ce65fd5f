//! What it costs a request to be counted, logged and looked at: processor time of the proxy, by what is switched on.
//!
//! `cargo bench --bench watched [-- rounds=9 seconds=3 workers=1 binary=PATH only=bare,page]`. Fresh processes of the real
//! binary take turns under the load of `request`, pages of 1 KiB; processor time is the kernel's count for the process, all
//! threads. Each figure is compared with `bare` of the same round, and the medians are shown. The clients, the origin and the
//! page are in this process, so that their work is in no figure.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a bench may panic and reads the time"
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
/// What the page asks with its rules open, and each how many seconds.
const ASKED: [(&str, u32); 3] = [
    ("/api/v1/status", 2),
    ("/api/v1/policy", 5),
    ("/api/v1/shadow", 5),
];
const WARM_UP: Duration = Duration::from_millis(700);

/// Name, `telemetry.metrics`, whether all requests are logged to a file, whether somebody looks.
const VARIANTS: [(&str, &str, Logged, Looked); 5] = [
    ("bare", "none", Logged::Nothing, Looked::ByNobody),
    ("metrics", "full", Logged::Nothing, Looked::ByNobody),
    ("log", "none", Logged::Everything, Looked::ByNobody),
    ("both", "full", Logged::Everything, Looked::ByNobody),
    ("page", "full", Logged::Everything, Looked::ByOne),
];

#[derive(Clone, Copy, PartialEq)]
enum Logged {
    Nothing,
    Everything,
}

#[derive(Clone, Copy, PartialEq)]
enum Looked {
    ByNobody,
    /// The decision stream is followed; status, policy and shadows are polled: the page with its rules open.
    ByOne,
}

fn main() {
    let given: BTreeMap<String, String> = std::env::args()
        .filter_map(|argument| {
            argument
                .split_once('=')
                .map(|(key, value)| (key.into(), value.into()))
        })
        .collect();
    let number = |key: &str, default: f64| {
        given
            .get(key)
            .map_or(default, |v| v.parse().expect("a number"))
    };
    let (rounds, seconds) = (number("rounds", 9.0) as usize, number("seconds", 3.0));
    let workers = number("workers", 1.0) as usize;
    let binary = given
        .get("binary")
        .map_or(env!("CARGO_BIN_EXE_crawlgate"), |path| path);
    let only = given.get("only");
    let chosen = |name: &str| only.is_none_or(|only| only.split(',').any(|one| one == name));
    let variants: Vec<_> = VARIANTS
        .into_iter()
        .filter(|(name, ..)| chosen(name))
        .collect();

    let bench = Bench {
        binary: binary.into(),
        origin: load::origin(),
        workers,
        looked: Cell::default(),
    };
    println!(
        "{rounds} rounds of {seconds} s, {CLIENTS} clients, {workers} worker(s), pages of {SIZE} B\n"
    );
    let mut costs = vec![Vec::with_capacity(rounds); variants.len()];
    let mut output = String::new();
    for round in 0..rounds {
        for turn in 0..variants.len() {
            // Whoever comes first in a round does so in the next round last.
            let at = (turn + round) % variants.len();
            let (cost, lines) = bench.cost(variants[at], Duration::from_secs_f64(seconds));
            costs[at].push(cost);
            output = lines.unwrap_or(output);
        }
    }
    println!(
        "{:<10}{:>14}{:>16}{:>22}",
        "", "µs a request", "against bare", "middle half"
    );
    for ((name, ..), own) in variants.iter().zip(&costs) {
        let ratios = own
            .iter()
            .zip(&costs[0])
            .map(|(own, bare)| own / bare)
            .collect();
        let [low, middle, high] = quartiles(ratios);
        let (percent, range) = (
            100.0 * (middle - 1.0),
            (100.0 * (low - 1.0), 100.0 * (high - 1.0)),
        );
        let range = format!("{:+.1} % to {:+.1} %", range.0, range.1);
        println!(
            "{name:<10}{:>14.2}{percent:>+14.1} %{range:>22}",
            quartiles(own.clone())[1]
        );
    }
    println!("{output}");
}

fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

struct Bench {
    binary: PathBuf,
    origin: SocketAddr,
    workers: usize,
    /// How long the page has been looked at in the rounds so far. Rounds are shorter than the page's intervals, so its
    /// clock goes on from one to the next.
    looked: Cell<Duration>,
}

impl Bench {
    /// Microseconds of processor time a request, and what the page saw.
    fn cost(
        &self,
        (name, metrics, logged, looked): (&str, &str, Logged, Looked),
        time: Duration,
    ) -> (f64, Option<String>) {
        let directory =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("watched-{}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).expect("a directory");
        let log = if logged == Logged::Everything {
            "decisions.jsonl"
        } else {
            "none"
        };
        let config = format!(
            "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0 }}\nlogs: {{ decisions: {log} }}\n\
             egress: {{ allow_loopback: true, ports: [1-65535] }}\nruntime: {{ workers: {} }}\n\
             telemetry: {{ metrics: {metrics} }}\nstore: {{ path: state }}\n",
            self.workers
        );
        fs::write(directory.join("policy.yaml"), POLICY).expect("a file");
        fs::write(directory.join("crawlgate.yaml"), config).expect("a file");
        let proxy = Proxy::start(&self.binary, &directory);
        let page = (looked == Looked::ByOne).then(|| Page::open(proxy.admin, self.looked.get()));
        let clients = Clients::start(self.origin, Some(proxy.address), SIZE);
        thread::sleep(WARM_UP);
        let (used, done, seen) = (
            proxy.processor_time(),
            clients.done(),
            page.as_ref().map(Page::lines),
        );
        thread::sleep(time);
        let (used, done) = (proxy.processor_time() - used, clients.done() - done);
        self.looked
            .set(self.looked.get() + page.as_ref().map_or(Duration::ZERO, |_| time));
        let output = page
            .as_ref()
            .zip(seen)
            .map(|(page, before)| page.summary(page.lines() - before, done));
        clients.stop();
        let lines = fs::read(directory.join("decisions.jsonl")).map_or(0, |text| text.len());
        assert_eq!(
            lines > 0,
            logged == Logged::Everything,
            "{name}: the log is as it is meant"
        );
        drop(proxy);
        if let Some(page) = page {
            page.close();
        }
        let _ = fs::remove_dir_all(directory);
        (used.as_secs_f64() * 1e6 / done as f64, output)
    }
}

/// A proxy process; it ends with the value.
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
        let mut listening = |what: &str| {
            let line = lines
                .by_ref()
                .find(|line| line.contains(what))
                .expect("it listens");
            let address = line
                .split(what)
                .nth(1)
                .and_then(|rest| rest.split([' ', '/', ',']).next());
            address
                .and_then(|text| text.parse().ok())
                .expect("an address")
        };
        let (address, admin) = (
            listening("proxy listening on "),
            listening("admin listening on "),
        );
        thread::spawn(move || lines.for_each(drop));
        Self {
            child,
            address,
            admin,
        }
    }

    /// Of all its threads, also of those that ended.
    fn processor_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it runs");
        let behind_name = stat.rsplit_once(')').expect("a name").1;
        let ticks: Vec<u64> = behind_name
            .split(' ')
            .skip(12)
            .take(2)
            .map(|n| n.parse().expect("ticks"))
            .collect();
        // USER_HZ is 100 on every Linux that Rust runs on.
        Duration::from_millis(ticks.iter().sum::<u64>() * 10)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What an open admin page asks.
struct Page {
    lines: Arc<AtomicU64>,
    lost: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    threads: [JoinHandle<()>; 2],
}

impl Page {
    /// One that has been open for so long when the measured time begins.
    fn open(admin: SocketAddr, looked: Duration) -> Self {
        let (lines, lost, over) = (
            Arc::default(),
            Arc::default(),
            Arc::new(AtomicBool::new(false)),
        );
        let follow = {
            let (lines, lost) = (Arc::clone(&lines), Arc::clone(&lost));
            thread::spawn(move || follow(admin, &lines, &lost))
        };
        let poll = {
            let over = Arc::clone(&over);
            thread::spawn(move || poll(admin, Instant::now() + WARM_UP, looked, &over))
        };
        Self {
            lines,
            lost,
            over,
            threads: [follow, poll],
        }
    }

    fn lines(&self) -> u64 {
        self.lines.load(Ordering::Relaxed)
    }

    fn summary(&self, lines: u64, requests: u64) -> String {
        let lost = self.lost.load(Ordering::Relaxed);
        format!(
            "\nThe page was sent {lines} lines for {requests} requests in the last round; it was told of {lost} more."
        )
    }

    /// To be called when the proxy has ended, which ends the stream.
    fn close(self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("the page ends well");
        }
    }
}

/// `None` if the proxy has ended meanwhile.
fn ask(admin: SocketAddr, path: &str, more: &str) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(admin).ok()?;
    let head = format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\n{more}\r\n");
    stream.write_all(head.as_bytes()).ok()?;
    Some(stream)
}

fn follow(admin: SocketAddr, lines: &AtomicU64, lost: &AtomicU64) {
    let stream = ask(admin, "/api/v1/decisions?recent=0", "").expect("it listens");
    let mut reader = BufReader::with_capacity(64 << 10, stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("an answer");
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

/// Asks at whole seconds of the page's own time, which is `looked` at `begin`.
fn poll(admin: SocketAddr, begin: Instant, looked: Duration, over: &AtomicBool) {
    let mut second = looked.as_secs_f64().ceil() as u32;
    loop {
        let due = begin + Duration::from_secs(second.into()).saturating_sub(looked);
        while Instant::now() < due {
            if over.load(Ordering::Relaxed) {
                return;
            }
            thread::sleep(
                Duration::from_millis(20).min(due.saturating_duration_since(Instant::now())),
            );
        }
        for (path, _) in ASKED
            .into_iter()
            .filter(|(_, each)| second.is_multiple_of(*each))
        {
            let mut answer = String::new();
            let Some(mut stream) = ask(admin, path, "Connection: close\r\n") else {
                return;
            };
            if stream.read_to_string(&mut answer).is_ok() && !answer.is_empty() {
                let status = answer.lines().next().unwrap_or_default();
                assert!(status.contains(" 200 "), "{path}: {status}");
            }
        }
        second += 1;
    }
}
