//! The state that nodes share besides the ownership of hosts.
//!
//! Times that remain are computed by the clock of the store, since those of the nodes may differ.

use std::time::Duration;

use crawlgate_fleet::ownership::table::Generation;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::pacing::stops::{StopId, StopReason, StopTarget};
use crate::pipeline::budget::sharing::GrantRequest;
use crate::pipeline::stop_registry::SharedStop;

use super::StoreError;
use super::session::{StoreSession, first, get};

/// The wall clock of the store, in milliseconds since 1970.
pub(super) const NOW_MS: &str = "(extract(epoch from clock_timestamp()) * 1000)::bigint";

/// The time for which the row of a stop is kept after its end.
const ENDED_STOPS_KEPT_MS: i64 = 86_400_000;

/// The state of the stops in the store. It grows with each change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopsVersion {
    pub generation: Generation,
    pub version: u64,
}

impl StoreSession {
    /// Returns the version of the stops.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn stops_version(&self) -> Result<StopsVersion, StoreError> {
        let rows = self
            .query(
                "select f.generation, v.version, pg_backend_pid()
                 from crawlgate_fleet f cross join crawlgate_stop_version v",
                &[],
            )
            .await?;
        let row = rows.first().ok_or(StoreError::NotFounded)?;
        self.check_backend(get(row, 2)?)?;
        Ok(StopsVersion {
            generation: Generation(get::<i64>(row, 0)?.cast_unsigned()),
            version: get::<i64>(row, 1)?.cast_unsigned(),
        })
    }

    /// Returns the stops that have not ended.
    ///
    /// # Errors
    /// If the store fails, or contains a stop that this release does not understand.
    pub async fn stops(&self) -> Result<Vec<SharedStop>, StoreError> {
        let sql = format!(
            "select id, what, reason, since_ms, until_ms - {NOW_MS} from crawlgate_stop
             where until_ms is null or until_ms > {NOW_MS} order by id"
        );
        let rows = self.query(&sql, &[]).await?;
        rows.iter().map(shared_stop).collect()
    }

    /// Adds a stop, unless the store has it.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn add_stop(&self, stop: &SharedStop) -> Result<(), StoreError> {
        let sql = format!(
            "with forgotten as (delete from crawlgate_stop where until_ms <= {NOW_MS} - {ENDED_STOPS_KEPT_MS}),
             added as (
                 insert into crawlgate_stop (id, what, reason, since_ms, until_ms)
                 values ($1, $2, $3, $4, {NOW_MS} + $5) on conflict do nothing returning id
             )
             update crawlgate_stop_version set version = version + 1 where exists (select 1 from added)"
        );
        self.query(
            &sql,
            &[
                (&stop.id.0.cast_signed(), Type::INT8),
                (&stop.target.to_string(), Type::TEXT),
                (&stop.reason.as_str(), Type::TEXT),
                (&milliseconds(stop.since), Type::INT8),
                (&stop.remaining.map(milliseconds), Type::INT8),
            ],
        )
        .await?;
        Ok(())
    }

    /// Ends a stop. Its row is kept, so that a node which does not know that the store has had the stop cannot add it
    /// again.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn lift_stop(&self, id: StopId) -> Result<(), StoreError> {
        let sql = format!(
            "with lifted as (
                 insert into crawlgate_stop as s (id, what, reason, since_ms, until_ms)
                 values ($1, '', '', 0, {NOW_MS})
                 on conflict (id) do update set until_ms = least(coalesce(s.until_ms, {NOW_MS}), {NOW_MS})
                 returning id
             )
             update crawlgate_stop_version set version = version + 1 where exists (select 1 from lifted)"
        );
        self.query(&sql, &[(&id.0.cast_signed(), Type::INT8)])
            .await?;
        Ok(())
    }

    /// Takes an amount of a daily budget. Returns what was left of it: all nodes together never get more than the limit. If
    /// the answer is lost, so is the amount.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn take_budget(&self, request: &GrantRequest) -> Result<u64, StoreError> {
        let rows = self
            .query(
                "insert into crawlgate_budget as b (day, budget, kind, taken, granted)
                 values ($1, $2, $3, least($4, $5), least($4, $5))
                 on conflict (day, budget, kind) do update
                 set granted = greatest(least($4, $5 - b.taken), 0),
                     taken = b.taken + greatest(least($4, $5 - b.taken), 0)
                 returning granted",
                &[
                    (&bigint(request.day), Type::INT8),
                    (&&*request.budget, Type::TEXT),
                    (&request.kind.as_str(), Type::TEXT),
                    (&bigint(request.amount), Type::INT8),
                    (&bigint(request.limit), Type::INT8),
                ],
            )
            .await?;
        Ok(get::<i64>(first(&rows)?, 0)?.unsigned_abs())
    }

    /// Removes the budgets before a day.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn forget_budgets(&self, day: u64) -> Result<(), StoreError> {
        self.query(
            "delete from crawlgate_budget where day < $1",
            &[(&bigint(day), Type::INT8)],
        )
        .await?;
        Ok(())
    }
}

fn bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn shared_stop(row: &Row) -> Result<SharedStop, StoreError> {
    let id = get::<i64>(row, 0)?.cast_unsigned();
    let damaged = |error: &dyn std::fmt::Display| {
        StoreError::Damaged(format!("the stop {id} (crawlgate_stop): {error}"))
    };
    let what: &str = get(row, 1)?;
    let reason: &str = get(row, 2)?;
    Ok(SharedStop {
        id: StopId(id),
        target: StopTarget::parse(what).map_err(|error| damaged(&error))?,
        reason: StopReason::new(reason).map_err(|error| damaged(&error))?,
        since: duration(get(row, 3)?),
        remaining: get::<Option<i64>>(row, 4)?.map(duration),
    })
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

fn duration(milliseconds: i64) -> Duration {
    Duration::from_millis(u64::try_from(milliseconds).unwrap_or_default())
}
