//! The queue of passwords to check: few hashes at once, in memory that is reused, and room for each source, so that no
//! source shuts another one out.
//!
//! One of the two slots is reserved for sources that have nothing else in the queue and no recent wrong password. A
//! flood of wrong passwords therefore delays a crawler that comes for the first time by one hash, and only other first
//! attempts compete with it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::password::{HashMemory, PasswordHash, PasswordMatch};
use super::source_table::SourceTable;

/// The maximum number of checks of one source that wait or run.
const MAX_PER_SOURCE: usize = 64;
/// The longest wait for a slot; a client gives up soon after.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The slots in which hashes are computed, and the sources that wait for them.
#[derive(Debug)]
pub(super) struct HashQueue {
    /// One slot for first attempts, and one for any. Each occupies a core.
    first_attempts: Arc<Semaphore>,
    any: Arc<Semaphore>,
    /// The memory of the slots that are free.
    memory: Arc<Mutex<Vec<HashMemory>>>,
    waiting: SourceTable<AtomicUsize>,
}

/// A place in the queue, which is freed when it is dropped.
#[derive(Debug)]
pub(super) struct QueuePlace<'q> {
    waiting: &'q AtomicUsize,
    /// `true` if the source had no other place.
    pub(super) is_only: bool,
}

/// The slots that a check may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HashPriority {
    /// Both: the source has nothing else in the queue, and no recent wrong password.
    FirstAttempt,
    /// The slot that is for all.
    Normal,
}

/// A slot, in which one hash may be computed.
#[derive(Debug)]
pub(super) struct HashSlot {
    permit: OwnedSemaphorePermit,
    memory: Arc<Mutex<Vec<HashMemory>>>,
}

impl HashQueue {
    pub(super) fn new() -> Self {
        Self {
            first_attempts: Arc::new(Semaphore::new(1)),
            any: Arc::new(Semaphore::new(1)),
            memory: Arc::default(),
            waiting: SourceTable::new(),
        }
    }

    /// Takes a place for a source; `None` if it has too many.
    pub(super) fn enter(&self, source: IpAddr) -> Option<QueuePlace<'_>> {
        let waiting = self.waiting.get(source)?;
        let before = waiting
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
                (count < MAX_PER_SOURCE).then_some(count + 1)
            })
            .ok()?;
        Some(QueuePlace {
            waiting,
            is_only: before == 0,
        })
    }

    /// Waits for a slot; `None` if none was free in time.
    pub(super) async fn wait_slot(&self, priority: HashPriority) -> Option<HashSlot> {
        let any = Arc::clone(&self.any).acquire_owned();
        let slot = async {
            match priority {
                HashPriority::Normal => any.await,
                HashPriority::FirstAttempt => tokio::select! {
                    permit = Arc::clone(&self.first_attempts).acquire_owned() => permit,
                    permit = any => permit,
                },
            }
        };
        let permit = tokio::time::timeout(MAX_WAIT, slot).await.ok()?.ok()?;
        Some(HashSlot {
            permit,
            memory: Arc::clone(&self.memory),
        })
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl HashSlot {
    /// Compares a password with a hash on the blocking pool. A client that leaves does not stop it, and the slot stays
    /// taken until it is done. `None` if the system has no memory, or the process is shutting down.
    pub(super) async fn verify(
        self,
        hash: PasswordHash,
        password: String,
    ) -> Option<PasswordMatch> {
        let computed = tokio::task::spawn_blocking(move || {
            let mut memory = self.memory.lock().pop().unwrap_or_default();
            let outcome = hash.verify(&password, &mut memory);
            self.memory.lock().push(memory);
            drop(self.permit);
            outcome
        });
        computed.await.ok().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn each_source_has_room_of_its_own() {
        let queue = HashQueue::new();
        let mut places: Vec<QueuePlace<'_>> = (0..MAX_PER_SOURCE)
            .map(|_| queue.enter(source(1)).unwrap())
            .collect();
        assert!(places[0].is_only && !places[1].is_only);
        assert!(queue.enter(source(1)).is_none());
        assert!(queue.enter(source(2)).unwrap().is_only);
        places.pop();
        assert!(queue.enter(source(1)).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn first_attempts_have_a_slot_of_their_own() {
        let queue = HashQueue::new();
        let slow = queue.wait_slot(HashPriority::Normal).await.unwrap();
        assert!(queue.wait_slot(HashPriority::Normal).await.is_none());
        let first = queue.wait_slot(HashPriority::FirstAttempt).await.unwrap();
        assert!(queue.wait_slot(HashPriority::FirstAttempt).await.is_none());
        drop(slow);
        assert!(queue.wait_slot(HashPriority::FirstAttempt).await.is_some());
        drop(first);
    }

    #[tokio::test]
    async fn memory_is_reused() {
        let queue = HashQueue::new();
        let hash = PasswordHash::parse(&PasswordHash::generate("s3cret").unwrap()).unwrap();
        for n in 0..10 {
            let priority = [HashPriority::Normal, HashPriority::FirstAttempt][n % 2];
            let slot = queue.wait_slot(priority).await.unwrap();
            let outcome = slot.verify(hash.clone(), format!("guess {n}")).await;
            assert_eq!(outcome, Some(PasswordMatch::Mismatch));
            assert_eq!(queue.memory.lock().len(), 1, "{n}");
        }
    }
}
