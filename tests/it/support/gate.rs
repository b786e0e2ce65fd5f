//! A running crawlgate: the real binary, on ports that the kernel chose, with a configuration of the test's own.
//!
//! It knows nothing of HTTP; tests speak to [`Gate::proxy`] themselves.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// How long a gate may take until it listens.
const START: Duration = Duration::from_secs(20);

/// A crawlgate process; dropping it ends the process.
pub(crate) struct Gate {
    child: Child,
    /// Where it serves crawlers.
    pub(crate) proxy: SocketAddr,
    /// Where it serves operators.
    pub(crate) admin: SocketAddr,
    said: Arc<Mutex<String>>,
    directory: PathBuf,
}

impl Gate {
    /// Starts `crawlgate run` with this configuration and, beside it, this `policy.yaml`.
    ///
    /// # Panics
    /// If it does not come to listen; the message holds what it said.
    pub(crate) fn start(config: &str, policy: &str) -> Self {
        Self::start_with(config, policy, |_| {})
    }

    /// As [`Gate::start`], with the command changed before it is run.
    pub(crate) fn start_with(
        config: &str,
        policy: &str,
        change: impl FnOnce(&mut Command),
    ) -> Self {
        let directory = own_directory();
        write(&directory, "policy.yaml", policy);
        let file = write(&directory, "crawlgate.yaml", config);
        let mut command = Command::new(env!("CARGO_BIN_EXE_crawlgate"));
        command
            .args(["run", "--config"])
            .arg(file)
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        change(&mut command);
        let mut child = command.spawn().expect("the binary starts");
        let said = Arc::new(Mutex::new(String::new()));
        let (proxy, admin) = listen(child.stderr.take().expect("a pipe"), &said);
        Self {
            child,
            proxy,
            admin,
            said,
            directory,
        }
    }

    /// Writes a file beside its configuration: `policy.yaml` is the policy.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        write(&self.directory, name, text)
    }

    /// A file by its path from the directory of its configuration.
    pub(crate) fn file(&self, path: &str) -> PathBuf {
        self.directory.join(path)
    }

    /// The decision log, where that is `log.json`, so far.
    pub(crate) fn log(&self) -> String {
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

    /// Waits for the process to end, and tells its exit code.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        self.child.wait().expect("a process").code()
    }

    /// Everything that it wrote to its standard error so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().expect("not poisoned").clone()
    }

    /// Where its standard error is read to: who holds the lock keeps it from being read.
    pub(crate) fn unread(&self) -> Arc<Mutex<String>> {
        Arc::clone(&self.said)
    }

    /// Whether the process still runs.
    pub(crate) fn is_up(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let whole = self.directory.parent().unwrap_or(&self.directory);
        let _ = std::fs::remove_dir_all(whole);
    }
}

fn own_directory() -> PathBuf {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let name = format!(
        "gate-{}-{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    );
    // The store's usual place is beside the folder of the configuration.
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

/// Waits for the two lines that name the listeners, and goes on reading so that the process never blocks.
fn listen(stderr: ChildStderr, said: &Arc<Mutex<String>>) -> (SocketAddr, SocketAddr) {
    let (tell, told) = mpsc::channel();
    let kept = Arc::clone(said);
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let _ = tell.send(line.clone());
            kept.lock()
                .expect("not poisoned")
                .push_str(&format!("{line}\n"));
        }
    });
    let (mut proxy, mut admin) = (None, None);
    loop {
        let Ok(line) = told.recv_timeout(START) else {
            panic!(
                "the gate does not listen; it said:\n{}",
                said.lock().expect("not poisoned")
            );
        };
        proxy = proxy.or_else(|| address(&line, "proxy listening on "));
        admin = admin.or_else(|| address(&line, "admin listening on "));
        if let (Some(proxy), Some(admin)) = (proxy, admin) {
            return (proxy, admin);
        }
    }
}

fn address(line: &str, before: &str) -> Option<SocketAddr> {
    line.split_once(before)?
        .1
        .split_whitespace()
        .next()?
        .parse()
        .ok()
}
