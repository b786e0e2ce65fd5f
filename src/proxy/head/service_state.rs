//! Whose turn it is on a connection: the reader's or the service's.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// No request is under way: the next head may be handed on, and what hyper writes is an answer of its own.
const IDLE: u8 = 0;
/// A request is in service.
const OPEN: u8 = 1;
/// hyper has the answer's last byte, but the socket may not have it.
const ENDING: u8 = 2;

/// Shared by the reader of a connection and the service that hyper calls for it.
///
/// All who touch it run in the connection's task, so nothing needs ordering or waking.
#[derive(Debug, Default)]
pub struct ServiceState {
    state: AtomicU8,
    last: AtomicBool,
}

impl ServiceState {
    /// Notes that the service was called. The guard must go with the answer's body to its end: what hyper writes
    /// while the turn is nobody's is taken for a refusal of its own, and replaced.
    pub fn begin(self: &Arc<Self>) -> ServiceGuard {
        self.state.store(OPEN, Ordering::Relaxed);
        ServiceGuard(Arc::clone(self))
    }

    /// Whether no request is in service and every answer is written.
    pub(super) fn is_idle(&self) -> bool {
        self.state.load(Ordering::Relaxed) == IDLE
    }

    /// Notes that no reader of heads sees what follows the request that hyper is handed now.
    pub(super) fn set_last(&self) {
        self.last.store(true, Ordering::Relaxed);
    }

    /// Whether the connection must close behind this request. The reader hands on all that arrives then, so hyper
    /// may also not see the client leave behind it.
    pub fn is_last(&self) -> bool {
        self.last.load(Ordering::Relaxed)
    }

    /// Notes that hyper has written all it had. Tells whether the turn is over by that.
    pub(super) fn record_flushed(&self) -> bool {
        let over = self.state.load(Ordering::Relaxed) == ENDING;
        if over {
            self.state.store(IDLE, Ordering::Relaxed);
        }
        over
    }
}

/// Held while a request is in service.
#[derive(Debug)]
pub struct ServiceGuard(Arc<ServiceState>);

impl Drop for ServiceGuard {
    fn drop(&mut self) {
        self.0.state.store(ENDING, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_over_when_its_answer_is_written() {
        let turn = Arc::new(ServiceState::default());
        assert!(turn.is_idle() && !turn.record_flushed());
        let open = turn.begin();
        assert!(!turn.is_idle() && !turn.record_flushed());
        drop(open);
        assert!(
            !turn.is_idle() && turn.record_flushed() && turn.is_idle() && !turn.record_flushed()
        );
        assert!(!turn.is_last());
        turn.set_last();
        assert!(turn.is_last());
    }
}
