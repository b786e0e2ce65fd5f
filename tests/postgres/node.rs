//! A node of a fleet: the binary with a configuration of its own.

use std::cell::Cell;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

/// `fleet.lease` of the tests.
pub(crate) const LEASE: Duration = Duration::from_secs(5);
/// The number of partitions of a fleet.
pub(crate) const PARTITIONS: u64 = 1_024;
/// The time in which partitions find new owners on a busy machine, which is slower than the 1.6 × lease of the simulation.
pub(crate) const TAKEOVER: Duration = Duration::from_secs(40);

/// A directory with a configuration; it is removed on drop.
pub(crate) struct NodeConfig(PathBuf);

impl NodeConfig {
    /// Writes the configuration of a node.
    pub(crate) fn new(name: &str, url: &str) -> Self {
        let store =
            format!("store: {{ kind: postgres, path: state, url: \"{url}\", timeout: 1s }}");
        let fleet = format!("fleet: {{ node: {name}, listen: 127.0.0.1:0, lease: 5s }}");
        Self::with_sections(&store, &fleet)
    }

    /// Writes a configuration with these sections.
    pub(crate) fn with_sections(store: &str, fleet: &str) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "crawlgate-node-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let directory = Self(std::env::temp_dir().join(name));
        std::fs::create_dir_all(directory.path()).unwrap();
        directory.write(store, fleet);
        directory
    }

    pub(crate) fn write(&self, store: &str, fleet: &str) {
        let text = format!(
            "listen: 127.0.0.1:0\nadmin: {{ listen: 127.0.0.1:0 }}\ntls: {{ intercept: false }}\n{store}\n{fleet}\n"
        );
        std::fs::write(self.path().join("crawlgate.yaml"), text).unwrap();
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Runs a command to its end. Returns the exit code, and both outputs.
    pub(crate) fn run(&self, arguments: &str) -> (i32, String) {
        let output = self
            .command(arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.code().unwrap(),
            String::from_utf8(text).unwrap(),
        )
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crawlgate"));
        command
            .args(arguments.split(' '))
            .args(["--config", "crawlgate.yaml"])
            .current_dir(self.path())
            .env_remove("CRAWLGATE_CONFIG");
        command
    }
}

impl Drop for NodeConfig {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running node; it is killed on drop.
pub(crate) struct NodeProcess {
    process: Child,
    /// The address for crawlers.
    pub(crate) proxy: String,
    pub(crate) admin: String,
}

impl NodeProcess {
    /// Starts the node, and waits until it listens.
    pub(crate) fn start(directory: &NodeConfig) -> Self {
        Self::start_with(directory, &[])
    }

    /// Starts the node with these variables in its environment.
    pub(crate) fn start_with(directory: &NodeConfig, variables: &[(&str, &str)]) -> Self {
        let mut process = directory
            .command("run")
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let mut seen = String::new();
        let mut proxy = String::new();
        let admin = loop {
            let line = lines.next().unwrap_or_else(|| panic!("{seen}")).unwrap();
            if let Some(address) = line.strip_prefix("proxy listening on ") {
                proxy = address.to_owned();
            }
            if let Some(address) = line.strip_prefix("admin listening on ") {
                break address.to_owned();
            }
            if let Some(address) = line.strip_prefix("proxy listening on ") {
                address.clone_into(&mut proxy);
            }
            seen.push_str(&line);
            seen.push('\n');
        };
        // Read on, so that the node can write.
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            process,
            proxy,
            admin,
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([&format!("-{name}"), &self.process.id().to_string()])
            .status()
            .unwrap();
        assert!(status.success());
    }

    pub(crate) fn wait(&mut self) {
        self.process.wait().unwrap();
    }

    pub(crate) fn get(&self, path: &str) -> Option<(u16, String)> {
        self.request("GET", path, "")
    }

    pub(crate) fn request(&self, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(&self.admin).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        let host = &self.admin;
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some((head.get(9..12)?.parse().ok()?, body.to_owned()))
    }

    pub(crate) fn fleet(&self) -> Json {
        let (status, body) = self.get("/api/v1/fleet").unwrap();
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// The number of partitions that this node owns.
    pub(crate) fn own(&self) -> u64 {
        self.fleet()["partitions"]["own"].as_u64().unwrap()
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until a condition holds. Returns the time that it took.
#[track_caller]
pub(crate) fn wait_for(what: &str, limit: Duration, holds: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < limit, "{what} within {limit:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    began.elapsed()
}

/// Waits until two nodes own everything together, each at least a quarter, and the shares have not changed for one and a half
/// leases. The state of a host moves with its partition, so hosts are chosen only then.
#[track_caller]
pub(crate) fn wait_until_shared(a: &NodeProcess, b: &NodeProcess) {
    let quarter = PARTITIONS / 4;
    let shares = Cell::new(((0, 0), Instant::now()));
    wait_for("two share", TAKEOVER * 2, || {
        let now = (a.own(), b.own());
        if now != shares.get().0 {
            shares.set((now, Instant::now()));
        }
        now.0 >= quarter
            && now.1 >= quarter
            && now.0 + now.1 == PARTITIONS
            && shares.get().1.elapsed() > LEASE * 3 / 2
    });
}
