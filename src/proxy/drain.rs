//! Going down without losing an answer: no new connections, idle ones closed, requests under way finished.

use tokio::sync::watch;

/// Begins a drain, once.
#[derive(Clone, Debug)]
pub struct Drain(watch::Sender<bool>);

/// Sees a drain begin. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DrainWatch(watch::Receiver<bool>);

impl Drain {
    /// Not draining yet.
    pub fn new() -> (Self, DrainWatch) {
        let (sender, receiver) = watch::channel(false);
        (Self(sender), DrainWatch(receiver))
    }

    /// Begins. Doing so again changes nothing.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Ready once nobody watches any more: every connection has ended.
    pub async fn finished(&self) {
        self.0.closed().await;
    }
}

impl DrainWatch {
    /// Whether it has begun.
    pub fn has_begun(&self) -> bool {
        *self.0.borrow()
    }

    /// Ready once it has begun.
    pub async fn begun(&mut self) {
        // An error means that nobody can begin it any more, which is the same as never.
        if self.0.wait_for(|draining| *draining).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
