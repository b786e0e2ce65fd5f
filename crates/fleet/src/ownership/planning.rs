//! The next statement of a node: renewals, releases, takes, and which partitions it gives to others.

use crate::node::{BootTime, Incarnation, NodeName};
use crate::partition::Partition;

use super::table::{Claim, ClaimReason, MemberRow, MemberState, PartitionRow, StoreCommand};
use super::{Membership, Output, Ownership};

impl Ownership {
    /// Sends the next statement, if none is under way.
    pub(super) fn send_next(&mut self, now: BootTime, outputs: &mut Vec<Output>) {
        if !self.is_connected || self.pending.is_some() {
            return;
        }
        if let Some(command) = self.next_command(now) {
            if let StoreCommand::Take(claims) = &command {
                self.claimed
                    .extend(claims.iter().map(|claim| claim.partition));
            }
            if let StoreCommand::Renew { .. } = &command {
                self.last_renewal = now;
                self.next_renewal = now.after(self.times.renewal);
            }
            self.pending = Some((command.clone(), now));
            outputs.push(Output::Send(command));
        }
    }

    fn next_command(&self, now: BootTime) -> Option<StoreCommand> {
        match self.membership {
            Membership::Over => return None,
            Membership::Outside => return Some(StoreCommand::Join),
            Membership::Joined => {}
        }
        if now >= self.next_renewal {
            return Some(StoreCommand::Renew {
                draining: self.is_draining,
            });
        }
        if !self.released.is_empty() {
            let rows = self.released.iter().take(self.batch);
            return Some(StoreCommand::Release(rows.map(|(p, e)| (*p, *e)).collect()));
        }
        if !self.is_draining {
            let claims = self.claims(now);
            return (!claims.is_empty()).then_some(StoreCommand::Take(claims));
        }
        let leftover = self.leftover_rows();
        if !leftover.is_empty() {
            return Some(StoreCommand::Release(leftover));
        }
        let is_done = self.holdings.is_empty() && self.table.is_some() && !self.has_heirs(now);
        is_done.then_some(StoreCommand::Leave)
    }

    /// Returns `true` if some partition has no owner yet, and another node will take it. A node that leaves waits for
    /// that: until then it has nobody to forward its requests to.
    fn has_heirs(&self, now: BootTime) -> bool {
        let mut others = self.living(now).map(|row| row.member.incarnation);
        others.any(|other| other != self.this.incarnation)
            && self.rows().any(|(_, row)| row.owner.is_none())
    }

    /// Rows that name this node, which does not hold them: its lease lapsed, or a take was answered too late.
    fn leftover_rows(&self) -> Vec<(Partition, crate::node::Epoch)> {
        self.rows()
            .filter(|(partition, row)| {
                row.owner == Some(self.this.incarnation) && !self.holdings.contains_key(partition)
            })
            .map(|(partition, row)| (partition, row.epoch))
            .take(self.batch)
            .collect()
    }

    /// The partitions to take now.
    fn claims(&self, now: BootTime) -> Vec<Claim> {
        if now < self.quarantine_end || (self.rules.take_with_lease && !self.has_lease(now)) {
            return vec![];
        }
        let living: Vec<&NodeName> = self.living(now).map(|row| &row.member.node).collect();
        // A node that joined after an owner fell silent waits longer for its partitions than the others.
        let watching: Vec<&NodeName> = self
            .living(now)
            .filter(|row| self.has_watched(row.member.incarnation, now))
            .map(|row| &row.member.node)
            .collect();
        let is_preferred = |partition, nodes: &[&NodeName]| {
            let preferred = self.partitioner.preferred(partition, nodes.iter().copied());
            preferred == Some(&self.this.node)
        };
        let claim = |(partition, row): (Partition, PartitionRow)| {
            if self.claimed.contains(&partition) || self.holdings.contains_key(&partition) {
                return None;
            }
            let (from, reason) = match row.owner {
                None => is_preferred(partition, &living).then_some((None, ClaimReason::Free))?,
                Some(owner) if owner == self.this.incarnation => {
                    let counter = self.watch.counter(owner)?;
                    (Some((owner, counter)), ClaimReason::Lapsed)
                }
                Some(owner) => {
                    let counter = self.watch.counter(owner)?;
                    let is_due =
                        self.may_take_from(owner, now) && is_preferred(partition, &watching);
                    is_due.then_some((Some((owner, counter)), ClaimReason::Silent))?
                }
            };
            Some(Claim {
                partition,
                epoch: row.epoch,
                from,
                reason,
            })
        };
        self.rows().filter_map(claim).take(self.batch).collect()
    }

    /// Returns `true` if the partitions of another node may be taken.
    fn may_take_from(&self, owner: Incarnation, now: BootTime) -> bool {
        let has_ended = self
            .member_row(owner)
            .is_some_and(|row| row.state == MemberState::Ended);
        self.is_silent(owner, now) || (has_ended && !self.rules.watch_ended)
    }

    /// Returns `true` if the counter of a node has not changed for the length of a lease.
    pub(super) fn is_silent(&self, incarnation: Incarnation, now: BootTime) -> bool {
        self.watch
            .unchanged_since(incarnation)
            .is_some_and(|since| now.since(since) >= self.times.silence)
    }

    /// Returns the next time at which a node with partitions counts as silent.
    pub(super) fn next_silence(&self, now: BootTime) -> Option<BootTime> {
        let members = self.table.iter().flat_map(|table| &table.members);
        members
            .filter(|row| row.member.incarnation != self.this.incarnation)
            .filter_map(|row| self.watch.unchanged_since(row.member.incarnation))
            .map(|since| since.after(self.times.silence))
            .filter(|silent| *silent > now)
            .min()
    }

    /// Begins to give partitions away: all of them when this node leaves, otherwise those that another node should own.
    pub(super) fn give_away(&mut self, now: BootTime, outputs: &mut Vec<Output>) {
        if !self.has_lease(now) || !(self.is_draining || self.view_changed) {
            return;
        }
        let given = self.holdings.values().filter(|held| held.is_given).count();
        let room = match self.is_draining {
            true => usize::MAX,
            false => self
                .batch
                .saturating_sub(given.saturating_add(self.released.len())),
        };
        let others: Vec<&NodeName> = self
            .living(now)
            .filter(|row| self.renews(row.member.incarnation))
            .map(|row| &row.member.node)
            .collect();
        // A host whose owner died has waited long enough: it is not given away again at once.
        let is_settled = |since: BootTime| now.since(since) >= self.times.silence;
        let belongs_elsewhere = |partition: Partition| {
            let preferred = self
                .partitioner
                .preferred(partition, others.iter().copied());
            preferred.is_some_and(|preferred| *preferred != self.this.node)
        };
        let partitions: Vec<Partition> = self
            .holdings
            .iter()
            .filter(|(_, holding)| !holding.is_given)
            .filter(|(_, holding)| self.is_draining || is_settled(holding.since))
            .map(|(partition, _)| *partition)
            .filter(|partition| self.is_draining || belongs_elsewhere(*partition))
            .take(room)
            .collect();
        if partitions.is_empty() {
            return;
        }
        for partition in &partitions {
            if let Some(holding) = self.holdings.get_mut(partition) {
                holding.is_given = true;
            }
        }
        self.view_changed = true;
        outputs.push(Output::Quiesce(partitions));
    }

    /// The active members that are not silent, this node among them.
    fn living(&self, now: BootTime) -> impl Iterator<Item = &MemberRow> {
        let members = self.table.iter().flat_map(|table| &table.members);
        members.filter(move |row| {
            row.state == MemberState::Active && self.is_living(row.member.incarnation, now)
        })
    }

    fn has_watched(&self, incarnation: Incarnation, now: BootTime) -> bool {
        incarnation == self.this.incarnation
            || self
                .watch
                .is_known_for(incarnation, self.times.silence, now)
    }

    fn renews(&self, incarnation: Incarnation) -> bool {
        incarnation == self.this.incarnation || self.watch.renews(incarnation)
    }

    fn member_row(&self, incarnation: Incarnation) -> Option<&MemberRow> {
        let mut members = self.table.iter().flat_map(|table| &table.members);
        members.find(|row| row.member.incarnation == incarnation)
    }

    fn rows(&self) -> impl Iterator<Item = (Partition, PartitionRow)> {
        let rows = self.table.iter().flat_map(|table| &table.partitions);
        (0..).map(Partition).zip(rows.copied())
    }
}
