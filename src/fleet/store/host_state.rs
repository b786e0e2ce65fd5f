//! The state of hosts for their next owners: the hosts that rest, and all hosts of partitions that were given away.
//!
//! Times that remain are computed by the clock of the store, since those of the nodes may differ.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crawlgate_fleet::node::Epoch;
use crawlgate_fleet::partition::Partition;
use tokio_postgres::types::Type;

use crate::pacing::backoff::{BackoffCause, BackoffRecord, FORGET_AFTER};

use super::StoreError;
use super::session::{StoreSession, get};
use super::shared_state::NOW_MS;

/// The time for which the row of a rest is kept after its end.
const ENDED_RESTS_KEPT_MS: i64 = 3_600_000;

/// The state of a partition as its last owner has written it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredState {
    pub partition: Partition,
    /// The time since it was written.
    pub age: Duration,
    pub state: String,
}

impl StoreSession {
    /// Writes rests of hosts, each with the partition of its host.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn write_rests(
        &self,
        rests: &[(Arc<str>, Partition, BackoffRecord)],
    ) -> Result<(), StoreError> {
        let hosts: Vec<&str> = rests.iter().map(|(host, _, _)| &**host).collect();
        let partitions: Vec<i64> = rests.iter().map(|(_, p, _)| i64::from(p.0)).collect();
        let causes: Vec<&str> = rests.iter().map(|(_, _, r)| r.cause.as_str()).collect();
        let strikes: Vec<i64> = rests.iter().map(|(_, _, r)| r.strikes.into()).collect();
        let left: Vec<i64> = rests.iter().map(|(_, _, r)| r.ends_in_ms).collect();
        let sql = format!(
            "insert into crawlgate_rest (host, partition_number, cause, strikes, until_ms)
             select n.host, n.partition_number, n.cause, n.strikes, {NOW_MS} + n.left_ms
             from unnest($1, $2, $3, $4, $5) as n (host, partition_number, cause, strikes, left_ms)
             on conflict (host) do update
             set partition_number = excluded.partition_number, cause = excluded.cause,
                 strikes = excluded.strikes, until_ms = excluded.until_ms"
        );
        self.query(
            &sql,
            &[
                (&hosts, Type::TEXT_ARRAY),
                (&partitions, Type::INT8_ARRAY),
                (&causes, Type::TEXT_ARRAY),
                (&strikes, Type::INT8_ARRAY),
                (&left, Type::INT8_ARRAY),
            ],
        )
        .await?;
        Ok(())
    }

    /// Removes rests of hosts.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn remove_rests(&self, hosts: &[Arc<str>]) -> Result<(), StoreError> {
        let hosts: Vec<&str> = hosts.iter().map(|host| &**host).collect();
        self.query(
            "delete from crawlgate_rest where host = any($1)",
            &[(&hosts, Type::TEXT_ARRAY)],
        )
        .await?;
        Ok(())
    }

    /// Removes the rests that ended an hour ago.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn forget_rests(&self) -> Result<(), StoreError> {
        let sql =
            format!("delete from crawlgate_rest where until_ms < {NOW_MS} - {ENDED_RESTS_KEPT_MS}");
        self.query(&sql, &[]).await?;
        Ok(())
    }

    /// Returns the rests of the hosts of some partitions that still have an effect.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn rests(
        &self,
        partitions: &[Partition],
    ) -> Result<BTreeMap<Arc<str>, BackoffRecord>, StoreError> {
        let numbers: Vec<i64> = partitions.iter().map(|p| i64::from(p.0)).collect();
        let kept = FORGET_AFTER.as_millis();
        let sql = format!(
            "select host, cause, strikes, until_ms - {NOW_MS} from crawlgate_rest
             where partition_number = any($1) and until_ms > {NOW_MS} - {kept}"
        );
        let rows = self.query(&sql, &[(&numbers, Type::INT8_ARRAY)]).await?;
        let mut rests = BTreeMap::new();
        for row in &rows {
            let host: &str = get(row, 0)?;
            let record = BackoffRecord {
                // Only its description depends on the cause.
                cause: BackoffCause::from_word(get(row, 1)?).unwrap_or_default(),
                strikes: u8::try_from(get::<i64>(row, 2)?).unwrap_or(u8::MAX),
                consecutive_failures: 0,
                ends_in_ms: get(row, 3)?,
                is_proved: false,
            };
            rests.insert(host.into(), record);
        }
        Ok(rests)
    }

    /// Writes the state of partitions that this node gives away, with the epoch of its ownership.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn write_states(
        &self,
        given: &[(Partition, Epoch, String)],
    ) -> Result<(), StoreError> {
        let partitions: Vec<i64> = given.iter().map(|(p, _, _)| i64::from(p.0)).collect();
        let epochs: Vec<i64> = given.iter().map(|(_, e, _)| e.0.cast_signed()).collect();
        let states: Vec<&str> = given.iter().map(|(_, _, state)| &**state).collect();
        let sql = format!(
            "insert into crawlgate_handover (partition_number, epoch, written_ms, state)
             select n.partition_number, n.epoch, {NOW_MS}, n.state
             from unnest($1, $2, $3) as n (partition_number, epoch, state)
             on conflict (partition_number) do update
             set epoch = excluded.epoch, written_ms = excluded.written_ms, state = excluded.state"
        );
        self.query(
            &sql,
            &[
                (&partitions, Type::INT8_ARRAY),
                (&epochs, Type::INT8_ARRAY),
                (&states, Type::TEXT_ARRAY),
            ],
        )
        .await?;
        Ok(())
    }

    /// Returns the state of partitions whose last owner had this epoch, if it has written it.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn read_states(
        &self,
        partitions: &[(Partition, Epoch)],
    ) -> Result<Vec<StoredState>, StoreError> {
        let numbers: Vec<i64> = partitions.iter().map(|(p, _)| i64::from(p.0)).collect();
        let epochs: Vec<i64> = partitions.iter().map(|(_, e)| e.0.cast_signed()).collect();
        let sql = format!(
            "select h.partition_number, {NOW_MS} - h.written_ms, h.state
             from crawlgate_handover h, unnest($1, $2) as c (partition_number, epoch)
             where h.partition_number = c.partition_number and h.epoch = c.epoch"
        );
        let rows = self
            .query(
                &sql,
                &[(&numbers, Type::INT8_ARRAY), (&epochs, Type::INT8_ARRAY)],
            )
            .await?;
        let mut given = Vec::with_capacity(rows.len());
        for row in &rows {
            let number: i64 = get(row, 0)?;
            let age: i64 = get(row, 1)?;
            let partition = u16::try_from(number)
                .map_err(|_| StoreError::Damaged(format!("the partition {number}")))?;
            given.push(StoredState {
                partition: Partition(partition),
                age: Duration::from_millis(u64::try_from(age).unwrap_or(0)),
                state: get(row, 2)?,
            });
        }
        Ok(given)
    }
}
