//! Daily budgets: the usage of each host, domain, crawler or space that a policy limits, kept over a restart.
//!
//! Only requests with a budget are counted. Names without requests since the day before are removed; if there are too
//! many on one day, those with the least usage go first. [`crate::pacing::budget`] defines the limits. In a fleet, nodes
//! share the budgets that are not those of one host ([`sharing`]).

pub mod sharing;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use crate::clock::Clock;
use crate::pacing::budget::BudgetUsage;
pub use crate::pacing::budget::{BudgetKind, BudgetLimits, BudgetRequest, HostHash, UrlNovelty};
use crate::store::budgets::{BudgetsFile, SavedBudgets, UnreadableFile};
use crate::store::sharded_map::{MapShard, SHARD_COUNT, ShardedMap, shrink_if_sparse};

use super::schedules::unix_time;

use sharing::{GrantBoard, LimitShares};

/// The most names of one day, 262,144 in all.
const MAX_NAMES_PER_SHARD: usize = 4_096;
/// The number of names of which the one with the least usage is removed.
const EVICTION_SAMPLE: usize = 16;
/// The least time between two writes; a crash loses the usage since the last one.
const WRITE_INTERVAL: Duration = Duration::from_secs(5);
/// The maximum share of time spent on writes, as a divisor: slow writes are less frequent.
const WRITE_TIME_DIVISOR: u32 = 50;
const DAY: u64 = 86_400;

/// The usage of all budgets.
pub struct BudgetTracker {
    accounts: ShardedMap<BudgetAccount>,
    grants: GrantBoard,
    /// `true` if there is usage that has not been written.
    dirty: AtomicBool,
    storage: Mutex<BudgetStorage>,
    clock: Clock,
}

/// The usage of one budget at this node.
#[derive(Debug)]
struct BudgetAccount {
    usage: BudgetUsage,
    /// The parts of the limits that this node may use, if nodes share the budget.
    shares: Option<Box<LimitShares>>,
}

#[derive(Debug, Default)]
struct BudgetStorage {
    file: Option<BudgetsFile>,
    /// The time before which nothing is written.
    next_write: Option<Instant>,
}

/// The handling of an admitted request: counted or only checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetAction {
    /// It is not counted.
    Check,
    /// It is counted.
    Charge,
}

/// A daily budget that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetExhausted {
    /// The limit.
    pub kind: BudgetKind,
    /// The time until the end of the day.
    pub resets_in: Duration,
}

impl BudgetExhausted {
    fn new(kind: BudgetKind, now: Duration) -> Self {
        let ends = Duration::from_secs((now.as_secs() / DAY + 1) * DAY);
        Self {
            kind,
            resets_in: ends.saturating_sub(now),
        }
    }
}

impl BudgetTracker {
    /// Creates a tracker without usage.
    pub fn new(clock: Clock) -> Self {
        Self {
            accounts: ShardedMap::new(),
            grants: GrantBoard::default(),
            dirty: AtomicBool::new(false),
            storage: Mutex::default(),
            clock,
        }
    }

    /// Checks whether a request is within its limits, and counts it if `action` is to charge.
    ///
    /// # Errors
    /// If a limit is used up. Nothing is counted then.
    pub fn apply(
        &self,
        name: &str,
        limits: BudgetLimits,
        request: BudgetRequest,
        action: BudgetAction,
    ) -> Result<(), BudgetExhausted> {
        let now = unix_time(self.clock.wall_time());
        let day = now.as_secs() / DAY;
        let mut shard = self.accounts.lock_shard(name);
        let usage = &mut account_of_day(&mut shard, name, day).usage;
        if let Some(kind) = usage.exhausted_limit(limits, request) {
            return Err(BudgetExhausted::new(kind, now));
        }
        if action == BudgetAction::Charge {
            usage.record_request(limits, request);
            drop(shard);
            self.dirty.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Adds bytes of bodies.
    pub fn add_bytes(&self, name: &str, bytes: u64) {
        let day = unix_time(self.clock.wall_time()).as_secs() / DAY;
        let mut shard = self.accounts.lock_shard(name);
        let account = account_of_day(&mut shard, name, day);
        account.usage.bytes = account.usage.bytes.saturating_add(bytes);
        if let Some(shares) = &mut account.shares {
            shares.get_mut(BudgetKind::Bytes).use_amount(bytes);
        }
        drop(shard);
        self.dirty.store(true, Ordering::Relaxed);
    }

    /// Removes the usage before today.
    pub fn sweep(&self) {
        let day = unix_time(self.clock.wall_time()).as_secs() / DAY;
        for mut shard in self.accounts.lock_each() {
            shard.retain(|_, account| day <= account.usage.day);
            shrink_if_sparse(&mut shard);
        }
    }

    /// Loads today's usage from a file, and writes to that file from now on.
    ///
    /// # Errors
    /// If the file cannot be read. Nothing is loaded then.
    pub fn restore(&self, file: BudgetsFile) -> Result<(), UnreadableFile> {
        let day = unix_time(self.clock.wall_time()).as_secs() / DAY;
        for (name, usage) in file.read()?.0 {
            if usage.day == day {
                let account = BudgetAccount {
                    usage,
                    shares: None,
                };
                self.accounts.lock_shard(&name).insert(name, account);
            }
        }
        self.storage.lock().file = Some(file);
        Ok(())
    }

    /// Returns `true` if the file is due to be written.
    pub fn needs_write(&self) -> bool {
        self.dirty.load(Ordering::Relaxed)
            && self.storage.try_lock().is_some_and(|storage| {
                storage
                    .next_write
                    .is_none_or(|next| next <= self.clock.now())
            })
    }

    /// Writes the file. Blocks until it is on the disk.
    ///
    /// # Errors
    /// If the write fails. It is repeated later.
    pub fn persist(&self) -> std::io::Result<()> {
        let mut storage = self.storage.lock();
        if !self.dirty.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let began = self.clock.now();
        let result = storage
            .file
            .as_ref()
            .map_or(Ok(()), |file| file.write(&self.to_saved()));
        let duration = self.clock.now().saturating_duration_since(began);
        storage.next_write = self
            .clock
            .now()
            .checked_add(WRITE_INTERVAL.max(duration.saturating_mul(WRITE_TIME_DIVISOR)));
        if result.is_err() {
            self.dirty.store(true, Ordering::Relaxed);
        }
        result
    }

    /// Locks one shard after the other, so that no request waits for long.
    fn to_saved(&self) -> SavedBudgets {
        let mut all = Vec::new();
        for shard in self.accounts.lock_each() {
            #[allow(clippy::disallowed_methods, reason = "put in order below")]
            all.extend(
                shard
                    .iter()
                    .map(|(name, account)| (Arc::clone(name), account.usage.clone())),
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

/// Hashes a host.
pub fn host_number(host: &str) -> HostHash {
    let hash: [u8; 32] = Sha256::digest(host).into();
    let [a, b, c, d, e, f, g, h, ..] = hash;
    HostHash(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
}

fn account_of_day<'s>(
    shard: &'s mut MapShard<BudgetAccount>,
    name: &str,
    day: u64,
) -> &'s mut BudgetAccount {
    if !shard.contains_key(name) && shard.len() >= MAX_NAMES_PER_SHARD {
        make_room(shard, day);
    }
    let account = shard.entry(name.into()).or_insert_with(|| BudgetAccount {
        usage: BudgetUsage::for_day(day),
        shares: None,
    });
    if account.usage.day < day {
        account.usage.roll_over_to(day);
        account.shares = None;
    }
    account
}

/// Removes the usage of earlier days; if all is of today, the name with the least usage of a sample.
fn make_room(shard: &mut MapShard<BudgetAccount>, day: u64) {
    shard.retain(|_, account| day <= account.usage.day);
    if shard.len() < MAX_NAMES_PER_SHARD {
        return;
    }
    #[allow(clippy::disallowed_methods, reason = "any of them will do")]
    let least = shard
        .iter()
        .take(EVICTION_SAMPLE)
        .min_by_key(|(_, account)| (account.usage.urls, account.usage.bytes));
    if let Some(name) = least.map(|(name, _)| Arc::clone(name)) {
        shard.remove(&name);
    }
}

const _: () = assert!(MAX_NAMES_PER_SHARD * SHARD_COUNT == 262_144);
