//! The days' budgets: what was spent for each host, domain, crawler or space that a policy limits, kept over a restart.
//!
//! Only requests that a budget covers come here. Names that no request has asked for since the day before are forgotten;
//! if there are too many of one day, those that have spent least go first. What is limited is said in
//! [`crate::politeness::budget`].

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::clock::Clock;
use crate::politeness::budget::Spent;
pub use crate::politeness::budget::{HostNumber, Limits, Novelty, Purse, Request};
use crate::store::budgets::{BudgetsFile, Saved, Unreadable};
use crate::store::shards::{SHARDS, Shard, Shards, shrink};

use super::schedules::since_1970;

/// The most names of one day, 262,144 in all.
const MOST_OF_SHARD: usize = 4_096;
/// Of so many names the one that has spent least makes room.
const LOOKED_AT: usize = 16;
/// The least time between two writes; a crash loses what was counted in it.
const EVERY: Duration = Duration::from_secs(5);
/// A write that takes long is made the more seldom: at most this part of the time is spent on them.
const SHARE: u32 = 50;
const DAY: u64 = 86_400;

/// What was spent.
pub struct Budgets {
    spent: Shards<Spent>,
    /// Whether something was counted that the disk has not.
    behind: AtomicBool,
    disk: Mutex<Disk>,
    clock: Clock,
}

#[derive(Debug, Default)]
struct Disk {
    file: Option<BudgetsFile>,
    /// Not before.
    next: Option<Instant>,
}

/// Whether a request that may go is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// It is only asked for.
    Ask,
    /// It goes.
    Spend,
}

/// A day's budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsedUp {
    /// Of what.
    pub purse: Purse,
    /// Until the day ends.
    pub left: Duration,
}

impl Budgets {
    /// Nothing was spent yet.
    pub fn new(clock: Clock) -> Self {
        Self {
            spent: Shards::new(),
            behind: AtomicBool::new(false),
            disk: Mutex::default(),
            clock,
        }
    }

    /// Whether a request may go; counted if it is to.
    ///
    /// # Errors
    /// If something is used up: nothing is counted then.
    pub fn ask(
        &self,
        name: &str,
        limits: Limits,
        request: Request,
        deed: Deed,
    ) -> Result<(), UsedUp> {
        let now = since_1970(self.clock.wall());
        let day = now.as_secs() / DAY;
        let mut shard = self.spent.of(name);
        let spent = of_today(&mut shard, name, day);
        if let Some(purse) = spent.over(limits, request) {
            let ends = Duration::from_secs((day + 1) * DAY);
            return Err(UsedUp {
                purse,
                left: ends.saturating_sub(now),
            });
        }
        if deed == Deed::Spend {
            spent.count(limits, request);
            drop(shard);
            self.behind.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// So many bytes of bodies have passed.
    pub fn passed(&self, name: &str, bytes: u64) {
        let day = since_1970(self.clock.wall()).as_secs() / DAY;
        let mut shard = self.spent.of(name);
        let spent = of_today(&mut shard, name, day);
        spent.bytes = spent.bytes.saturating_add(bytes);
        drop(shard);
        self.behind.store(true, Ordering::Relaxed);
    }

    /// Forgets what was spent before today.
    pub fn sweep(&self) {
        let day = since_1970(self.clock.wall()).as_secs() / DAY;
        for mut shard in self.spent.each() {
            shard.retain(|_, spent| day <= spent.day);
            shrink(&mut shard);
        }
    }

    /// Takes over what a file holds of today, and from now on keeps that file.
    ///
    /// # Errors
    /// If the file cannot be read: nothing is taken over then.
    pub fn restore(&self, file: BudgetsFile) -> Result<(), Unreadable> {
        let day = since_1970(self.clock.wall()).as_secs() / DAY;
        for (name, spent) in file.read()?.0 {
            if spent.day == day {
                self.spent.of(&name).insert(name, spent);
            }
        }
        self.disk
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .file = Some(file);
        Ok(())
    }

    /// Whether the file has to be written, and may be by now.
    pub fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Relaxed)
            && self
                .disk
                .try_lock()
                .is_ok_and(|disk| disk.next.is_none_or(|next| next <= self.clock.now()))
    }

    /// Writes the file. Blocks until it is on the disk.
    ///
    /// # Errors
    /// If that fails; it is tried again.
    pub fn keep(&self) -> std::io::Result<()> {
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.behind.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let began = self.clock.now();
        let written = disk
            .file
            .as_ref()
            .map_or(Ok(()), |file| file.write(&self.saved()));
        let took = self.clock.now().saturating_duration_since(began);
        disk.next = self
            .clock
            .now()
            .checked_add(EVERY.max(took.saturating_mul(SHARE)));
        if written.is_err() {
            self.behind.store(true, Ordering::Relaxed);
        }
        written
    }

    /// One shard after the other, so that none waits for long.
    fn saved(&self) -> Saved {
        let mut all = Vec::new();
        for shard in self.spent.each() {
            #[allow(clippy::disallowed_methods, reason = "put in order below")]
            all.extend(
                shard
                    .iter()
                    .map(|(name, spent)| (Arc::clone(name), spent.clone())),
            );
        }
        all.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        Saved(all)
    }
}

impl fmt::Debug for Budgets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Budgets")
    }
}

/// A host as a number.
pub fn number(host: &str) -> HostNumber {
    let hash: [u8; 32] = Sha256::digest(host).into();
    let [a, b, c, d, e, f, g, h, ..] = hash;
    HostNumber(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
}

fn of_today<'s>(shard: &'s mut Shard<Spent>, name: &str, day: u64) -> &'s mut Spent {
    if !shard.contains_key(name) && shard.len() >= MOST_OF_SHARD {
        make_room(shard, day);
    }
    let spent = shard.entry(name.into()).or_insert_with(|| Spent::on(day));
    spent.turn(day);
    spent
}

/// Forgets the days before; if there is nothing of them, the name that has spent least of some.
fn make_room(shard: &mut Shard<Spent>, day: u64) {
    shard.retain(|_, spent| day <= spent.day);
    if shard.len() < MOST_OF_SHARD {
        return;
    }
    #[allow(clippy::disallowed_methods, reason = "any of them will do")]
    let least = shard
        .iter()
        .take(LOOKED_AT)
        .min_by_key(|(_, spent)| (spent.urls, spent.bytes));
    if let Some(name) = least.map(|(name, _)| Arc::clone(name)) {
        shard.remove(&name);
    }
}

const _: () = assert!(MOST_OF_SHARD * SHARDS == 262_144);
