//! A PostgreSQL server of a test, in a directory of its own, as a user without privileges.

use std::net::TcpListener;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The superuser's password.
pub(crate) const PASSWORD: &str = "geheim";

/// A running server, or one that was killed.
pub(crate) struct Postgres {
    binaries: PathBuf,
    directory: PathBuf,
    pub(crate) port: u16,
    process: Option<Child>,
    user: Option<(u32, u32)>,
}

impl Postgres {
    /// Starts a server; `None` if PostgreSQL is not installed.
    pub(crate) fn start() -> Option<Self> {
        let Some(binaries) = find_binaries() else {
            assert!(
                std::env::var_os("CI").is_none(),
                "PostgreSQL is not installed (Debian: postgresql-15)"
            );
            eprintln!("SKIPPED: PostgreSQL is not installed (Debian: postgresql-15)");
            return None;
        };
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!(
            "crawlgate-pg-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let user = unprivileged_user();
        if let Some((uid, gid)) = user {
            chown(&directory, Some(uid), Some(gid)).unwrap();
        }
        let mut server = Self {
            binaries,
            directory,
            port: free_port(),
            process: None,
            user,
        };
        server.initialize();
        server.launch();
        server.sql("create database fleet");
        Some(server)
    }

    /// The URL of the database for a user.
    pub(crate) fn url(&self, user: &str, password: &str) -> String {
        format!(
            "postgresql://{user}:{password}@127.0.0.1:{}/fleet",
            self.port
        )
    }

    /// Kills the postmaster, and with it every connection.
    pub(crate) fn kill(&mut self) {
        let mut process = self.process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Starts the server again. Processes of a killed postmaster may need a moment to end.
    pub(crate) fn launch(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            let log = std::fs::File::create(self.directory.join("log")).unwrap();
            let mut process = self
                .command("postgres")
                .arg("-D")
                .arg(self.directory.join("data"))
                .args(["-c", "listen_addresses=127.0.0.1"])
                .args(["-c", &format!("port={}", self.port)])
                .arg("-c")
                .arg(format!(
                    "unix_socket_directories={}",
                    self.directory.display()
                ))
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
                .unwrap();
            while process.try_wait().unwrap().is_none() {
                if self.try_sql("select 1").is_ok() {
                    self.process = Some(process);
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        let log = std::fs::read_to_string(self.directory.join("log")).unwrap_or_default();
        panic!("PostgreSQL does not start:\n{log}");
    }

    /// Makes the server read its configuration, with these lines instead of its access rules.
    pub(crate) fn set_access(&self, rules: &str) {
        let local = "local all all trust\n";
        let path = self.directory.join("data/pg_hba.conf");
        std::fs::write(path, format!("{local}{rules}")).unwrap();
        self.sql("select pg_reload_conf()");
        std::thread::sleep(Duration::from_millis(200));
    }

    /// Executes SQL as the superuser, over the socket in the server's directory.
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).unwrap()
    }

    fn try_sql(&self, sql: &str) -> Result<String, String> {
        let of_all = ["create database", "alter database", "select 1"];
        let database = if of_all.iter().any(|begin| sql.starts_with(begin)) {
            "postgres"
        } else {
            "fleet"
        };
        let output = self
            .command("psql")
            .arg("-h")
            .arg(&self.directory)
            .args([
                "-p",
                &self.port.to_string(),
                "-U",
                "crawlgate",
                "-d",
                database,
            ])
            .args(["-qAtX", "-v", "ON_ERROR_STOP=1", "-c", sql])
            .output()
            .unwrap();
        match output.status.success() {
            true => Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    fn initialize(&self) {
        let password = self.directory.join("password");
        std::fs::write(&password, PASSWORD).unwrap();
        let output = self
            .command("initdb")
            .arg("-D")
            .arg(self.directory.join("data"))
            .args(["-U", "crawlgate", "--auth-host=scram-sha-256"])
            .args([
                "--auth-local=trust",
                "--no-sync",
                "--encoding=UTF8",
                "--no-locale",
            ])
            .arg("--pwfile")
            .arg(&password)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn command(&self, name: &str) -> Command {
        self.unprivileged(&self.binaries.join(name))
    }

    /// A command of the user as whom the server runs.
    pub(crate) fn unprivileged(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir("/").env("LC_ALL", "C");
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Writes a file that the server's user can read.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.join(name);
        std::fs::write(&path, text).unwrap();
        if let Some((uid, gid)) = self.user {
            chown(&path, Some(uid), Some(gid)).unwrap();
        }
        path
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        // Its child processes end when they notice.
        for _ in 0..50 {
            if std::fs::remove_dir_all(&self.directory).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn find_binaries() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok();
    let debian = versions
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_all = |directory: &Path| {
        ["initdb", "postgres", "psql"]
            .iter()
            .all(|name| directory.join(name).is_file())
    };
    debian
        .chain(std::env::split_paths(&path))
        .find(|directory| has_all(directory))
}

/// PostgreSQL refuses to run as root.
fn unprivileged_user() -> Option<(u32, u32)> {
    let id = |flag| {
        let output = Command::new("id")
            .arg(flag)
            .arg("postgres")
            .output()
            .unwrap();
        String::from_utf8(output.stdout)
            .unwrap()
            .trim()
            .parse()
            .ok()
    };
    let own = Command::new("id").arg("-u").output().unwrap();
    let is_root = String::from_utf8(own.stdout).unwrap().trim() == "0";
    is_root.then(|| {
        let ids = id("-u").zip(id("-g"));
        ids.expect("as root, the tests need the user postgres")
    })
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
