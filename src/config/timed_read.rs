//! Reading from disks that may hang.
//!
//! A file system whose server is gone (NFS, FUSE) blocks the thread that reads from it, perhaps for ever, and nothing
//! can interrupt that thread. A running proxy therefore reads on threads that it can leave behind.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// The time limit of one operation.
pub const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest file that is read: the size that a list may have.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// The most threads that read, or that were left behind.
const MAX_THREADS: usize = 16;
/// The most of them for polls of files, so that some are left for a reload.
const MAX_POLL_THREADS: usize = MAX_THREADS / 2;

/// The number of such threads in this process.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// The reason why an operation has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadTimeoutError {
    #[error("the disk did not answer within {READ_TIMEOUT:?}")]
    TimedOut,
    #[error("the disk has not answered {MAX_THREADS} earlier attempts, so it is not read again")]
    TooManyThreads,
    #[error("reading failed because of a bug; please report it")]
    Panicked,
}

/// The purpose of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadPurpose {
    /// A reload.
    Load,
    /// A look for changes, which is repeated anyway.
    Poll,
}

/// Runs an operation on a thread of its own, and waits for it for at most `limit`. Blocks.
pub(super) fn run_with_timeout<T: Send + 'static>(
    limit: Duration,
    purpose: ReadPurpose,
    operation: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ReadTimeoutError> {
    run_counted(&THREADS, limit, purpose, operation)
}

fn run_counted<T: Send + 'static>(
    threads: &'static AtomicUsize,
    limit: Duration,
    purpose: ReadPurpose,
    operation: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ReadTimeoutError> {
    let thread = ThreadCount::start(threads, purpose).ok_or(ReadTimeoutError::TooManyThreads)?;
    let (sender, result) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = sender.send(operation());
        drop(thread);
    });
    result.recv_timeout(limit).map_err(|error| match error {
        mpsc::RecvTimeoutError::Timeout => ReadTimeoutError::TimedOut,
        mpsc::RecvTimeoutError::Disconnected => ReadTimeoutError::Panicked,
    })
}

/// Counts a thread until it is dropped.
struct ThreadCount(&'static AtomicUsize);

impl ThreadCount {
    fn start(threads: &'static AtomicUsize, purpose: ReadPurpose) -> Option<Self> {
        let most = match purpose {
            ReadPurpose::Load => MAX_THREADS,
            ReadPurpose::Poll => MAX_POLL_THREADS,
        };
        let started = threads.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| {
            (count < most).then_some(count + 1)
        });
        started.ok().map(|_| Self(threads))
    }
}

impl Drop for ThreadCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Reads a file that must be a regular one, and no larger than [`MAX_FILE_BYTES`].
pub(super) fn read_regular_file(path: &Path) -> io::Result<Vec<u8>> {
    // Examined first, since opening a device may have effects; and without waiting for the other side of a pipe, by
    // which it may have been replaced since.
    check_regular(&fs::metadata(path)?)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)?;
    check_regular(&file.metadata()?)?;
    read_limited(file)
}

fn check_regular(metadata: &fs::Metadata) -> io::Result<()> {
    if metadata.is_file() {
        return Ok(());
    }
    Err(io::Error::other(
        "not a regular file: a running proxy reads no pipes, sockets or devices",
    ))
}

/// Reads a file of any kind, if it is no larger than [`MAX_FILE_BYTES`].
pub(super) fn read_limited(file: File) -> io::Result<Vec<u8>> {
    let too_large = || {
        io::Error::other(format!(
            "the file is larger than {} MiB",
            MAX_FILE_BYTES >> 20
        ))
    };
    let length = file.metadata()?.len();
    if length > MAX_FILE_BYTES {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(usize::try_from(length).unwrap_or_default())?;
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(too_large());
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    /// Not those of the process, since other tests read, too.
    static OWN_THREADS: AtomicUsize = AtomicUsize::new(0);

    #[test]
    fn threads_that_hang_are_left_behind_and_limited() {
        let (release, hang) = mpsc::channel::<()>();
        let hang = std::sync::Arc::new(std::sync::Mutex::new(hang));
        let wait = |purpose| {
            let hang = std::sync::Arc::clone(&hang);
            run_counted(&OWN_THREADS, SOON, purpose, move || {
                let _ = hang.lock().map(|hang| hang.recv());
            })
        };
        for _ in 0..MAX_POLL_THREADS {
            assert_eq!(wait(ReadPurpose::Poll), Err(ReadTimeoutError::TimedOut));
        }
        for _ in 0..100 {
            let refused = wait(ReadPurpose::Poll);
            assert_eq!(refused, Err(ReadTimeoutError::TooManyThreads));
        }
        let loaded = run_counted(&OWN_THREADS, READ_TIMEOUT, ReadPurpose::Load, || 7);
        assert_eq!(loaded, Ok(7));
        drop(release);
        // The threads end one after another.
        let mut polled = Err(ReadTimeoutError::TooManyThreads);
        for _ in 0..1_000 {
            polled = run_counted(&OWN_THREADS, READ_TIMEOUT, ReadPurpose::Poll, || 8);
            if polled.is_ok() {
                break;
            }
            std::thread::sleep(SOON);
        }
        assert_eq!(polled, Ok(8));
        let panicked = run_counted(&OWN_THREADS, READ_TIMEOUT, ReadPurpose::Load, || {
            assert!(SOON.is_zero(), "meant to fail");
        });
        assert_eq!(panicked, Err(ReadTimeoutError::Panicked));
    }
}
