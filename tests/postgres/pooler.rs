//! PgBouncer between the nodes and the server.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::node::wait_for;
use crate::server::{PASSWORD, Postgres, free_port};

const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// A running PgBouncer; it is killed on drop.
pub(crate) struct Pooler {
    process: Child,
    port: u16,
}

impl Pooler {
    /// Starts it with a `pool_mode`; `None` if it is not installed.
    pub(crate) fn start(postgres: &Postgres, mode: &str) -> Option<Self> {
        if !Path::new(PROGRAM).exists() {
            assert!(
                std::env::var_os("CI").is_none(),
                "PgBouncer is not installed (Debian: pgbouncer)"
            );
            eprintln!("SKIPPED: PgBouncer is not installed (Debian: pgbouncer)");
            return None;
        }
        let port = free_port();
        let config = format!(
            "[databases]\nfleet = host=127.0.0.1 port={} dbname=fleet user=crawlgate password={PASSWORD}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\npool_mode = {mode}\n\
             unix_socket_dir =\n",
            postgres.port
        );
        let config = postgres.write(&format!("pgbouncer-{mode}.ini"), &config);
        let process = postgres
            .unprivileged(Path::new(PROGRAM))
            .arg(config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for("PgBouncer listens", Duration::from_secs(10), || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Some(Self { process, port })
    }

    pub(crate) fn url(&self) -> String {
        format!(
            "postgresql://crawlgate:{PASSWORD}@127.0.0.1:{}/fleet",
            self.port
        )
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
