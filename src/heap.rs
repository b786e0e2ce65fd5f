//! Returning memory to the system after a burst of connections.
//!
//! glibc keeps memory that was freed below an allocation that is still in use, as long as the process runs: a thousand
//! waiting clients leave some 30 MiB resident. Allocators that return it by themselves need a C compiler to build
//! (jemalloc), or return it only while they are used (mimalloc).
//!
//! This is the one module with `unsafe`: it calls the C library, for which there is no maintained safe wrapper.

#![allow(unsafe_code, reason = "malloc_trim has no safe wrapper")]

/// The number of connections that must have closed to make a call worthwhile.
const MIN_CLOSED_CONNECTIONS: usize = 64;

/// Detects the end of a burst of connections.
#[derive(Debug, Default)]
pub struct ConnectionBurst {
    peak: usize,
}

impl ConnectionBurst {
    /// Records the number of open connections. Returns `true` once it has fallen to half of the peak, and by at least
    /// 64; the peak then starts again.
    pub fn observe_open(&mut self, open: usize) -> bool {
        self.peak = self.peak.max(open);
        let over = self.peak >= open.saturating_mul(2).max(open + MIN_CLOSED_CONNECTIONS);
        if over {
            self.peak = open;
        }
        over
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
    fn the_end_of_a_burst_is_detected_once() {
        let mut burst = ConnectionBurst::default();
        let over: Vec<bool> = [0, 10, 1000, 900, 501, 500, 499, 400, 250, 240, 0, 0]
            .map(|n| burst.observe_open(n))
            .into();
        assert_eq!(
            over,
            [
                false, false, false, false, false, true, false, false, true, false, true, false
            ]
        );
        assert!(
            ![63, 0, 63, 0]
                .map(|n| ConnectionBurst::default().observe_open(n))
                .contains(&true)
        );
    }
}
