//! The store of the simulation: what the SQL of the proxy does, one statement at a time.

use std::collections::BTreeMap;

use crawlgate_fleet::node::{Epoch, Incarnation, Member, NodeName};
use crawlgate_fleet::ownership::table::{
    Claim, Generation, MemberRow, MemberState, PartitionRow, StoreAnswer, StoreCommand, Table,
};
use crawlgate_fleet::partition::Partition;

/// The conditions of the statements, each of which a test can leave out.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatementRules {
    pub(super) take_checks_counter: bool,
    pub(super) take_checks_epoch: bool,
    pub(super) take_checks_member: bool,
    pub(super) read_after_raise: bool,
    pub(super) checks_generation: bool,
    pub(super) restored_rows_have_owners: bool,
}

impl Default for StatementRules {
    fn default() -> Self {
        Self {
            take_checks_counter: true,
            take_checks_epoch: true,
            take_checks_member: true,
            read_after_raise: true,
            checks_generation: true,
            restored_rows_have_owners: true,
        }
    }
}

#[derive(Clone, Debug)]
struct StoredMember {
    row: MemberRow,
    was_replaced: bool,
}

/// The tables.
#[derive(Clone, Debug)]
pub(super) struct SimulatedStore {
    pub(super) generation: Generation,
    members: BTreeMap<Incarnation, StoredMember>,
    partitions: Vec<PartitionRow>,
    pub(super) rules: StatementRules,
}

/// The result of the first step of a statement.
pub(super) enum StatementStep {
    Answer(StoreAnswer),
    /// A renewal that has raised the counter, and reads the tables next.
    Read(u64),
}

impl SimulatedStore {
    pub(super) fn found(partitions: u16, rules: StatementRules) -> Self {
        Self {
            generation: Generation(1),
            members: BTreeMap::new(),
            partitions: vec![PartitionRow::default(); usize::from(partitions)],
            rules,
        }
    }

    /// Does to a copy what `crawlgate fleet found --restored` does. A partition without an owner in the copy may have one now,
    /// so it gets an owner that is watched like any.
    pub(super) fn restored(mut self, generation: Generation) -> Self {
        self.generation = generation;
        let unknown = Incarnation(generation.0);
        for row in &mut self.partitions {
            row.epoch = Epoch(row.epoch.0 + (1 << 32));
            if self.rules.restored_rows_have_owners {
                row.owner = row.owner.or(Some(unknown));
            }
        }
        let row = MemberRow {
            member: Member {
                node: NodeName::new("unknown").unwrap(),
                incarnation: unknown,
                address: ([0, 0, 0, 0], 0).into(),
            },
            counter: 0,
            state: MemberState::Ended,
        };
        let was_replaced = false;
        self.members
            .insert(unknown, StoredMember { row, was_replaced });
        self
    }

    pub(super) fn counter(&self, incarnation: Incarnation) -> Option<u64> {
        self.members
            .get(&incarnation)
            .map(|member| member.row.counter)
    }

    /// The newest incarnation of a node.
    pub(super) fn current(&self, this: &Member) -> Option<Incarnation> {
        let rows = self.members.values().map(|member| &member.row);
        rows.filter(|row| row.member.node == this.node && row.state != MemberState::Ended)
            .map(|row| row.member.incarnation)
            .next()
    }

    pub(super) fn end(&mut self, incarnation: Incarnation) {
        if let Some(member) = self.members.get_mut(&incarnation) {
            member.row.state = MemberState::Ended;
        }
    }

    pub(super) fn carry_out(
        &mut self,
        this: &Member,
        generation: Generation,
        command: &StoreCommand,
    ) -> StatementStep {
        if self.rules.checks_generation && self.generation != generation {
            return StatementStep::Answer(StoreAnswer::OtherGeneration);
        }
        let incarnation = this.incarnation;
        let answer = match command {
            StoreCommand::Join => {
                self.join(this);
                StoreAnswer::Joined
            }
            StoreCommand::Renew { draining } => match self.active(incarnation) {
                Ok(row) => {
                    row.counter += 1;
                    row.state = match draining {
                        true => MemberState::Draining,
                        false => MemberState::Active,
                    };
                    return StatementStep::Read(row.counter);
                }
                Err(answer) => answer,
            },
            StoreCommand::Take(claims) => StoreAnswer::Taken(self.take(incarnation, claims)),
            StoreCommand::Release(rows) => {
                for (partition, epoch) in rows {
                    let row = &mut self.partitions[usize::from(partition.0)];
                    if row.owner == Some(incarnation) && row.epoch == *epoch {
                        *row = PartitionRow {
                            owner: None,
                            epoch: epoch.next(),
                        };
                    }
                }
                StoreAnswer::Released
            }
            StoreCommand::Leave => {
                self.end(incarnation);
                StoreAnswer::Left
            }
        };
        StatementStep::Answer(answer)
    }

    pub(super) fn read(&self, counter: u64) -> Table {
        Table {
            generation: self.generation,
            counter,
            members: self
                .members
                .values()
                .map(|member| member.row.clone())
                .collect(),
            partitions: self.partitions.clone(),
        }
    }

    fn join(&mut self, this: &Member) {
        for member in self.members.values_mut() {
            if member.row.member.node == this.node && member.row.state != MemberState::Ended {
                member.row.state = MemberState::Ended;
                member.was_replaced = true;
            }
        }
        let owners: Vec<Incarnation> = self.partitions.iter().filter_map(|row| row.owner).collect();
        self.members.retain(|incarnation, member| {
            member.row.state != MemberState::Ended || owners.contains(incarnation)
        });
        let row = MemberRow {
            member: this.clone(),
            counter: 0,
            state: MemberState::Active,
        };
        let member = StoredMember {
            row,
            was_replaced: false,
        };
        self.members.insert(this.incarnation, member);
    }

    fn active(&mut self, incarnation: Incarnation) -> Result<&mut MemberRow, StoreAnswer> {
        match self.members.get_mut(&incarnation) {
            Some(member) if member.row.state != MemberState::Ended => Ok(&mut member.row),
            Some(member) if member.was_replaced => Err(StoreAnswer::Replaced),
            _ => Err(StoreAnswer::NotMember),
        }
    }

    fn take(&mut self, incarnation: Incarnation, claims: &[Claim]) -> Vec<(Partition, Epoch)> {
        if self.rules.take_checks_member && self.active(incarnation).is_err() {
            return vec![];
        }
        let mut taken = vec![];
        for claim in claims {
            let counter = claim.from.and_then(|(owner, _)| self.counter(owner));
            let row = &mut self.partitions[usize::from(claim.partition.0)];
            let epoch_is_same =
                row.epoch == claim.epoch && row.owner == claim.from.map(|(owner, _)| owner);
            let counter_is_same = counter == claim.from.map(|(_, counter)| counter);
            if (epoch_is_same || !self.rules.take_checks_epoch)
                && (counter_is_same || !self.rules.take_checks_counter)
            {
                *row = PartitionRow {
                    owner: Some(incarnation),
                    epoch: row.epoch.next(),
                };
                taken.push((claim.partition, row.epoch));
            }
        }
        taken
    }
}
