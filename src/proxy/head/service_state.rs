//! The state that the head reader of a connection and the service share: which of them may proceed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use crate::proxy::accept::StreamSlot;
use crate::proxy::read_allowance::ReadAllowance;

/// No request is in service: the next head may be passed on, and bytes that hyper writes are a
/// response of its own.
const IDLE: u8 = 0;
/// A request is in service.
const OPEN: u8 = 1;
/// hyper has the response's last byte, but may not have written it.
const ENDING: u8 = 2;

/// The state that the head reader of a connection shares with the service that hyper calls for it.
///
/// All users run in the connection's task, so neither ordering nor waking is needed.
#[derive(Debug, Default)]
pub struct ServiceState {
    state: AtomicU8,
    last: AtomicBool,
    /// The number of bytes that one poll of the connection may read.
    pub(crate) allowance: ReadAllowance,
    /// Set for a stream of an HTTP/2 connection, which has a state of its own.
    _stream: Option<Arc<StreamSlot>>,
}

impl ServiceState {
    /// Records that the service was called. The guard must live until the end of the response body:
    /// bytes that hyper writes while no request is in service are taken for a refusal by hyper, and
    /// are replaced.
    pub fn begin(self: &Arc<Self>) -> ServiceGuard {
        self.state.store(OPEN, Ordering::Relaxed);
        ServiceGuard(Arc::clone(self))
    }

    /// Returns `true` if no request is in service and every response is written.
    pub(super) fn is_idle(&self) -> bool {
        self.state.load(Ordering::Relaxed) == IDLE
    }

    /// Records that the head reader cannot parse the bytes after the next request.
    pub(super) fn set_last(&self) {
        self.last.store(true, Ordering::Relaxed);
    }

    /// Returns `true` if the connection must close after this request. The reader passes on all
    /// following bytes then, so hyper may not notice that the client leaves.
    pub fn is_last(&self) -> bool {
        self.last.load(Ordering::Relaxed)
    }

    /// Records that hyper has flushed its output. Returns `true` if that completes a response.
    pub(super) fn record_flushed(&self) -> bool {
        let is_ending = self.state.load(Ordering::Relaxed) == ENDING;
        if is_ending {
            self.state.store(IDLE, Ordering::Relaxed);
        }
        is_ending
    }
}

/// Exists while a request is in service.
#[derive(Debug)]
pub struct ServiceGuard(Arc<ServiceState>);

impl ServiceGuard {
    /// Creates the guard of a request on a stream of an HTTP/2 connection, which holds the stream's
    /// share of its client's limit.
    pub(crate) fn for_stream(slot: Arc<StreamSlot>) -> Self {
        let state = ServiceState {
            _stream: Some(slot),
            ..ServiceState::default()
        };
        Arc::new(state).begin()
    }
}

impl Drop for ServiceGuard {
    fn drop(&mut self) {
        self.0.state.store(ENDING, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_over_when_its_response_is_written() {
        let state = Arc::new(ServiceState::default());
        assert!(state.is_idle() && !state.record_flushed());
        let open = state.begin();
        assert!(!state.is_idle() && !state.record_flushed());
        drop(open);
        assert!(
            !state.is_idle()
                && state.record_flushed()
                && state.is_idle()
                && !state.record_flushed()
        );
        assert!(!state.is_last());
        state.set_last();
        assert!(state.is_last());
    }
}
