//! Returning memory to the system after a burst of connections and streams.
//!
//! glibc keeps memory that was freed below an allocation that is still in use, as long as the process runs: a thousand
//! waiting clients, or four with a hundred streams each, leave some 30 MiB resident. Allocators that return it by themselves need a C compiler to build
//! (jemalloc), or return it only while they are used (mimalloc).
//!
//! This is the one module with `unsafe`: it calls the C library, for which there is no maintained safe wrapper.

#![allow(unsafe_code, reason = "malloc_trim has no safe wrapper")]

/// The number of connections and streams that must have ended to make a call worthwhile.
const MIN_ENDED: usize = 64;

/// Detects the end of a burst of connections and streams.
#[derive(Debug, Default)]
pub struct ConnectionBurst {
    peak: usize,
}

impl ConnectionBurst {
    /// Records the number of open connections and streams, and its peak since the previous call. Returns `true` once it
    /// has fallen to half of the highest peak, and by at least 64; the peak then starts again.
    pub fn observe(&mut self, open: usize, peak: usize) -> bool {
        self.peak = self.peak.max(open).max(peak);
        let over = self.peak >= open.saturating_mul(2).max(open + MIN_ENDED);
        if over {
            self.peak = open;
        }
        over
    }
}

/// Detects the end of a series of work on other threads, each of which keeps the memory that was freed there.
#[derive(Debug, Default)]
pub struct WorkBurst {
    ended: u64,
    given_back: u64,
}

impl WorkBurst {
    /// Records how often work has ended so far. Returns `true` once it has not ended since the previous call, but before.
    pub fn observe(&mut self, ended: u64) -> bool {
        let is_over = ended == self.ended && ended != self.given_back;
        self.ended = ended;
        if is_over {
            self.given_back = ended;
        }
        is_over
    }
}

/// Asks the C library to return free memory to the system. It locks one arena after the other, for milliseconds, so it
/// must not be called on a thread that serves requests.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn give_back() {
    // SAFETY: malloc_trim(3) has no preconditions, is thread-safe, and moves nothing that is in use.
    unsafe { libc::malloc_trim(0) };
}

/// Does nothing: other allocators return memory by themselves, or not at all.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_back() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_series_of_work_is_detected_once() {
        let mut burst = WorkBurst::default();
        let over = [0, 0, 3, 5, 5, 5, 6, 6, 6].map(|ended| burst.observe(ended));
        assert_eq!(
            over,
            [false, false, false, false, true, false, false, true, false]
        );
    }

    #[test]
    fn the_end_of_a_burst_is_detected_once() {
        let mut burst = ConnectionBurst::default();
        let over: Vec<bool> = [0, 10, 1000, 900, 501, 500, 499, 400, 250, 240, 0, 0]
            .map(|n| burst.observe(n, n))
            .into();
        assert_eq!(
            over,
            [
                false, false, false, false, false, true, false, false, true, false, true, false
            ]
        );
        assert!(
            ![63, 0, 63, 0]
                .map(|n| ConnectionBurst::default().observe(n, n))
                .contains(&true)
        );
        assert!(
            ConnectionBurst::default().observe(0, 64),
            "a peak between two calls"
        );
    }
}
