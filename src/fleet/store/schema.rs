//! The tables, in numbered versions, and the founding of a fleet.

use std::time::Duration;

use crawlgate_fleet::partition::{FleetKey, PARTITIONS};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::fleet::protocol::FleetProtocol;

use super::session::{StoreSession, random_bytes, random_number};
use super::{PostgresConfig, StoreError};

/// The steps from one version of the tables to the next. Each statement can be repeated, since not every engine rolls
/// a change of tables back. A fleet is migrated while it runs: nodes with the protocol before must be able to go on with
/// the tables.
const MIGRATIONS: &[&[&str]] = &[OWNERSHIP, SHARED_STATE, HOST_STATE, MEMBER_RELEASES];

/// Version 1: members, leases and partitions.
const OWNERSHIP: &[&str] = &[
    "create table if not exists crawlgate_fleet (
        one boolean not null primary key default true check (one),
        name text not null,
        partitions bigint not null,
        hash_key bytea not null,
        generation bigint not null,
        lease_ms bigint not null
    )",
    "create table if not exists crawlgate_member (
        incarnation bigint not null primary key,
        node text not null,
        home text not null,
        counter bigint not null,
        state text not null,
        address text not null,
        version text not null,
        policy text not null
    )",
    "create table if not exists crawlgate_partition (
        number bigint not null primary key,
        incarnation bigint references crawlgate_member (incarnation),
        epoch bigint not null
    )",
];

/// Version 2: stops, and the parts of daily budgets that nodes have taken.
const SHARED_STATE: &[&str] = &[
    "create table if not exists crawlgate_stop (
        id bigint not null primary key,
        what text not null,
        reason text not null,
        since_ms bigint not null,
        until_ms bigint
    )",
    "create table if not exists crawlgate_stop_version (
        one boolean not null primary key default true check (one),
        version bigint not null
    )",
    "insert into crawlgate_stop_version (version) values (0) on conflict do nothing",
    "create table if not exists crawlgate_budget (
        day bigint not null,
        budget text not null,
        kind text not null,
        taken bigint not null,
        granted bigint not null,
        primary key (day, budget, kind)
    )",
];

/// Version 3: the state of hosts for their next owners.
const HOST_STATE: &[&str] = &[
    "create table if not exists crawlgate_rest (
        host text not null primary key,
        partition_number bigint not null,
        cause text not null,
        strikes bigint not null,
        until_ms bigint not null
    )",
    "create index if not exists crawlgate_rest_partition on crawlgate_rest (partition_number)",
    "create table if not exists crawlgate_handover (
        partition_number bigint not null primary key,
        epoch bigint not null,
        written_ms bigint not null,
        state text not null
    )",
];

/// Version 4: the protocols of members, and the URLs of their admin listeners. A release without this version adds rows with
/// [`FleetProtocol::FIRST`].
const MEMBER_RELEASES: &[&str] = &[
    "alter table crawlgate_member add column if not exists protocol bigint not null default 1",
    "alter table crawlgate_member add column if not exists admin text",
];

/// The version that this release reads and writes.
pub(super) const VERSION: i64 = MIGRATIONS.len() as i64;

/// The amount by which epochs grow when a store is restored: no ownership after the copy was made has such an epoch.
const EPOCHS_PER_GENERATION: i64 = 1 << 32;

/// A fleet to be founded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founding {
    /// `fleet.name`.
    pub name: Box<str>,
    /// `fleet.lease`.
    pub lease: Duration,
    /// The database has a fleet already, and was restored from a copy.
    pub restored: bool,
}

/// The result of a founding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundOutcome {
    /// There is a new fleet.
    Founded,
    /// There was a fleet, which is founded again.
    Restored,
    /// There was a fleet, and nothing was changed.
    Exists(Box<str>),
}

/// Creates the tables, and founds a fleet. In a restored database, ends every lease of before.
///
/// # Errors
/// If the store cannot be used, or `restored` is set and there is no fleet.
pub async fn found(
    config: &PostgresConfig,
    founding: &Founding,
) -> Result<FoundOutcome, StoreError> {
    let mut session = StoreSession::connect(config).await?;
    if founding.restored {
        let version = session.schema_version().await?;
        session.check_version(version.max(VERSION)).await?;
    }
    session.check_migration().await?;
    let timeout = config.timeout;
    let (number, key) = (random_number()?, FleetKey::new(random_bytes()?));
    let work = async {
        create_tables(&session.client).await?;
        match founding.restored {
            true => restore(&mut session.client, number).await,
            false => insert_fleet(&mut session.client, founding, number, key).await,
        }
    };
    let outcome = tokio::time::timeout(timeout * STEPS, work)
        .await
        .map_err(|_| StoreError::Timeout(timeout))?
        .map_err(|error| StoreError::explain(&error, config.url.user()))?;
    outcome.ok_or(StoreError::NotFounded)
}

/// Changes of tables may take longer than statements.
const STEPS: u32 = 10;

/// Brings the tables to the version of this release, unless they are newer. Returns the version before and after.
///
/// # Errors
/// If the store cannot be used, its tables are too new for this release, or a member is too old for its tables.
pub async fn migrate(config: &PostgresConfig) -> Result<(i64, i64), StoreError> {
    let session = StoreSession::connect(config).await?;
    let before = session.schema_version().await?;
    session.check_version(before.max(VERSION)).await?;
    session.check_migration().await?;
    tokio::time::timeout(config.timeout * STEPS, create_tables(&session.client))
        .await
        .map_err(|_| StoreError::Timeout(config.timeout))?
        .map_err(|error| StoreError::explain(&error, config.url.user()))?;
    Ok((before, before.max(VERSION)))
}

async fn create_tables(client: &Client) -> Result<(), tokio_postgres::Error> {
    client
        .batch_execute(
            "create table if not exists crawlgate_schema (version bigint not null primary key)",
        )
        .await?;
    let rows = client
        .query_typed(
            "select coalesce(max(version), 0) from crawlgate_schema",
            &[],
        )
        .await?;
    let version: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
    if version >= VERSION {
        return Ok(());
    }
    client
        .batch_execute(
            "alter table crawlgate_schema
             add column if not exists oldest_protocol bigint not null default 1",
        )
        .await?;
    let oldest = i64::from(FleetProtocol::oldest_spoken().0);
    for (number, statements) in (1..).zip(MIGRATIONS) {
        if number <= version {
            continue;
        }
        for statement in *statements {
            client.batch_execute(statement).await?;
        }
        client
            .query_typed(
                "insert into crawlgate_schema (version, oldest_protocol) values ($1, $2)
                 on conflict do nothing",
                &[(&number, Type::INT8), (&oldest, Type::INT8)],
            )
            .await?;
    }
    Ok(())
}

async fn insert_fleet(
    client: &mut Client,
    founding: &Founding,
    generation: i64,
    key: FleetKey,
) -> Result<Option<FoundOutcome>, tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    let lease = i64::try_from(founding.lease.as_millis()).unwrap_or(i64::MAX);
    let partitions = i64::from(PARTITIONS.get());
    let inserted = transaction
        .query_typed(
            "insert into crawlgate_fleet (name, partitions, hash_key, generation, lease_ms)
             values ($1, $2, $3, $4, $5) on conflict do nothing returning name",
            &[
                (&&*founding.name, Type::TEXT),
                (&partitions, Type::INT8),
                (&key.as_bytes().as_slice(), Type::BYTEA),
                (&generation, Type::INT8),
                (&lease, Type::INT8),
            ],
        )
        .await?;
    if inserted.is_empty() {
        let rows = transaction
            .query_typed("select name from crawlgate_fleet", &[])
            .await?;
        let name: String = rows
            .first()
            .map_or(Ok(String::new()), |row| row.try_get(0))?;
        return Ok(Some(FoundOutcome::Exists(name.into())));
    }
    transaction
        .query_typed(
            "insert into crawlgate_partition (number, incarnation, epoch)
             select number, null, 0 from generate_series(0, $1 - 1) as number on conflict do nothing",
            &[(&partitions, Type::INT8)],
        )
        .await?;
    transaction.commit().await?;
    Ok(Some(FoundOutcome::Founded))
}

/// Founds the fleet of a copy again. A partition without an owner in the copy may have one now: it gets an owner that
/// never renews, so that every node watches it for the length of a lease.
async fn restore(
    client: &mut Client,
    unknown: i64,
) -> Result<Option<FoundOutcome>, tokio_postgres::Error> {
    let transaction = client.transaction().await?;
    let updated = transaction
        .query_typed(
            "update crawlgate_fleet set generation = $1 returning name",
            &[(&unknown, Type::INT8)],
        )
        .await?;
    if updated.is_empty() {
        return Ok(None);
    }
    transaction
        .query_typed(
            "insert into crawlgate_member
                 (incarnation, node, home, counter, state, address, version, policy)
             values ($1, 'unknown', '', 0, 'unknown', '0.0.0.0:0', '', '')",
            &[(&unknown, Type::INT8)],
        )
        .await?;
    transaction
        .query_typed(
            "update crawlgate_partition
             set incarnation = coalesce(incarnation, $1), epoch = epoch + $2",
            &[(&unknown, Type::INT8), (&EPOCHS_PER_GENERATION, Type::INT8)],
        )
        .await?;
    transaction.commit().await?;
    Ok(Some(FoundOutcome::Restored))
}
