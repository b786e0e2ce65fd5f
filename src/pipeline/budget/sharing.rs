//! Budgets that the nodes of a fleet share: a node uses only what the account in the store has granted to it.
//!
//! A request that finds no room waits until the account has answered. What was granted and not used is lost with the
//! process, so that the limit is never exceeded.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::pacing::budget::share::{LimitShare, ShareRoom};
use crate::pipeline::schedules::unix_time;

use super::{
    BudgetAction, BudgetExhausted, BudgetKind, BudgetLimits, BudgetRequest, BudgetTracker, DAY,
    account_of_day,
};

/// The result of charging a request to a budget, or of the check whether that is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetCharge {
    Done,
    /// The node has no share left, and must ask the fleet's database first.
    MustWait,
}

/// An amount that this node wants to use of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRequest {
    /// The name that the usage is counted under.
    pub budget: Arc<str>,
    pub kind: BudgetKind,
    /// The day, counted from 1970.
    pub day: u64,
    pub limit: u64,
    pub amount: u64,
}

/// The shares of one budget.
#[derive(Debug, Default)]
pub(super) struct LimitShares {
    urls: LimitShare,
    new_urls: LimitShare,
    bytes: LimitShare,
    hosts: LimitShare,
}

impl LimitShares {
    pub(super) fn get_mut(&mut self, kind: BudgetKind) -> &mut LimitShare {
        match kind {
            BudgetKind::Urls => &mut self.urls,
            BudgetKind::NewUrls => &mut self.new_urls,
            BudgetKind::Bytes => &mut self.bytes,
            BudgetKind::Hosts => &mut self.hosts,
        }
    }
}

/// The budgets that wait for the account, and those that wait for its answers.
#[derive(Debug, Default)]
pub(super) struct GrantBoard {
    is_on: AtomicBool,
    waiting: Mutex<BTreeSet<Arc<str>>>,
    wanted: Notify,
    answers: watch::Sender<()>,
}

const KINDS: [BudgetKind; 4] = [
    BudgetKind::Urls,
    BudgetKind::NewUrls,
    BudgetKind::Bytes,
    BudgetKind::Hosts,
];

impl BudgetTracker {
    /// Shares budgets with other nodes from now on.
    pub fn enable_sharing(&self) {
        self.grants.is_on.store(true, Ordering::Release);
    }

    /// Returns `true` at a node of a fleet.
    pub fn is_shared(&self) -> bool {
        self.grants.is_on.load(Ordering::Acquire)
    }

    /// Checks whether a request is within the limits of a shared budget, and counts it if `action` is to charge.
    ///
    /// # Errors
    /// If a limit is used up. Nothing is counted then.
    pub fn apply_shared(
        &self,
        name: &str,
        limits: BudgetLimits,
        request: BudgetRequest,
        action: BudgetAction,
    ) -> Result<BudgetCharge, BudgetExhausted> {
        let now = unix_time(self.clock.wall_time());
        let mut shard = self.accounts.lock_shard(name);
        let account = account_of_day(&mut shard, name, now.as_secs() / DAY);
        let shares = account.shares.get_or_insert_default();
        let mut charge = BudgetCharge::Done;
        for (kind, limit, _) in account.usage.applicable_limits(limits, request) {
            let share = shares.get_mut(kind);
            match share.room(limit) {
                ShareRoom::Free => {}
                ShareRoom::Exhausted => return Err(BudgetExhausted::new(kind, now)),
                ShareRoom::Unknown => {
                    share.wait(limit);
                    charge = BudgetCharge::MustWait;
                }
            }
        }
        if charge == BudgetCharge::MustWait {
            drop(shard);
            self.grants.waiting.lock().insert(name.into());
            self.grants.wanted.notify_one();
        } else if action == BudgetAction::Charge {
            for (kind, _, amount) in account.usage.applicable_limits(limits, request) {
                shares.get_mut(kind).use_amount(amount);
            }
            account.usage.record_request(limits, request);
            drop(shard);
            self.dirty.store(true, Ordering::Relaxed);
        }
        Ok(charge)
    }

    /// Waits until a request waits for the account.
    pub async fn grant_wanted(&self) {
        self.grants.wanted.notified().await;
    }

    /// Returns the amounts that requests wait for.
    pub fn wanted_grants(&self) -> Vec<GrantRequest> {
        // Taken before the shares are read: a request that begins to wait meanwhile adds its name again.
        let names = std::mem::take(&mut *self.grants.waiting.lock());
        let mut requests = vec![];
        for name in names {
            let before = requests.len();
            let mut shard = self.accounts.lock_shard(&name);
            if let Some(account) = shard.get_mut(&*name)
                && let Some(shares) = &mut account.shares
            {
                let day = account.usage.day;
                requests.extend(KINDS.into_iter().filter_map(|kind| {
                    let (limit, amount) = shares.get_mut(kind).wanted()?;
                    let budget = Arc::clone(&name);
                    Some(GrantRequest {
                        budget,
                        kind,
                        day,
                        limit,
                        amount,
                    })
                }));
            }
            drop(shard);
            if before < requests.len() {
                // Until the account has answered.
                self.grants.waiting.lock().insert(name);
            }
        }
        requests
    }

    /// Adds what the account has granted. The requests that wait try again.
    pub fn grant(&self, request: &GrantRequest, amount: u64) {
        let mut shard = self.accounts.lock_shard(&request.budget);
        if let Some(account) = shard.get_mut(&*request.budget)
            && account.usage.day == request.day
            && let Some(shares) = &mut account.shares
        {
            shares.get_mut(request.kind).grant(request.limit, amount);
        }
        drop(shard);
        self.grants.answers.send_replace(());
    }

    /// Subscribes to the answers of the account.
    pub fn subscribe_grants(&self) -> watch::Receiver<()> {
        self.grants.answers.subscribe()
    }
}
