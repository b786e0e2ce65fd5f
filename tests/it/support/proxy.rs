//! A running crawlgate: the real binary, on ports that the kernel chooses, with a configuration and a policy of the test.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::{RawClient, Response};
use super::wait::wait_until;

/// A configuration in which `a.test` and `b.test` are on loopback and decisions are logged to `log.json`.
pub(crate) const CONFIG: &str = "listen: 127.0.0.1:0
admin: { listen: 127.0.0.1:0 }
policy: { path: policy.yaml, watch: false }
logs: { decisions: log.json }
egress:
  ports: [1-65535]
  allow_loopback: true
  hosts: { a.test: 127.0.0.1, b.test: 127.0.0.1 }
";

/// The time within which the process must listen.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// A crawlgate process; dropping it ends the process.
pub(crate) struct TestProxy {
    child: Child,
    /// The address of the first proxy listener.
    pub(crate) proxy: SocketAddr,
    /// The address of the admin listener.
    pub(crate) admin: SocketAddr,
    stderr: Arc<Mutex<String>>,
    directory: PathBuf,
}

impl TestProxy {
    /// Starts `crawlgate run` with this configuration, and this text as `policy.yaml` in the same directory.
    ///
    /// # Panics
    /// If it does not listen in time; the message contains its standard error.
    pub(crate) fn start(config: &str, policy: &str) -> Self {
        Self::start_with(config, policy, |_| {})
    }

    /// As [`TestProxy::start`], with changes to the command before it runs.
    pub(crate) fn start_with(
        config: &str,
        policy: &str,
        change: impl FnOnce(&mut Command),
    ) -> Self {
        Self::start_command(
            Command::new(env!("CARGO_BIN_EXE_crawlgate")),
            config,
            policy,
            change,
        )
    }

    /// As [`TestProxy::start`], after `ulimit` with these options.
    pub(crate) fn start_with_ulimit(options: &str, config: &str, policy: &str) -> Self {
        let mut command = Command::new("sh");
        let limited = format!("ulimit {options} && exec \"$0\" \"$@\"");
        command
            .args(["-c", &limited])
            .arg(env!("CARGO_BIN_EXE_crawlgate"));
        Self::start_command(command, config, policy, |_| {})
    }

    fn start_command(
        mut command: Command,
        config: &str,
        policy: &str,
        change: impl FnOnce(&mut Command),
    ) -> Self {
        let directory = create_directory();
        write(&directory, "policy.yaml", policy);
        let file = write(&directory, "crawlgate.yaml", &with_tls(config));
        command
            .args(["run", "--config"])
            .arg(file)
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        change(&mut command);
        let mut child = command.spawn().expect("the binary starts");
        let stderr = Arc::new(Mutex::new(String::new()));
        let (proxy, admin) = wait_for_listeners(child.stderr.take().expect("a pipe"), &stderr);
        Self {
            child,
            proxy,
            admin,
            stderr,
            directory,
        }
    }

    /// Writes a file in the directory of the configuration; `policy.yaml` is the policy.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        write(&self.directory, name, text)
    }

    /// The path of a file in the directory of the configuration.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        self.directory.join(path)
    }

    /// The decision log so far, if it is written to `log.json`.
    pub(crate) fn decision_log(&self) -> String {
        std::fs::read_to_string(self.file("log.json")).unwrap_or_default()
    }

    /// Sends the process a signal: `HUP`, `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.child.id());
        assert!(
            Command::new("sh")
                .args(["-c", &kill])
                .status()
                .expect("a shell")
                .success(),
            "{kill}"
        );
    }

    /// Waits for the process to end; returns its exit code.
    pub(crate) fn wait_for_exit(&mut self) -> Option<i32> {
        self.child.wait().expect("a process").code()
    }

    /// Waits until the process has ended, for at most this time; its exit code.
    ///
    /// # Panics
    /// If it still runs.
    #[track_caller]
    pub(crate) fn exit_within(&mut self, limit: Duration) -> Option<i32> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait().expect("a process") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it still runs after {limit:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The standard error of the process so far.
    pub(crate) fn stderr(&self) -> String {
        self.stderr.lock().expect("not poisoned").clone()
    }

    /// The buffer into which standard error is read. While it is locked, standard error is not read.
    pub(crate) fn stderr_buffer(&self) -> Arc<Mutex<String>> {
        Arc::clone(&self.stderr)
    }

    /// Returns `true` if the process still runs.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a request such as `POST /api/v1/reload` without a body to the admin listener.
    #[track_caller]
    pub(crate) fn admin(&self, line: &str) -> Response {
        let request = format!(
            "{line} HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\n\r\n",
            self.admin
        );
        RawClient::connect(self.admin).request(request)
    }

    /// The value of a series of `/metrics`.
    #[track_caller]
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let metrics = self.admin("GET /metrics").body;
        let mut lines = metrics.lines();
        let value = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value
            .unwrap_or_else(|| panic!("no {series} in {metrics}"))
            .parse()
            .unwrap()
    }

    /// The value of a series of `/metrics` that is an integer.
    #[track_caller]
    pub(crate) fn counter(&self, series: &str) -> u64 {
        let value = self.metric(series);
        assert_eq!(value.fract(), 0.0, "{series}: {value}");
        value as u64
    }

    /// Waits until a series of `/metrics` has this value.
    #[track_caller]
    pub(crate) fn wait_for_metric(&self, series: &str, value: f64) {
        wait_until(&format!("{series} is {value}"), || {
            self.metric(series) == value
        });
    }

    /// The lines of `log.json`, once there are this many, in the order of the requests.
    #[track_caller]
    pub(crate) fn decisions(&self, count: usize) -> Vec<Value> {
        wait_until("the decision log is written", || {
            self.decision_log().matches('\n').count() >= count
        });
        let log = self.decision_log();
        assert_eq!(log.lines().count(), count, "{log}");
        let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
        let mut lines: Vec<Value> = lines.collect();
        // Each worker thread writes its own lines; the ids are counted.
        lines.sort_by_key(|line| {
            let id = line["decision"].as_str().unwrap();
            u64::from_str_radix(id.split_once('-').unwrap().1, 16).unwrap()
        });
        lines
    }
}

impl Drop for TestProxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let whole = self.directory.parent().unwrap_or(&self.directory);
        let _ = std::fs::remove_dir_all(whole);
    }
}

/// Most tests are about something other than TLS: a configuration without `tls` gets one without interception, so that no
/// authority is created.
fn with_tls(config: &str) -> String {
    let has_tls = config.lines().any(|line| line.starts_with("tls:"));
    let tls = if has_tls {
        ""
    } else {
        "\ntls: { intercept: false }\n"
    };
    format!("{config}{tls}")
}

fn create_directory() -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let name = format!(
        "proxy-{}-{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    );
    // The default store is a sibling of the directory of the configuration.
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(name)
        .join("config");
    std::fs::create_dir_all(&directory).expect("a directory");
    directory
}

fn write(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("a file");
    path
}

/// Waits for the lines that name the two listeners, and continues to read so that the process never blocks.
fn wait_for_listeners(
    stderr: ChildStderr,
    buffer: &Arc<Mutex<String>>,
) -> (SocketAddr, SocketAddr) {
    let (sender, lines) = mpsc::channel();
    let output = Arc::clone(buffer);
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let _ = sender.send(line.clone());
            let mut output = output.lock().expect("not poisoned");
            output.push_str(&format!("{line}\n"));
        }
    });
    let mut proxy = None;
    let mut admin = None;
    loop {
        let Ok(line) = lines.recv_timeout(START_TIMEOUT) else {
            let stderr = buffer.lock().expect("not poisoned");
            panic!("the proxy does not listen; standard error:\n{stderr}");
        };
        proxy = proxy.or_else(|| address(&line, "proxy listening on "));
        admin = admin.or_else(|| address(&line, "admin listening on "));
        if let (Some(proxy), Some(admin)) = (proxy, admin) {
            return (proxy, admin);
        }
    }
}

fn address(line: &str, prefix: &str) -> Option<SocketAddr> {
    line.split_once(prefix)?
        .1
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}
