//! Nodes, clocks, connections and faults on one time line.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::BinaryHeap;
use std::time::Duration;

use crawlgate_fleet::node::{BootTime, Epoch, Incarnation, Member, NodeName};
use crawlgate_fleet::ownership::table::{Generation, StoreAnswer, StoreCommand};
use crawlgate_fleet::ownership::{Event, LeaseTimes, Output, Ownership, OwnershipSettings, Rules};
use crawlgate_fleet::partition::{FleetKey, Partition, Partitioner};
use crawlgate_fleet::view::{Holder, Owner, OwnershipView};
use fastrand::Rng;

use super::store::{SimulatedStore, StatementRules, StatementStep};

/// Microseconds of true time.
pub(super) type TrueMicros = u64;
/// `fleet.lease`. All other times follow from it.
pub(super) const LEASE: TrueMicros = 1_000_000;
/// `store.timeout` by its default, 2 s of 15.
const TIMEOUT: TrueMicros = LEASE * 2 / 15;
/// A time-out that does not guard the watch.
const LONG_TIMEOUT: TrueMicros = LEASE * 2 / 3;

/// The rules in force: those of nodes, of statements, and of the code around them.
#[derive(Clone, Copy, Debug)]
pub(super) struct FleetRules {
    pub(super) node: Rules,
    pub(super) statement: StatementRules,
    /// Ownership is asked again before a head is written.
    pub(super) ask_again: bool,
    /// Requests that are under way at the end of a lease are broken off.
    pub(super) break_off: bool,
    /// `fleet forget` waits until the counter has stood still for a lease.
    pub(super) forget_waits: bool,
    /// A statement has a short time-out.
    pub(super) short_timeout: bool,
}

impl Default for FleetRules {
    fn default() -> Self {
        Self {
            node: Rules::default(),
            statement: StatementRules::default(),
            ask_again: true,
            break_off: true,
            forget_waits: true,
            short_timeout: true,
        }
    }
}

/// A change of the world that no node decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    Crash(usize),
    Start(usize),
    Pause(usize, TrueMicros),
    /// Cuts the directions to and from the store.
    Cut {
        node: usize,
        to_store: bool,
        to_node: bool,
    },
    Heal(usize),
    StoreStop,
    StoreStart,
    StoreFreeze(TrueMicros),
    /// The copy that was made last replaces the store, which is stopped.
    Restore,
    Copy,
    Drain(usize),
    /// The operator forgets the node.
    Forget(usize),
    /// A second process with the node's name and directory, on a file system whose locks do not hold.
    Twin(usize),
}

#[derive(Clone, Debug)]
enum Happening {
    Fault(Fault),
    ForgetNow(Incarnation, u64),
    Connect(usize, u64),
    Connected(usize, u64, u64, Generation),
    Arrive(StoreMessage),
    Read(StoreMessage, u64),
    Deliver(StoreMessage, StoreAnswer),
    Timeout(usize, u64, u64),
    Tick(usize, u64),
    Quiesced(usize, u64, Vec<Partition>),
    BreakOff(usize, u64, Vec<Partition>),
    Head(usize, u64, Partition, Epoch),
    Finished(usize, u64, Partition, Epoch),
}

#[derive(Clone, Debug)]
struct StoreMessage {
    node: usize,
    process: u64,
    connection: u64,
    number: u64,
    this: Member,
    generation: Generation,
    command: StoreCommand,
}

#[derive(Debug)]
struct SimulatedNode {
    member: Member,
    ppm: i64,
    offset: TrueMicros,
    process: u64,
    machine: Option<Ownership>,
    view: OwnershipView,
    connection: Option<(u64, Generation)>,
    next_tick: TrueMicros,
    paused_until: TrueMicros,
    cut_to_store: bool,
    cut_to_node: bool,
}

impl SimulatedNode {
    fn local(&self, now: TrueMicros) -> BootTime {
        let skew =
            now as i64 / 1_000_000 * self.ppm + now as i64 % 1_000_000 * self.ppm / 1_000_000;
        BootTime(Duration::from_micros(
            (now as i64 + self.offset as i64 + skew) as u64,
        ))
    }

    /// The true time at which the node's clock shows a time; never earlier.
    fn until(&self, local: BootTime, now: TrueMicros) -> TrueMicros {
        let left = local.since(self.local(now)).as_micros() as i64;
        now + (left - left * self.ppm / 1_000_000) as u64 + 2
    }
}

/// A head that was written to an origin, until its response has ended.
#[derive(Debug)]
struct HeadUnderWay {
    node: usize,
    process: u64,
    partition: Partition,
    epoch: Epoch,
}

/// The world.
pub(super) struct FleetWorld {
    pub(super) now: TrueMicros,
    pub(super) rng: Rng,
    rules: FleetRules,
    pub(super) partitioner: Partitioner,
    batch: usize,
    nodes: Vec<SimulatedNode>,
    store: SimulatedStore,
    copy: Option<SimulatedStore>,
    store_is_up: bool,
    store_frozen_until: TrueMicros,
    next_number: u64,
    queue: BinaryHeap<Reverse<(TrueMicros, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    under_way: Vec<HeadUnderWay>,
    newest_head: BTreeMap<Partition, Epoch>,
    /// The longest time of a message.
    slow: TrueMicros,
    /// Messages of closed connections may arrive this much later.
    late: TrueMicros,
    /// The first violation.
    pub(super) violation: Option<String>,
    pub(super) heads: u64,
    /// `CRAWLGATE_FLEET_TRACE` is set: everything that happens is printed.
    is_traced: bool,
}

impl FleetWorld {
    pub(super) fn new(seed: u64, nodes: usize, partitions: u16, rules: FleetRules) -> Self {
        let mut rng = Rng::with_seed(seed);
        let key = FleetKey::new(std::array::from_fn(|_| rng.u8(..)));
        let partitioner = Partitioner::new(key, partitions.try_into().unwrap());
        let mut world = Self {
            now: 0,
            rng,
            rules,
            partitioner,
            batch: 8,
            nodes: vec![],
            store: SimulatedStore::found(partitions, rules.statement),
            copy: None,
            store_is_up: true,
            store_frozen_until: 0,
            next_number: 1,
            queue: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            under_way: vec![],
            newest_head: BTreeMap::new(),
            slow: LEASE / 50,
            late: 0,
            violation: None,
            heads: 0,
            is_traced: std::env::var_os("CRAWLGATE_FLEET_TRACE").is_some(),
        };
        for index in 0..nodes {
            world.add_node(&format!("n{index}"));
        }
        world
    }

    /// Lets messages be slow and late, as an adversary would.
    pub(super) fn make_adversarial(&mut self) {
        self.slow = LEASE;
        self.late = 3 * LEASE;
    }

    pub(super) fn schedule(&mut self, at: TrueMicros, fault: Fault) {
        self.push(at, Happening::Fault(fault));
    }

    /// Runs until a time or the first violation.
    pub(super) fn run(&mut self, until: TrueMicros) {
        while let Some(Reverse((at, number))) = self.queue.peek().copied() {
            if at > until || self.violation.is_some() {
                break;
            }
            self.queue.pop();
            self.now = self.now.max(at);
            if let Some(happening) = self.happenings.remove(&number) {
                if self.is_traced {
                    eprintln!("{:9} {happening:?}", self.now);
                }
                self.happen(happening);
            }
        }
        self.now = self.now.max(until);
    }

    /// Returns `true` if a node that runs owns the partition.
    pub(super) fn is_owned(&self, partition: Partition) -> bool {
        let serves = |node: &SimulatedNode| {
            node.machine.is_some()
                && node.paused_until <= self.now
                && is_here(node.view.owner_of(partition, node.local(self.now)))
        };
        self.nodes.iter().any(serves)
    }

    pub(super) fn owned_by(&self, index: usize) -> usize {
        let node = &self.nodes[index];
        let holders = node.view.holders();
        let held = holders.filter(|(_, holder)| matches!(holder, Holder::Here(_)));
        if node.machine.is_some() {
            held.count()
        } else {
            0
        }
    }

    pub(super) fn is_running(&self, index: usize) -> bool {
        self.nodes[index].machine.is_some()
    }

    fn add_node(&mut self, name: &str) -> usize {
        let index = self.nodes.len();
        self.nodes.push(SimulatedNode {
            member: Member {
                node: NodeName::new(name).unwrap(),
                incarnation: Incarnation(0),
                address: ([10, 0, 0, index as u8], 3130).into(),
            },
            // Two clocks differ by at most 2 %.
            ppm: self.rng.i64(-10_000..=10_000),
            offset: self.rng.u64(LEASE..100 * LEASE),
            process: 0,
            machine: None,
            view: OwnershipView::empty(self.partitioner),
            connection: None,
            next_tick: 0,
            paused_until: 0,
            cut_to_store: false,
            cut_to_node: false,
        });
        index
    }

    fn push(&mut self, at: TrueMicros, happening: Happening) {
        let number = self.number();
        self.happenings.insert(number, happening);
        // Of two things at the same time, either may come first.
        let jitter = self.rng.u64(0..4);
        self.queue
            .push(Reverse((at.max(self.now) + jitter, number)));
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn timeout(&self) -> TrueMicros {
        match self.rules.short_timeout {
            true => TIMEOUT,
            false => LONG_TIMEOUT,
        }
    }

    fn delay(&mut self) -> TrueMicros {
        let slow = self.slow;
        let timeout = self.timeout();
        match self.rng.u8(0..20) {
            0 => self.rng.u64(0..=slow),
            1..4 => self.rng.u64(0..=slow.min(timeout)),
            _ => self.rng.u64(0..=LEASE / 100),
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Fault(fault) => self.apply(fault),
            Happening::ForgetNow(incarnation, counter) => {
                if self.store_is_up && self.store.counter(incarnation) == Some(counter) {
                    self.store.end(incarnation);
                }
            }
            Happening::Connect(node, process) => self.connect(node, process),
            Happening::Connected(node, process, connection, generation) => {
                let is_open = self.store_is_up && generation == self.store.generation;
                if !is_open || self.is_cut(node) {
                    return self.retry_connect(node, process);
                }
                let spare = Incarnation(self.rng.u64(1..u64::MAX));
                let event = Event::Connected { generation, spare };
                if self.is_deferred(
                    node,
                    Happening::Connected(node, process, connection, generation),
                ) {
                    return;
                }
                if self.nodes[node].process == process && self.nodes[node].machine.is_some() {
                    self.nodes[node].connection = Some((connection, generation));
                    self.feed(node, event);
                }
            }
            Happening::Arrive(message) => self.arrive(message),
            Happening::Read(message, counter) => {
                if !self.store_is_up {
                    return;
                }
                let table = self.store.read(counter);
                self.reply(message, StoreAnswer::Renewed(table));
            }
            Happening::Deliver(message, answer) => {
                let node = message.node;
                let connection = Some((message.connection, message.generation));
                if self.nodes[node].process != message.process
                    || self.nodes[node].connection != connection
                    || self.is_deferred(node, Happening::Deliver(message.clone(), answer.clone()))
                {
                    return;
                }
                // The statement's time-out is not for the next one.
                self.happenings.remove(&message.number);
                self.feed(node, Event::Answered(answer));
            }
            Happening::Timeout(node, process, connection) => {
                let current = self.nodes[node].connection.map(|(number, _)| number);
                if self.nodes[node].process == process
                    && current == Some(connection)
                    && !self.is_deferred(node, Happening::Timeout(node, process, connection))
                {
                    self.disconnect(node);
                }
            }
            Happening::Tick(node, process) => {
                if self.nodes[node].process == process
                    && self.nodes[node].machine.is_some()
                    && !self.is_deferred(node, Happening::Tick(node, process))
                {
                    self.nodes[node].next_tick = 0;
                    self.feed(node, Event::Tick);
                }
            }
            Happening::Quiesced(node, process, partitions) => {
                if self.nodes[node].process == process
                    && !self
                        .is_deferred(node, Happening::Quiesced(node, process, partitions.clone()))
                {
                    // What remains counts as a slot of the successor.
                    self.under_way
                        .retain(|head| head.node != node || !partitions.contains(&head.partition));
                    self.feed(node, Event::Quiesced(partitions));
                }
            }
            Happening::BreakOff(node, process, partitions) => {
                if self.nodes[node].process == process
                    && !self
                        .is_deferred(node, Happening::BreakOff(node, process, partitions.clone()))
                {
                    self.break_off(node, &partitions);
                }
            }
            Happening::Head(node, process, partition, epoch) => {
                if self.nodes[node].process == process
                    && self.nodes[node].machine.is_some()
                    && !self.is_deferred(node, Happening::Head(node, process, partition, epoch))
                {
                    self.write_head(node, partition, epoch);
                }
            }
            Happening::Finished(node, process, partition, epoch) => self.under_way.retain(|head| {
                (head.node, head.process, head.partition, head.epoch)
                    != (node, process, partition, epoch)
            }),
        }
    }

    /// Puts off what a paused node does, in any order after its pause.
    fn is_deferred(&mut self, node: usize, happening: Happening) -> bool {
        let until = self.nodes[node].paused_until;
        let is_paused = until > self.now;
        if is_paused {
            self.push(until + 1, happening);
        }
        is_paused
    }

    fn is_cut(&self, node: usize) -> bool {
        self.nodes[node].cut_to_store || self.nodes[node].cut_to_node
    }

    fn connect(&mut self, node: usize, process: u64) {
        if self.nodes[node].process != process || self.nodes[node].machine.is_none() {
            return;
        }
        if !self.store_is_up || self.is_cut(node) || self.store_frozen_until > self.now {
            return self.retry_connect(node, process);
        }
        let connection = self.number();
        let delay = self.rng.u64(0..=LEASE / 50);
        let generation = self.store.generation;
        let connected = Happening::Connected(node, process, connection, generation);
        self.push(self.now + delay, connected);
    }

    fn retry_connect(&mut self, node: usize, process: u64) {
        let pause = self.rng.u64(LEASE / 200..=LEASE / 20);
        self.push(self.now + pause, Happening::Connect(node, process));
    }

    fn disconnect(&mut self, node: usize) {
        if self.nodes[node].connection.take().is_some() {
            self.feed(node, Event::Disconnected);
            let process = self.nodes[node].process;
            self.retry_connect(node, process);
        }
    }

    fn arrive(&mut self, message: StoreMessage) {
        if !self.store_is_up {
            return;
        }
        if self.store_frozen_until > self.now {
            let until = self.store_frozen_until;
            return self.push(until, Happening::Arrive(message));
        }
        let early = self.store.clone();
        let step = self
            .store
            .carry_out(&message.this, message.generation, &message.command);
        match step {
            StatementStep::Answer(answer) => self.reply(message, answer),
            StatementStep::Read(counter) if self.rules.statement.read_after_raise => {
                let gap = self.rng.u64(0..=LEASE / 100);
                self.push(self.now + gap, Happening::Read(message, counter));
            }
            StatementStep::Read(counter) => {
                self.reply(message, StoreAnswer::Renewed(early.read(counter)))
            }
        }
    }

    fn reply(&mut self, message: StoreMessage, answer: StoreAnswer) {
        if self.nodes[message.node].cut_to_node {
            return;
        }
        let delay = self.delay();
        self.push(self.now + delay, Happening::Deliver(message, answer));
    }

    fn feed(&mut self, index: usize, event: Event) {
        let now = self.now;
        let node = &mut self.nodes[index];
        let local = node.local(now);
        let Some(machine) = &mut node.machine else {
            return;
        };
        let outputs = machine.handle(event, local);
        if self.is_traced {
            eprintln!("          node {index} at {local:?}: {outputs:?}");
        }
        if let Some(view) = machine.take_view() {
            node.view = view;
        }
        for output in outputs {
            self.carry_out(index, output);
        }
        self.set_timer(index);
        self.check_owners(index);
        self.begin_requests(index);
    }

    fn carry_out(&mut self, index: usize, output: Output) {
        let process = self.nodes[index].process;
        match output {
            Output::Send(command) => self.send(index, command),
            Output::Quiesce(partitions) => {
                let delay = self.rng.u64(0..=LEASE * 2 / 3);
                let quiesced = Happening::Quiesced(index, process, partitions);
                self.push(self.now + delay, quiesced);
            }
            Output::Reconnect => {
                self.nodes[index].connection = None;
                self.retry_connect(index, process);
            }
            Output::Lapsed { end, partitions } => {
                if self.rules.break_off {
                    let times = LeaseTimes::new(Duration::from_micros(LEASE));
                    let due = end.after(times.break_off);
                    if due <= self.nodes[index].local(self.now) {
                        return self.break_off(index, &partitions);
                    }
                    let at = self.nodes[index].until(due, self.now);
                    let number = self.number();
                    let broken = Happening::BreakOff(index, process, partitions);
                    self.happenings.insert(number, broken);
                    self.queue.push(Reverse((at, number)));
                }
            }
            Output::Replaced | Output::Left => self.stop(index),
        }
    }

    fn send(&mut self, index: usize, command: StoreCommand) {
        let Some((connection, generation)) = self.nodes[index].connection else {
            return;
        };
        let process = self.nodes[index].process;
        let this = self.nodes[index].machine.as_ref().unwrap().this().clone();
        // The number under which the time-out is scheduled, so that an answer can remove it.
        let number = self.number();
        self.happenings
            .insert(number, Happening::Timeout(index, process, connection));
        self.queue
            .push(Reverse((self.now + self.timeout(), number)));
        let message = StoreMessage {
            node: index,
            process,
            connection,
            number,
            this,
            generation,
            command,
        };
        if self.nodes[index].cut_to_store {
            // Lost, or on its way for longer than the cut.
            if self.late > 0 && self.rng.bool() {
                let delay = self.rng.u64(0..=self.late);
                self.push(self.now + delay, Happening::Arrive(message));
            }
            return;
        }
        let delay = self.delay();
        self.push(self.now + delay, Happening::Arrive(message));
    }

    fn set_timer(&mut self, index: usize) {
        let node = &self.nodes[index];
        let Some(machine) = &node.machine else {
            return;
        };
        let Some(deadline) = machine.deadline(node.local(self.now)) else {
            return;
        };
        let at = node.until(deadline, self.now);
        if node.next_tick == 0 || at < node.next_tick {
            let process = node.process;
            self.nodes[index].next_tick = at;
            self.push(at, Happening::Tick(index, process));
        }
    }

    fn check_owners(&mut self, index: usize) {
        for partition in self.partitioner.all() {
            let here = |node: &SimulatedNode| {
                node.machine.is_some()
                    && is_here(node.view.owner_of(partition, node.local(self.now)))
            };
            if !here(&self.nodes[index]) {
                continue;
            }
            let other = (0..self.nodes.len()).find(|i| *i != index && here(&self.nodes[*i]));
            if let Some(other) = other {
                self.violate(format!(
                    "{partition:?} has two owners: nodes {other} and {index}"
                ));
            }
        }
    }

    fn begin_requests(&mut self, index: usize) {
        let node = &self.nodes[index];
        if node.machine.is_none() || !self.rng.u8(..).is_multiple_of(2) {
            return;
        }
        let partition = Partition(self.rng.u16(0..self.partitioner.count()));
        let node = &self.nodes[index];
        if let Owner::Here { epoch } = node.view.owner_of(partition, node.local(self.now)) {
            // It waits for its turn, and is written later.
            let wait = self.rng.u64(0..=LEASE * 3 / 2);
            let head = Happening::Head(index, node.process, partition, epoch);
            self.push(self.now + wait, head);
        }
    }

    fn write_head(&mut self, index: usize, partition: Partition, epoch: Epoch) {
        let node = &self.nodes[index];
        let is_owner = node.view.is_owner(partition, epoch, node.local(self.now));
        if self.rules.ask_again && !is_owner {
            return;
        }
        self.heads += 1;
        let newest = self.newest_head.entry(partition).or_default();
        if *newest > epoch {
            let text = format!("node {index} writes to {partition:?} after a later owner has");
            return self.violate(text);
        }
        *newest = epoch;
        // A machine that stands still breaks nothing off; the rules do not cover it.
        let overlaps = self.under_way.iter().any(|head| {
            head.partition == partition
                && head.node != index
                && self.nodes[head.node].paused_until <= self.now
        });
        if overlaps {
            let text = format!("{partition:?} has requests of two nodes under way, now of {index}");
            return self.violate(text);
        }
        let process = self.nodes[index].process;
        self.under_way.push(HeadUnderWay {
            node: index,
            process,
            partition,
            epoch,
        });
        let length = self.rng.u64(0..=LEASE * 2);
        self.push(
            self.now + length,
            Happening::Finished(index, process, partition, epoch),
        );
    }

    /// Breaks off what a node has under way, unless it has taken the partition again.
    fn break_off(&mut self, index: usize, partitions: &[Partition]) {
        let node = &self.nodes[index];
        let now = node.local(self.now);
        let is_ended = |head: &HeadUnderWay| {
            partitions.contains(&head.partition)
                && !is_here(node.view.owner_of(head.partition, now))
        };
        self.under_way
            .retain(|head| head.node != index || !is_ended(head));
    }

    fn violate(&mut self, text: String) {
        let now = self.now as f64 / LEASE as f64;
        self.violation
            .get_or_insert(format!("at {now:.3} leases: {text}"));
    }

    fn stop(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.machine = None;
        node.connection = None;
        node.next_tick = 0;
        node.view = OwnershipView::empty(self.partitioner);
        // The kernel closes the connections of a process.
        self.under_way.retain(|head| head.node != index);
    }

    fn start(&mut self, index: usize) {
        if self.nodes[index].machine.is_some() {
            return;
        }
        let settings = OwnershipSettings {
            this: self.nodes[index].member.clone(),
            partitioner: self.partitioner,
            lease: Duration::from_micros(LEASE),
            batch: self.batch,
            rules: self.rules.node,
        };
        let process = self.number();
        let node = &mut self.nodes[index];
        node.machine = Some(Ownership::new(settings));
        node.process = process;
        node.paused_until = 0;
        self.push(self.now, Happening::Connect(index, process));
    }

    fn apply(&mut self, fault: Fault) {
        match fault {
            Fault::Crash(node) => self.stop(node),
            Fault::Start(node) => self.start(node),
            Fault::Pause(node, length) => self.nodes[node].paused_until = self.now + length,
            Fault::Cut {
                node,
                to_store,
                to_node,
            } => {
                self.nodes[node].cut_to_store = to_store;
                self.nodes[node].cut_to_node = to_node;
            }
            Fault::Heal(node) => {
                self.nodes[node].cut_to_store = false;
                self.nodes[node].cut_to_node = false;
            }
            Fault::StoreStop => {
                self.store_is_up = false;
                for node in 0..self.nodes.len() {
                    // Reset connections are noticed at once, unless the node is cut off or paused.
                    if let Some((connection, _)) = self.nodes[node].connection
                        && !self.nodes[node].cut_to_node
                    {
                        let process = self.nodes[node].process;
                        let delay = self.rng.u64(0..=LEASE / 100);
                        let reset = Happening::Timeout(node, process, connection);
                        self.push(self.now + delay, reset);
                    }
                }
            }
            Fault::StoreStart => self.store_is_up = true,
            Fault::StoreFreeze(length) => self.store_frozen_until = self.now + length,
            Fault::Copy => self.copy = Some(self.store.clone()),
            Fault::Restore => {
                if let Some(copy) = self.copy.take() {
                    let generation = Generation(self.rng.u64(2..));
                    self.store = copy.restored(generation);
                }
            }
            Fault::Drain(node) => {
                if self.nodes[node].paused_until <= self.now {
                    self.feed(node, Event::Drain);
                }
            }
            Fault::Forget(node) => {
                let member = self.nodes[node].member.clone();
                if self.store_is_up
                    && let Some(incarnation) = self.store.current(&member)
                    && let Some(counter) = self.store.counter(incarnation)
                {
                    let wait = if self.rules.forget_waits { LEASE } else { 0 };
                    self.push(self.now + wait, Happening::ForgetNow(incarnation, counter));
                }
            }
            Fault::Twin(node) => {
                let name = self.nodes[node].member.node.to_string();
                let twin = self.add_node(&name);
                self.start(twin);
            }
        }
    }
}

fn is_here(owner: Owner) -> bool {
    matches!(owner, Owner::Here { .. })
}
