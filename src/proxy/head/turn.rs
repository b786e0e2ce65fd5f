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
pub struct Turn {
    state: AtomicU8,
    last: AtomicBool,
}

impl Turn {
    /// Notes that the service was called. The guard must go with the answer's body to its end: what hyper writes
    /// while the turn is nobody's is taken for a refusal of its own, and replaced.
    pub fn begin(self: &Arc<Self>) -> ServiceOpen {
        self.state.store(OPEN, Ordering::Relaxed);
        ServiceOpen(Arc::clone(self))
    }

    /// Whether no request is in service and every answer is written.
    pub(super) fn is_over(&self) -> bool {
        self.state.load(Ordering::Relaxed) == IDLE
    }

    /// Notes that no reader of heads sees what follows the request that hyper is handed now.
    pub(super) fn end_with_it(&self) {
        self.last.store(true, Ordering::Relaxed);
    }

    /// Whether the connection must close behind this request. The reader hands on all that arrives then, so hyper
    /// may also not see the client leave behind it.
    pub fn is_last(&self) -> bool {
        self.last.load(Ordering::Relaxed)
    }

    /// Notes that hyper has written all it had. Tells whether the turn is over by that.
    pub(super) fn flushed(&self) -> bool {
        let over = self.state.load(Ordering::Relaxed) == ENDING;
        if over {
            self.state.store(IDLE, Ordering::Relaxed);
        }
        over
    }
}

/// Held while a request is in service.
#[derive(Debug)]
pub struct ServiceOpen(Arc<Turn>);

impl Drop for ServiceOpen {
    fn drop(&mut self) {
        self.0.state.store(ENDING, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_over_when_its_answer_is_written() {
        let turn = Arc::new(Turn::default());
        assert!(turn.is_over() && !turn.flushed());
        let open = turn.begin();
        assert!(!turn.is_over() && !turn.flushed());
        drop(open);
        assert!(!turn.is_over() && turn.flushed() && turn.is_over() && !turn.flushed());
        assert!(!turn.is_last());
        turn.end_with_it();
        assert!(turn.is_last());
    }
}
