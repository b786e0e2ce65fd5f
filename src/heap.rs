//! Memory that a burst of connections took, given back to the system when they have gone.
//!
//! glibc keeps what is freed below something that is still in use, for as long as the process lives: a thousand clients
//! that waited leave some 30 MiB resident. Allocators that give it back by themselves cost more than a C compiler to
//! build (jemalloc), or do so only while they are used (mimalloc).
//!
//! This is the one module with `unsafe`: the C library is asked, and no safe wrapper is kept by anybody.

#![allow(unsafe_code, reason = "malloc_trim has no safe form")]

/// So many connections must have gone before it is worth asking.
const MIN_CLOSED_CONNECTIONS: usize = 64;

/// Tells when a burst is over.
#[derive(Debug, Default)]
pub struct ConnectionBurst {
    peak: usize,
}

impl ConnectionBurst {
    /// Looks at how many connections are open now. True once they are half of what they were at the most, and at
    /// least 64 fewer; then it begins anew.
    pub fn observe_open(&mut self, open: usize) -> bool {
        self.peak = self.peak.max(open);
        let over = self.peak >= open.saturating_mul(2).max(open + MIN_CLOSED_CONNECTIONS);
        if over {
            self.peak = open;
        }
        over
    }
}

/// Asks the C library to give back what it holds. It locks one arena after the other, for milliseconds: not on a
/// thread that serves.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn give_back() {
    // SAFETY: malloc_trim(3) has no conditions and is safe for threads; it moves nothing that is in use.
    unsafe { libc::malloc_trim(0) };
}

/// Other allocators give back by themselves, or cannot be asked.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_back() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_over_once() {
        let mut burst = ConnectionBurst::default();
        let told: Vec<bool> = [0, 10, 1000, 900, 501, 500, 499, 400, 250, 240, 0, 0]
            .map(|n| burst.observe_open(n))
            .into();
        assert_eq!(
            told,
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
