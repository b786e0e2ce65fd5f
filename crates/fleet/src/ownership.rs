//! The state machine that decides which partitions this node owns.
//!
//! The store is the authority. [`Ownership::handle`] takes an event and a time, and returns statements for the store.
//! At most one statement is under way: the caller answers it with [`Event::Answered`], or closes the connection and
//! reports [`Event::Disconnected`], whether or not the store has carried it out.
//!
//! Two nodes never own a partition at the same time, since a node stops 0.8 × lease after it *sent* its last renewal,
//! and others take its partitions 1.0 × lease after they *received* the counter of that renewal, if the store still
//! has the same counter and epoch then. [`Rules`] lists what this needs.

mod planning;
mod rules;
pub mod table;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::node::{BootTime, Epoch, Incarnation, Member};
use crate::partition::{Partition, Partitioner};
use crate::view::{Holder, OwnershipView};

pub use rules::{LeaseTimes, Rules};
use table::{
    Claim, ClaimReason, Generation, MemberRow, MemberState, StoreAnswer, StoreCommand, Table,
};
use watch::CounterWatch;

/// The largest number of partitions in one statement, and of those that a node gives away at a time.
pub const BATCH: usize = 64;

/// The fixed properties of this node.
#[derive(Clone, Debug)]
pub struct OwnershipSettings {
    /// This node. Its incarnation is that of this process, until the node must join again.
    pub this: Member,
    /// The partitions of the fleet.
    pub partitioner: Partitioner,
    /// `fleet.lease`.
    pub lease: Duration,
    /// [`BATCH`]; fewer in tests with few partitions.
    pub batch: usize,
    /// All rules, but in tests.
    pub rules: Rules,
}

/// An event for the state machine.
#[derive(Clone, Debug)]
pub enum Event {
    /// A connection to the store was opened and checked.
    Connected {
        /// The generation of the store.
        generation: Generation,
        /// A new random number, in case this node must join as a new member.
        spare: Incarnation,
    },
    /// The connection is closed. The statement that was under way may have been carried out.
    Disconnected,
    /// The statement that was under way has an answer.
    Answered(StoreAnswer),
    /// Nothing is under way any more at the origins of these partitions, as [`Output::Quiesce`] has asked.
    Quiesced(Vec<Partition>),
    /// The table has probably changed. It is read again soon, but not ten times as often as for renewals.
    Refresh,
    /// This node is to give everything away, and then to leave.
    Drain,
    /// A deadline has passed.
    Tick,
}

/// An effect for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A statement for the store.
    Send(StoreCommand),
    /// No request of these partitions starts any more. The caller lets those under way end for a time that it decides,
    /// then reports [`Event::Quiesced`].
    Quiesce(Vec<Partition>),
    /// This node must join as a new member: the connection is closed, and another one opened.
    Reconnect,
    /// The lease has ended, and with it the ownership of these partitions. What is under way at their origins must be
    /// broken off [`LeaseTimes::break_off`] after the end, before other nodes may take them.
    Lapsed {
        /// The end of the lease.
        end: BootTime,
        /// Those that this node owned.
        partitions: Vec<Partition>,
    },
    /// Another process has joined under the name of this node. This one never owns anything again.
    Replaced,
    /// This node has given everything away and is no member any more.
    Left,
}

/// A partition of this node.
#[derive(Clone, Copy, Debug)]
struct Holding {
    epoch: Epoch,
    since: BootTime,
    is_given: bool,
}

/// The membership of this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Membership {
    /// It must join.
    Outside,
    /// It is a member.
    Joined,
    /// It left, or another process took its name.
    Over,
}

/// The numbers of partitions that were taken, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Takeovers {
    /// Partitions without an owner.
    pub free: u64,
    /// Partitions that this node had owned until its lease lapsed.
    pub lapsed: u64,
    /// Partitions of nodes that were silent.
    pub silent: u64,
}

/// The state machine of one node.
#[derive(Clone, Debug)]
pub struct Ownership {
    this: Member,
    partitioner: Partitioner,
    times: LeaseTimes,
    batch: usize,
    rules: Rules,
    membership: Membership,
    is_draining: bool,
    is_connected: bool,
    generation: Option<Generation>,
    /// Before this time nothing is taken.
    quarantine_end: BootTime,
    /// The statement under way, and when it was sent.
    pending: Option<(StoreCommand, BootTime)>,
    last_renewal: BootTime,
    next_renewal: BootTime,
    lease_end: Option<BootTime>,
    /// The own counter as the store has last answered it.
    acknowledged: u64,
    holdings: BTreeMap<Partition, Holding>,
    /// Partitions that were dropped, and whose rows are to be updated.
    released: BTreeMap<Partition, Epoch>,
    /// The table of the last renewal, with what this node has changed since.
    table: Option<Table>,
    /// The time at which that table was received.
    table_since: BootTime,
    /// The claims since the last renewal, which are not repeated before the next one.
    claimed: BTreeSet<Partition>,
    watch: CounterWatch,
    takeovers: Takeovers,
    view_changed: bool,
}

impl Ownership {
    /// A node that has not joined yet.
    pub fn new(settings: OwnershipSettings) -> Self {
        Self {
            this: settings.this,
            partitioner: settings.partitioner,
            times: LeaseTimes::with_rules(settings.lease, &settings.rules),
            batch: settings.batch,
            rules: settings.rules,
            membership: Membership::Outside,
            is_draining: false,
            is_connected: false,
            generation: None,
            quarantine_end: BootTime::default(),
            pending: None,
            last_renewal: BootTime::default(),
            next_renewal: BootTime::default(),
            lease_end: None,
            acknowledged: 0,
            holdings: BTreeMap::new(),
            released: BTreeMap::new(),
            table: None,
            table_since: BootTime::default(),
            claimed: BTreeSet::new(),
            watch: CounterWatch::default(),
            takeovers: Takeovers::default(),
            view_changed: true,
        }
    }

    /// This node; its incarnation changes when it must join again.
    pub fn this(&self) -> &Member {
        &self.this
    }

    /// Returns `true` if this node is a member.
    pub fn is_member(&self) -> bool {
        self.membership == Membership::Joined
    }

    /// The generation of the store, as this node has last seen it.
    pub fn generation(&self) -> Generation {
        self.generation.unwrap_or_default()
    }

    /// The table of the last renewal, with what this node has changed since.
    pub fn table(&self) -> Option<&Table> {
        self.table.as_ref()
    }

    /// The epoch of this node's ownership of a partition, which it may be giving away.
    pub fn epoch(&self, partition: Partition) -> Option<Epoch> {
        self.holdings.get(&partition).map(|holding| holding.epoch)
    }

    /// The numbers of partitions that this node has taken.
    pub fn takeovers(&self) -> Takeovers {
        self.takeovers
    }

    /// Returns `true` if a member has not been silent for the length of a lease, as far as this node has seen.
    pub fn is_living(&self, incarnation: Incarnation, now: BootTime) -> bool {
        incarnation == self.this.incarnation || !self.is_silent(incarnation, now)
    }

    /// Returns the time since which a member has not renewed its lease, as far as this node has seen.
    pub fn unchanged_since(&self, incarnation: Incarnation) -> Option<BootTime> {
        self.watch.unchanged_since(incarnation)
    }

    /// Takes an event, and returns what is to be done.
    pub fn handle(&mut self, event: Event, now: BootTime) -> Vec<Output> {
        let mut outputs = vec![];
        // Before anything else: an answer that arrives after the end of the lease must not find it alive.
        if self.rules.lapse_drops {
            self.check_lapse(now, &mut outputs);
        }
        self.apply(event, now, &mut outputs);
        self.check_lapse(now, &mut outputs);
        self.give_away(now, &mut outputs);
        self.send_next(now, &mut outputs);
        outputs
    }

    /// Returns the time at which an [`Event::Tick`] is due, if no other event comes first.
    pub fn deadline(&self, now: BootTime) -> Option<BootTime> {
        let is_idle =
            self.is_connected && self.pending.is_none() && self.membership != Membership::Over;
        let renewal = is_idle.then_some(self.next_renewal);
        let takeover = is_idle.then(|| self.next_silence(now)).flatten();
        let quarantine = (is_idle && self.quarantine_end > now).then_some(self.quarantine_end);
        [self.lease_end, renewal, takeover, quarantine]
            .into_iter()
            .flatten()
            .min()
    }

    /// Returns the view for requests if it has changed since the last call.
    pub fn take_view(&mut self) -> Option<OwnershipView> {
        std::mem::take(&mut self.view_changed).then(|| self.view())
    }

    /// Returns the view for requests. It sends nothing to a member whose counter had not changed for the length of a lease
    /// when the table was read: it may hang, and its partitions will have other owners. A node that cannot read the table
    /// goes on with the owners that it knows.
    pub fn view(&self) -> OwnershipView {
        let rows = self.table.iter().flat_map(|table| &table.members);
        let (living, silent): (Vec<&MemberRow>, Vec<&MemberRow>) = rows
            .filter(|row| row.state != MemberState::Ended)
            .partition(|row| self.is_living(row.member.incarnation, self.table_since));
        let members: Arc<[Member]> = living.iter().map(|row| row.member.clone()).collect();
        let silent = silent.iter().map(|row| row.member.node.clone()).collect();
        let positions: BTreeMap<Incarnation, u16> = members
            .iter()
            .map(|member| member.incarnation)
            .zip(0..)
            .collect();
        let holder = |partition: Partition| {
            if let Some(holding) = self.holdings.get(&partition) {
                return match holding.is_given && self.rules.drop_before_release {
                    true => Holder::Nobody,
                    false => Holder::Here(holding.epoch),
                };
            }
            let row = self.row(partition);
            match row.owner.filter(|owner| *owner != self.this.incarnation) {
                Some(owner) => positions.get(&owner).map_or(Holder::Nobody, |position| {
                    Holder::Member(*position, row.epoch)
                }),
                None => Holder::Nobody,
            }
        };
        let holders = self.partitioner.all().map(holder).collect();
        OwnershipView::new(self.partitioner, holders, members, self.lease_end).with_silent(silent)
    }

    fn apply(&mut self, event: Event, now: BootTime, outputs: &mut Vec<Output>) {
        match event {
            Event::Connected { generation, spare } => {
                self.is_connected = true;
                self.pending = None;
                self.next_renewal = now;
                if self.rules.watch_one_connection {
                    self.watch.clear();
                }
                if self.generation.is_some_and(|known| known != generation) {
                    self.enter_other_store(now, outputs);
                }
                self.generation = Some(generation);
                if self.membership == Membership::Outside {
                    self.this.incarnation = spare;
                }
            }
            Event::Disconnected => {
                self.is_connected = false;
                self.pending = None;
            }
            Event::Answered(answer) => {
                if let Some((command, sent)) = self.pending.take() {
                    self.read_answer(command, sent, answer, now, outputs);
                }
            }
            Event::Quiesced(partitions) => self.release(&partitions),
            Event::Refresh => {
                let soon = self.last_renewal.after(self.times.renewal / 10).max(now);
                self.next_renewal = self.next_renewal.min(soon);
            }
            Event::Drain => {
                self.is_draining = true;
                self.next_renewal = now;
                if self.membership == Membership::Outside {
                    self.membership = Membership::Over;
                    outputs.push(Output::Left);
                }
            }
            Event::Tick => {}
        }
    }

    fn read_answer(
        &mut self,
        command: StoreCommand,
        sent: BootTime,
        answer: StoreAnswer,
        now: BootTime,
        outputs: &mut Vec<Output>,
    ) {
        match answer {
            StoreAnswer::Joined => {
                self.membership = Membership::Joined;
                self.acknowledged = 0;
                self.next_renewal = now;
            }
            StoreAnswer::Renewed(table) => self.read_table(table, sent, now, outputs),
            StoreAnswer::Taken(taken) => {
                if let StoreCommand::Take(claims) = command {
                    self.hold(&claims, &taken, sent, now);
                }
            }
            StoreAnswer::Released => {
                if let StoreCommand::Release(rows) = command {
                    for (partition, epoch) in rows {
                        self.forget_release(partition, epoch);
                    }
                }
            }
            StoreAnswer::Left => {
                self.membership = Membership::Over;
                outputs.push(Output::Left);
            }
            StoreAnswer::Replaced => {
                self.lapse(now, outputs);
                self.membership = Membership::Over;
                outputs.push(Output::Replaced);
            }
            StoreAnswer::NotMember => {
                self.lapse(now, outputs);
                self.rejoin();
                self.reconnect(outputs);
            }
            StoreAnswer::OtherGeneration => {
                // The next connection says which one.
                self.enter_other_store(now, outputs);
                self.reconnect(outputs);
            }
        }
    }

    fn read_table(
        &mut self,
        table: Table,
        sent: BootTime,
        now: BootTime,
        outputs: &mut Vec<Output>,
    ) {
        let has_lost_renewals =
            self.rules.counter_never_falls && table.counter <= self.acknowledged;
        let is_other = self.generation != Some(table.generation);
        self.generation = Some(table.generation);
        if has_lost_renewals || is_other {
            self.enter_other_store(now, outputs);
            return self.reconnect(outputs);
        }
        self.acknowledged = table.counter;
        let seen = if self.rules.watch_from_receipt {
            now
        } else {
            sent
        };
        self.watch.record(&table.members, seen);
        if self.rules.drop_lost {
            let this = self.this.incarnation;
            self.holdings.retain(|partition, holding| {
                let row = table.partitions.get(usize::from(partition.0));
                row.is_some_and(|row| row.owner == Some(this) && row.epoch == holding.epoch)
            });
        }
        self.table = Some(table);
        self.table_since = seen;
        self.claimed.clear();
        let begin = if self.rules.lease_from_sending {
            sent
        } else {
            now
        };
        let end = begin.after(self.times.valid);
        if end > now {
            self.lease_end = self.lease_end.max(Some(end));
        }
        self.view_changed = true;
    }

    /// Holds the partitions that a take has brought.
    fn hold(
        &mut self,
        claims: &[Claim],
        taken: &[(Partition, Epoch)],
        sent: BootTime,
        now: BootTime,
    ) {
        if self.rules.take_in_time && now.since(sent) >= self.times.valid {
            return;
        }
        if self.rules.take_with_lease && !self.has_lease(now) {
            return;
        }
        let this = self.this.incarnation;
        for (partition, epoch) in taken {
            let Some(claim) = claims.iter().find(|claim| claim.partition == *partition) else {
                continue;
            };
            let count = match claim.reason {
                ClaimReason::Free => &mut self.takeovers.free,
                ClaimReason::Lapsed => &mut self.takeovers.lapsed,
                ClaimReason::Silent => &mut self.takeovers.silent,
            };
            *count = count.saturating_add(1);
            self.set_row(*partition, Some(this), *epoch);
            let holding = Holding {
                epoch: *epoch,
                since: now,
                is_given: false,
            };
            self.holdings.insert(*partition, holding);
        }
        self.view_changed = true;
    }

    /// Records that nothing is under way any more in partitions that are given away.
    fn release(&mut self, partitions: &[Partition]) {
        for partition in partitions {
            let Some(holding) = self.holdings.get(partition).filter(|held| held.is_given) else {
                continue;
            };
            self.released.insert(*partition, holding.epoch);
            if self.rules.drop_before_release {
                self.holdings.remove(partition);
            }
        }
        self.view_changed = true;
    }

    fn forget_release(&mut self, partition: Partition, epoch: Epoch) {
        self.released.remove(&partition);
        self.holdings.remove(&partition);
        if self.row(partition).epoch == epoch {
            self.set_row(partition, None, epoch.next());
        }
        self.view_changed = true;
    }

    fn check_lapse(&mut self, now: BootTime, outputs: &mut Vec<Output>) {
        if self.lease_end.is_some_and(|end| end <= now) {
            self.lapse(now, outputs);
        }
    }

    /// Ends the lease: only takes bring partitions back.
    fn lapse(&mut self, now: BootTime, outputs: &mut Vec<Output>) {
        if let Some(end) = self.lease_end.take() {
            // The rows of those that are being released may still name this node: another one may take them without
            // what this one knows.
            let owned = self.holdings.keys().chain(self.released.keys());
            outputs.push(Output::Lapsed {
                end: end.min(now),
                partitions: owned.copied().collect(),
            });
        }
        if self.rules.lapse_drops {
            self.holdings.clear();
        }
        // The rows still name this node, which takes or releases them when it has a lease again.
        self.released.clear();
        self.view_changed = true;
    }

    /// Ends the lease at a store that has forgotten, and joins it as a new member.
    fn enter_other_store(&mut self, now: BootTime, outputs: &mut Vec<Output>) {
        if self.rules.generation_ends_lease {
            self.lapse(now, outputs);
        }
        if self.rules.generation_quarantine {
            self.quarantine_end = now.after(self.times.quarantine);
        }
        self.rejoin();
    }

    fn reconnect(&mut self, outputs: &mut Vec<Output>) {
        self.is_connected = false;
        outputs.push(Output::Reconnect);
    }

    /// Forgets the membership. Each connection brings the number of the next one.
    fn rejoin(&mut self) {
        if self.membership == Membership::Joined {
            self.membership = Membership::Outside;
        }
        self.table = None;
        self.watch.clear();
        self.claimed.clear();
    }

    fn has_lease(&self, now: BootTime) -> bool {
        self.lease_end.is_some_and(|end| now < end)
    }

    fn row(&self, partition: Partition) -> table::PartitionRow {
        let rows = self.table.as_ref().map(|table| &table.partitions);
        rows.and_then(|rows| rows.get(usize::from(partition.0)))
            .copied()
            .unwrap_or_default()
    }

    fn set_row(&mut self, partition: Partition, owner: Option<Incarnation>, epoch: Epoch) {
        let rows = self.table.as_mut().map(|table| &mut table.partitions);
        if let Some(row) = rows.and_then(|rows| rows.get_mut(usize::from(partition.0))) {
            *row = table::PartitionRow { owner, epoch };
        }
    }
}
