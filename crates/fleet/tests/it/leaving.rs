//! A node that leaves, and one that hangs, as the others' tables show them.

use std::num::NonZeroU16;
use std::time::Duration;

use crawlgate_fleet::node::{BootTime, Epoch, Incarnation, Member, NodeName};
use crawlgate_fleet::ownership::table::{
    Generation, MemberRow, MemberState, PartitionRow, StoreAnswer, StoreCommand, Table,
};
use crawlgate_fleet::ownership::{Event, Output, Ownership, OwnershipSettings, Rules};
use crawlgate_fleet::partition::{FleetKey, Partition, Partitioner};
use crawlgate_fleet::view::Owner;

const LEASE: Duration = Duration::from_secs(10);
const RENEWAL: Duration = Duration::from_secs(2);
const OWN: Incarnation = Incarnation(1);
const OTHER: Incarnation = Incarnation(2);

fn member(node: &str, incarnation: Incarnation) -> Member {
    Member {
        node: NodeName::new(node).unwrap(),
        incarnation,
        address: "127.0.0.1:1".parse().unwrap(),
    }
}

/// The node `own`, and a store with the only other node `other` and one partition.
struct OwnershipBench {
    node: Ownership,
    now: BootTime,
    counter: u64,
    other: MemberRow,
    row: PartitionRow,
}

impl OwnershipBench {
    /// A node that has joined.
    fn joined() -> Self {
        let settings = OwnershipSettings {
            this: member("own", OWN),
            partitioner: Partitioner::new(FleetKey::new([1; 16]), NonZeroU16::MIN),
            lease: LEASE,
            batch: 64,
            rules: Rules::default(),
        };
        let mut bench = Self {
            node: Ownership::new(settings),
            now: BootTime(Duration::from_secs(1_000)),
            counter: 0,
            other: MemberRow {
                member: member("other", OTHER),
                counter: 1,
                state: MemberState::Active,
            },
            row: PartitionRow::default(),
        };
        let connected = Event::Connected {
            generation: Generation(1),
            spare: OWN,
        };
        bench.run(connected);
        bench
    }

    /// Feeds an event, answers all statements as the store does, and returns them.
    fn run(&mut self, event: Event) -> Vec<StoreCommand> {
        let mut sent = vec![];
        let mut outputs = self.node.handle(event, self.now);
        while let Some(at) = outputs.iter().position(|o| matches!(o, Output::Send(_))) {
            let Output::Send(command) = outputs.remove(at) else {
                unreachable!()
            };
            let answer = self.answer(&command);
            sent.push(command);
            outputs.extend(self.node.handle(Event::Answered(answer), self.now));
        }
        sent
    }

    fn answer(&mut self, command: &StoreCommand) -> StoreAnswer {
        match command {
            StoreCommand::Join => StoreAnswer::Joined,
            StoreCommand::Renew { draining } => {
                self.counter += 1;
                let state = match draining {
                    true => MemberState::Draining,
                    false => MemberState::Active,
                };
                let own = MemberRow {
                    member: member("own", OWN),
                    counter: self.counter,
                    state,
                };
                StoreAnswer::Renewed(Table {
                    generation: Generation(1),
                    counter: self.counter,
                    members: vec![own, self.other.clone()],
                    partitions: vec![self.row],
                })
            }
            StoreCommand::Take(claims) => {
                self.own(Some(OWN));
                StoreAnswer::Taken(vec![(claims[0].partition, self.row.epoch)])
            }
            StoreCommand::Release(_) => {
                self.own(None);
                StoreAnswer::Released
            }
            StoreCommand::Leave => StoreAnswer::Left,
        }
    }

    fn own(&mut self, owner: Option<Incarnation>) {
        let epoch = self.row.epoch.next();
        self.row = PartitionRow { owner, epoch };
    }

    /// Lets the time of a renewal pass, in which the other node renews its lease or does not.
    fn renew(&mut self, other_renews: bool) -> Vec<StoreCommand> {
        self.now = self.now.after(RENEWAL);
        self.other.counter += u64::from(other_renews);
        self.run(Event::Tick)
    }

    fn owner(&self) -> Owner {
        self.node.view().owner_of(Partition(0), self.now)
    }
}

/// A bench whose node owns the partition, or whose other node does.
fn owned_by(owner: Incarnation) -> OwnershipBench {
    let mut bench = OwnershipBench::joined();
    bench.own(Some(owner));
    if owner == OWN {
        // It takes the partition as one that it had owned before.
        bench.renew(true);
        assert!(matches!(bench.owner(), Owner::Here { .. }));
    } else {
        bench.renew(true);
        assert!(matches!(bench.owner(), Owner::Member { .. }));
    }
    bench
}

fn drained() -> OwnershipBench {
    let mut bench = owned_by(OWN);
    bench.run(Event::Drain);
    let sent = bench.run(Event::Quiesced(vec![Partition(0)]));
    assert!(
        matches!(sent.first(), Some(StoreCommand::Release(_))),
        "{sent:?}"
    );
    assert!(!sent.contains(&StoreCommand::Leave), "{sent:?}");
    bench
}

#[test]
fn a_node_leaves_once_its_partitions_have_other_owners() {
    let mut bench = drained();
    for _ in 0..3 {
        let sent = bench.renew(true);
        assert_eq!(sent, [StoreCommand::Renew { draining: true }]);
    }
    bench.own(Some(OTHER));
    let sent = bench.renew(true);
    assert_eq!(sent.last(), Some(&StoreCommand::Leave));
    // Requests that still arrive have somewhere to go.
    assert!(matches!(bench.owner(), Owner::Member { .. }));
}

#[test]
fn a_node_does_not_wait_for_others_that_are_silent_or_leave_too() {
    let mut bench = drained();
    let mut waited = 0;
    while !bench.renew(false).contains(&StoreCommand::Leave) {
        waited += 1;
    }
    assert!((4..=5).contains(&waited), "{waited}");
    let mut bench = drained();
    bench.other.state = MemberState::Draining;
    assert!(bench.renew(true).contains(&StoreCommand::Leave));
}

#[test]
fn nothing_is_sent_to_a_node_that_hangs() {
    let mut bench = owned_by(OTHER);
    let name = bench.other.member.node.clone();
    for _ in 0..4 {
        bench.renew(false);
        assert!(matches!(bench.owner(), Owner::Member { .. }));
        assert!(!bench.node.view().is_silent(&name));
    }
    let mut cut_off = bench.node.clone();
    bench.renew(false);
    assert!(bench.node.view().is_silent(&name));
    assert!(!matches!(bench.owner(), Owner::Member { .. }));
    // A node that has not read the table itself does not know.
    cut_off.handle(Event::Disconnected, bench.now);
    let later = bench.now.after(LEASE);
    cut_off.handle(Event::Tick, later);
    assert!(!cut_off.view().is_silent(&name));
    let owner = cut_off.view().owner_of(Partition(0), later);
    assert!(
        matches!(
            owner,
            Owner::Member {
                epoch: Epoch(1),
                ..
            }
        ),
        "{owner:?}"
    );
    // One that has left answers what it has received.
    bench.other.state = MemberState::Ended;
    bench.renew(false);
    assert!(!bench.node.view().is_silent(&name));
}
