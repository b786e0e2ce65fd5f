//! Work that takes milliseconds and cannot be divided into turns: it runs on threads that serve no
//! requests.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::available_parallelism;

use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// A kind of work. One kind does not wait behind another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LongWork {
    /// Decoding and rewriting documents.
    Documents,
    /// Reading and searching robots.txt, for which all requests to a host wait.
    Robots,
}

impl LongWork {
    /// Half of the processors, so that requests have the rest. Work of further tasks waits, in order.
    fn processors(self) -> &'static Semaphore {
        static DOCUMENTS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(processor_count()));
        static ROBOTS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(processor_count()));
        match self {
            Self::Documents => &DOCUMENTS,
            Self::Robots => &ROBOTS,
        }
    }
}

fn processor_count() -> usize {
    available_parallelism().map_or(1, |all| (all.get() / 2).max(1))
}

/// The count of [`ended_count`].
static ENDED: AtomicU64 = AtomicU64::new(0);

/// Returns the number of times that work has ended since the start of the process.
pub(crate) fn ended_count() -> u64 {
    ENDED.load(Ordering::Relaxed)
}

/// Runs work on the blocking pool. Returns `None` if it panicked, or the process is shutting down.
pub(crate) async fn run_long<T: Send + 'static>(
    kind: LongWork,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let permit = kind.processors().acquire().await.ok()?;
    let done = spawn_blocking(move || {
        let result = work();
        // Not earlier, even if nobody waits for the result any more.
        drop(permit);
        ENDED.fetch_add(1, Ordering::Relaxed);
        result
    });
    done.await.ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::SeqCst;

    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn a_few_run_at_a_time() {
        let running = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..20 {
            let running = Arc::clone(&running);
            tasks.spawn(run_long(LongWork::Documents, move || {
                let count = running.fetch_add(1, SeqCst) + 1;
                std::thread::yield_now();
                running.fetch_sub(1, SeqCst);
                count
            }));
        }
        while let Some(count) = tasks.join_next().await {
            assert!(count.unwrap().unwrap() <= processor_count());
        }
    }

    #[tokio::test]
    async fn work_that_panics_leaves_room_for_others() {
        for _ in 0..=processor_count() {
            let result: Option<()> = run_long(LongWork::Robots, || panic!("for the test")).await;
            assert_eq!(result, None);
        }
        assert_eq!(run_long(LongWork::Robots, || 7).await, Some(7));
    }
}
