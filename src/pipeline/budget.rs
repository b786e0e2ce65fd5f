//! The days' budgets: what was spent for each host, domain, crawler or space that a policy limits, kept over a restart.
//!
//! Only requests that a budget covers come here. Names that no request has asked for since the day before are forgotten;
//! if there are too many of one day, those that have spent least go first. What is limited is said in
//! [`crate::pacing::budget`].

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::clock::Clock;
use crate::pacing::budget::BudgetUsage;
pub use crate::pacing::budget::{BudgetKind, BudgetLimits, BudgetRequest, HostHash, UrlNovelty};
use crate::store::budgets::{BudgetsFile, SavedBudgets, UnreadableFile};
use crate::store::sharded_map::{MapShard, SHARD_COUNT, ShardedMap, shrink_if_sparse};

use super::schedules::unix_time;

/// The most names of one day, 262,144 in all.
const MAX_NAMES_PER_SHARD: usize = 4_096;
/// Of so many names the one that has spent least makes room.
const EVICTION_SAMPLE: usize = 16;
/// The least time between two writes; a crash loses what was counted in it.
const WRITE_INTERVAL: Duration = Duration::from_secs(5);
/// A write that takes long is made the more seldom: at most this part of the time is spent on them.
const WRITE_TIME_DIVISOR: u32 = 50;
const DAY: u64 = 86_400;

/// What was spent.
pub struct BudgetTracker {
    usage: ShardedMap<BudgetUsage>,
    /// Whether something was counted that the disk has not.
    dirty: AtomicBool,
    storage: Mutex<BudgetStorage>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct BudgetStorage {
    file: Option<BudgetsFile>,
    /// Not before.
    next_write: Option<Instant>,
}

/// Whether a request that may go is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetAction {
    /// It is only asked for.
    Check,
    /// It goes.
    Charge,
}

/// A day's budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetExhausted {
    /// Of what.
    pub kind: BudgetKind,
    /// Until the day ends.
    pub resets_in: Duration,
}

impl BudgetTracker {
    /// Nothing was spent yet.
    pub fn new(clock: Clock) -> Self {
        Self {
            usage: ShardedMap::new(),
            dirty: AtomicBool::new(false),
            storage: Mutex::default(),
            clock,
        }
    }

    /// Whether a request may go; counted if it is to.
    ///
    /// # Errors
    /// If something is used up: nothing is counted then.
    pub fn apply(
        &self,
        name: &str,
        limits: BudgetLimits,
        request: BudgetRequest,
        action: BudgetAction,
    ) -> Result<(), BudgetExhausted> {
        let now = unix_time(self.clock.wall_time());
        let day = now.as_secs() / DAY;
        let mut shard = self.usage.lock_shard(name);
        let spent = usage_of_day(&mut shard, name, day);
        if let Some(purse) = spent.exhausted_limit(limits, request) {
            let ends = Duration::from_secs((day + 1) * DAY);
            return Err(BudgetExhausted {
                kind: purse,
                resets_in: ends.saturating_sub(now),
            });
        }
        if action == BudgetAction::Charge {
            spent.record_request(limits, request);
            drop(shard);
            self.dirty.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// So many bytes of bodies have passed.
    pub fn add_bytes(&self, name: &str, bytes: u64) {
        let day = unix_time(self.clock.wall_time()).as_secs() / DAY;
        let mut shard = self.usage.lock_shard(name);
        let spent = usage_of_day(&mut shard, name, day);
        spent.bytes = spent.bytes.saturating_add(bytes);
        drop(shard);
        self.dirty.store(true, Ordering::Relaxed);
    }

    /// Forgets what was spent before today.
    pub fn sweep(&self) {
        let day = unix_time(self.clock.wall_time()).as_secs() / DAY;
        for mut shard in self.usage.lock_each() {
            shard.retain(|_, spent| day <= spent.day);
            shrink_if_sparse(&mut shard);
        }
    }

    /// Takes over what a file holds of today, and from now on keeps that file.
    ///
    /// # Errors
    /// If the file cannot be read: nothing is taken over then.
    pub fn restore(&self, file: BudgetsFile) -> Result<(), UnreadableFile> {
        let day = unix_time(self.clock.wall_time()).as_secs() / DAY;
        for (name, spent) in file.read()?.0 {
            if spent.day == day {
                self.usage.lock_shard(&name).insert(name, spent);
            }
        }
        self.storage
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .file = Some(file);
        Ok(())
    }

    /// Whether the file has to be written, and may be by now.
    pub fn needs_write(&self) -> bool {
        self.dirty.load(Ordering::Relaxed)
            && self
                .storage
                .try_lock()
                .is_ok_and(|disk| disk.next_write.is_none_or(|next| next <= self.clock.now()))
    }

    /// Writes the file. Blocks until it is on the disk.
    ///
    /// # Errors
    /// If that fails; it is tried again.
    pub fn persist(&self) -> std::io::Result<()> {
        let mut disk = self.storage.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.dirty.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let began = self.clock.now();
        let written = disk
            .file
            .as_ref()
            .map_or(Ok(()), |file| file.write(&self.to_saved()));
        let took = self.clock.now().saturating_duration_since(began);
        disk.next_write = self
            .clock
            .now()
            .checked_add(WRITE_INTERVAL.max(took.saturating_mul(WRITE_TIME_DIVISOR)));
        if written.is_err() {
            self.dirty.store(true, Ordering::Relaxed);
        }
        written
    }

    /// One shard after the other, so that none waits for long.
    fn to_saved(&self) -> SavedBudgets {
        let mut all = Vec::new();
        for shard in self.usage.lock_each() {
            #[allow(clippy::disallowed_methods, reason = "put in order below")]
            all.extend(
                shard
                    .iter()
                    .map(|(name, spent)| (Arc::clone(name), spent.clone())),
            );
        }
        all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        SavedBudgets(all)
    }
}

impl fmt::Debug for BudgetTracker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Budgets")
    }
}

/// A host as a number.
pub fn host_number(host: &str) -> HostHash {
    let hash: [u8; 32] = Sha256::digest(host).into();
    let [a, b, c, d, e, f, g, h, ..] = hash;
    HostHash(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
}

fn usage_of_day<'s>(
    shard: &'s mut MapShard<BudgetUsage>,
    name: &str,
    day: u64,
) -> &'s mut BudgetUsage {
    if !shard.contains_key(name) && shard.len() >= MAX_NAMES_PER_SHARD {
        make_room(shard, day);
    }
    let spent = shard
        .entry(name.into())
        .or_insert_with(|| BudgetUsage::for_day(day));
    spent.roll_over_to(day);
    spent
}

/// Forgets the days before; if there is nothing of them, the name that has spent least of some.
fn make_room(shard: &mut MapShard<BudgetUsage>, day: u64) {
    shard.retain(|_, spent| day <= spent.day);
    if shard.len() < MAX_NAMES_PER_SHARD {
        return;
    }
    #[allow(clippy::disallowed_methods, reason = "any of them will do")]
    let least = shard
        .iter()
        .take(EVICTION_SAMPLE)
        .min_by_key(|(_, spent)| (spent.urls, spent.bytes));
    if let Some(name) = least.map(|(name, _)| Arc::clone(name)) {
        shard.remove(&name);
    }
}

const _: () = assert!(MAX_NAMES_PER_SHARD * SHARD_COUNT == 262_144);
