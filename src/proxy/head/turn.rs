//! Whose turn it is on a connection: the reader's or the service's.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// Shared by the reader of a connection and the service that hyper calls for it.
#[derive(Debug, Default)]
pub struct Turn {
    open: AtomicBool,
    calls: AtomicU32,
    /// Set while the reader holds the next head back; else nobody locks the waker.
    awaited: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Turn {
    /// Notes that the service was called; the turn is the service's until the guard is dropped, which is when the
    /// last byte of the answer was handed to hyper.
    pub fn begin(self: &Arc<Self>) -> ServiceOpen {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.open.store(true, Ordering::Release);
        ServiceOpen(Arc::clone(self))
    }

    /// Whether the service has the turn.
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// How often the service was called.
    pub fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Ready once the service has not the turn.
    pub fn poll_over(&self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.is_open() {
            return Poll::Ready(());
        }
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        self.awaited.store(true, Ordering::Release);
        if self.is_open() { Poll::Pending } else { Poll::Ready(()) }
    }
}

/// Held while the service has the turn.
#[derive(Debug)]
pub struct ServiceOpen(Arc<Turn>);

impl Drop for ServiceOpen {
    fn drop(&mut self) {
        self.0.open.store(false, Ordering::Release);
        if self.0.awaited.swap(false, Ordering::AcqRel)
            && let Some(waker) = self.0.waker.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            waker.wake();
        }
    }
}
