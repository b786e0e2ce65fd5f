//! Errors of the store, each with its cause and what to do.

use std::error::Error as _;
use std::time::Duration;

use crawlgate_fleet::node::NodeName;
use tokio_postgres::error::SqlState;

use crate::fleet::protocol::FleetProtocol;
use crate::model::units::format_duration;

/// The reason why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("the store cannot be reached (store.url): {0}")]
    Unreachable(String),
    #[error("the store did not answer within {} (store.timeout)", format_duration(*.0))]
    Timeout(Duration),
    #[error("the store refuses the user or the password of store.url: {0}")]
    Authentication(String),
    #[error("the store accepts only connections with TLS: write sslmode=verify-full in store.url")]
    TlsRequired,
    #[error(
        "the store does not offer TLS, which store.url asks for: enable it there (ssl = on), or write sslmode=disable in \
         store.url if the network between is yours alone"
    )]
    TlsRefused,
    #[error("TLS with the store failed (store.url): {0}")]
    Tls(String),
    #[error("the server of the store is too old: PostgreSQL {0}; 13 is the oldest that works")]
    ServerTooOld(String),
    #[error(
        "the store is a read-only replica (store.url): name the primary server, or all servers, of which the one that \
         accepts writes is used"
    )]
    ReadOnly,
    #[error(
        "the user {user} of the store has too few rights: {message}. As the owner of the database: GRANT SELECT, INSERT, \
         UPDATE, DELETE ON crawlgate_schema, crawlgate_fleet, crawlgate_member, crawlgate_partition, crawlgate_stop, \
         crawlgate_stop_version, crawlgate_budget, crawlgate_rest, crawlgate_handover TO {user}; for `crawlgate fleet found` also: GRANT CREATE ON \
         SCHEMA public TO {user}; `crawlgate fleet migrate` needs the user that owns the tables"
    )]
    MissingRights { user: String, message: String },
    #[error(
        "the store is behind a pooler that gives each transaction another connection (PgBouncer: pool_mode = transaction), \
         so that this node would not notice if its connection to the server ends: name the server itself in store.url, or \
         use pool_mode = session"
    )]
    PooledTransactions,
    #[error("the disk of the store is full: {0}")]
    DiskFull(String),
    #[error("there is no fleet in this database yet: run `crawlgate fleet found` once")]
    NotFounded,
    #[error(
        "the tables of the store have version {found}, this release needs {expected}: run `crawlgate fleet migrate`"
    )]
    OldSchema { found: i64, expected: i64 },
    #[error(
        "the tables of the store have version {found}, for nodes with the protocol {oldest} of the fleet or a newer one; \
         this release speaks {}: upgrade this node",
        FleetProtocol::CURRENT
    )]
    NewSchema { found: i64, oldest: FleetProtocol },
    #[error(
        "{node} is a member with the protocol {found} of the fleet (release {version}), this release has {}, and \
         protocols that differ by more than one do not work together: {}",
        FleetProtocol::CURRENT,
        protocol_cure(node, *found)
    )]
    OtherProtocol {
        node: String,
        version: String,
        found: FleetProtocol,
    },
    #[error(
        "the store belongs to the fleet `{found}`, not to `{expected}` (fleet.name): each fleet needs a database of its own"
    )]
    OtherFleet { found: Box<str>, expected: Box<str> },
    #[error(
        "fleet.lease of {node} is {}, but that of the fleet is {}: set it to that on every node",
        format_duration(*.configured),
        format_duration(*.fleet)
    )]
    OtherLease {
        node: NodeName,
        configured: Duration,
        fleet: Duration,
    },
    #[error(
        "a node named {0} (fleet.node) is a member already, with another state directory (store.path): choose another name, \
         or, if that process is dead and its directory lost, run `crawlgate fleet forget {0}`"
    )]
    NameTaken(NodeName),
    #[error("the fleet was founded again with other partitions: restart this node")]
    Refounded,
    #[error("the rows of the store are damaged: {0}")]
    Damaged(String),
    #[error("the store failed: {0}")]
    Failed(String),
}

impl StoreError {
    /// Explains an error of the client library.
    pub(super) fn explain(error: &tokio_postgres::Error, user: &str) -> Self {
        let text = describe(error);
        let Some(state) = error.code() else {
            return Self::explain_connection(text);
        };
        let is_pg_hba = text.contains("pg_hba.conf")
            && (text.contains("no encryption") || text.contains("SSL off"));
        if is_pg_hba {
            return Self::TlsRequired;
        }
        if *state == SqlState::INVALID_PASSWORD
            || *state == SqlState::INVALID_AUTHORIZATION_SPECIFICATION
        {
            Self::Authentication(text)
        } else if *state == SqlState::INSUFFICIENT_PRIVILEGE {
            let (user, message) = (user.to_owned(), text);
            Self::MissingRights { user, message }
        } else if *state == SqlState::UNDEFINED_TABLE {
            Self::NotFounded
        } else if *state == SqlState::READ_ONLY_SQL_TRANSACTION {
            Self::ReadOnly
        } else if *state == SqlState::DISK_FULL {
            Self::DiskFull(text)
        } else {
            Self::Failed(text)
        }
    }

    /// Explains an error that the server has not sent.
    fn explain_connection(text: String) -> Self {
        if text.contains("server does not support TLS") {
            Self::TlsRefused
        } else if text.contains("TLS handshake") {
            Self::Tls(text)
        } else if text.contains("does not allow writes") {
            Self::ReadOnly
        } else if text.contains("password missing") || text.contains("authentication") {
            Self::Authentication(text)
        } else {
            Self::Unreachable(text)
        }
    }
}

/// Returns what to do about a member whose release does not work with this one.
fn protocol_cure(node: &str, found: FleetProtocol) -> String {
    let FleetProtocol(own) = FleetProtocol::CURRENT;
    if found.0 > own {
        let oldest = found.0 - 1;
        return format!(
            "run a release with the protocol {oldest} or {} here",
            found.0
        );
    }
    format!(
        "upgrade all nodes to a release with the protocol {} first; if the process of {node} is dead, run `crawlgate \
         fleet forget {node}`",
        own - 1
    )
}

/// Returns `true` if a transaction should be repeated at once, since it met another.
pub(super) fn is_conflict(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|state| {
        *state == SqlState::T_R_SERIALIZATION_FAILURE || *state == SqlState::T_R_DEADLOCK_DETECTED
    })
}

/// Returns the message of the server, or the chain of causes.
fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(server) = error.as_db_error() {
        return server.message().to_owned();
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text.push_str(": ");
            text.push_str(&inner_text);
        }
        cause = inner.source();
    }
    text
}
