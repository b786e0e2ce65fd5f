//! The state of hosts that change from one node of a fleet to another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::pacing::backoff::BackoffRecord;
use crate::store::PartitionOf;

use super::AdmissionQueue;

pub use crate::store::HostRecord;

/// The state of a partition of hosts for its next owner.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PartitionRecord {
    /// The time since this node took it over without knowing the requests before. Zero if hosts are missing below.
    pub since_takeover: Option<Duration>,
    /// The hosts whose state has an effect, by name.
    pub hosts: BTreeMap<Arc<str>, HostRecord>,
}

/// The changes of rests that other nodes do not know of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedRestRecords {
    /// The hosts that rest, or whose next rest will be longer.
    pub begun: BTreeMap<Arc<str>, BackoffRecord>,
    /// The other hosts.
    pub ended: Vec<Arc<str>>,
}

impl ChangedRestRecords {
    pub fn is_empty(&self) -> bool {
        self.begun.is_empty() && self.ended.is_empty()
    }

    /// Removes the hosts that `is_selected` accepts, and returns them.
    #[must_use]
    pub fn split_off(&mut self, is_selected: impl Fn(&str) -> bool) -> Self {
        let begun = std::mem::take(&mut self.begun).into_iter();
        let (selected, begun) = begun.partition(|(host, _)| is_selected(host));
        self.begun = begun;
        let ended = std::mem::take(&mut self.ended).into_iter();
        let (removed, ended) = ended.partition(|host| is_selected(host));
        self.ended = ended;
        Self {
            begun: selected,
            ended: removed,
        }
    }
}

impl AdmissionQueue {
    /// Shares the state of hosts with other nodes from now on. `partition_of` returns the partition of a host.
    pub fn enable_handover(&self, partition_of: PartitionOf) {
        self.store.enable_sharing(partition_of);
    }

    /// Takes hosts over from another node that has not handed them over: it may have sent requests until now. To be called
    /// before requests for them.
    pub fn take_over_unknown(&self, partition: u16) {
        self.store.set_takeover(partition, Some(self.clock.now()));
    }

    /// Takes hosts over as another node has handed them over. To be called before requests for them.
    pub fn take_over(&self, partition: u16, record: &PartitionRecord) {
        let now = self.clock.now();
        let until = record
            .since_takeover
            .and_then(|elapsed| now.checked_sub(elapsed));
        self.store.set_takeover(partition, until);
        for (name, host) in &record.hosts {
            self.store.restore_host(name, host, now);
        }
    }

    /// Lets hosts rest as their earlier owner has recorded it.
    pub fn restore_rests(&self, rests: &BTreeMap<Arc<str>, BackoffRecord>) {
        let now = self.clock.now();
        for (name, rest) in rests {
            let record = HostRecord {
                backoff: Some(*rest),
                ..HostRecord::default()
            };
            self.store.restore_host(name, &record, now);
        }
    }

    /// Returns the state of partitions for their next owners. It takes a while if there are many hosts, so it must not run
    /// on a thread that serves connections.
    pub fn partition_records(
        &self,
        partitions: impl IntoIterator<Item = u16>,
        partition_of: impl Fn(&str) -> u16,
    ) -> BTreeMap<u16, PartitionRecord> {
        let now = self.clock.now();
        let new_record = |partition| PartitionRecord {
            since_takeover: self
                .store
                .takeover(partition)
                .map(|until| now.saturating_duration_since(until)),
            hosts: BTreeMap::new(),
        };
        let mut records: BTreeMap<u16, PartitionRecord> = partitions
            .into_iter()
            .map(|partition| (partition, new_record(partition)))
            .collect();
        let mut found = vec![];
        self.store.for_each_host_record(
            now,
            // An address that is paced in addition to its hosts belongs to no partition.
            |name| !name.starts_with('@') && records.contains_key(&partition_of(name)),
            |name, record| found.push((Arc::clone(name), record)),
        );
        for (name, host) in found {
            if let Some(record) = records.get_mut(&partition_of(&name)) {
                record.hosts.insert(name, host);
            }
        }
        records
    }

    /// Returns the hosts whose rest has begun, ended or changed since the last call.
    pub fn take_changed_rests(&self) -> ChangedRestRecords {
        let now = self.clock.now();
        let mut changed = ChangedRestRecords::default();
        for name in self.store.take_changed_rests() {
            let record = self.store.backoff_record(&name, now);
            match record.filter(BackoffRecord::is_rest) {
                Some(record) => drop(changed.begun.insert(name, record)),
                None => changed.ended.push(name),
            }
        }
        changed
    }

    /// Returns changes to those of the next call, since they could not be shared.
    pub fn put_back_changed_rests(&self, changed: ChangedRestRecords) {
        let names = changed.begun.into_keys().chain(changed.ended);
        self.store.put_back_changed_rests(names.collect());
    }
}
