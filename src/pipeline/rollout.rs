//! Changes of the policy that an operator requests while the proxy runs: setting a shadow policy, promoting it, and
//! returning to an earlier policy.
//!
//! This module has the requests and their results. The server makes the changes: one at a time, and none waits for another,
//! since each means the state that its author has seen.

use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard, mpsc, oneshot};

use crate::diagnostics::problem::Problem;
use crate::policy::source::PolicyFileSet;
use crate::store::policies::ChangeAuthor;

/// A change of the policy that an operator requests.
#[derive(Clone, Debug)]
pub enum RolloutAction {
    /// Makes these files the shadow policy, in place of the configured one.
    SetShadow(PolicyFileSet),
    /// Returns to the configured shadow policy, if there is one.
    ClearShadow,
    /// Makes the shadow policy the active one, if it has this revision.
    Promote { revision: Option<String> },
    /// Makes an earlier policy the active one: by default, the one before.
    RollBack { revision: Option<String> },
}

/// A change, who requests it, and why.
#[derive(Clone, Debug)]
pub struct PolicyChangeRequest {
    pub action: RolloutAction,
    pub author: ChangeAuthor,
    pub reason: Option<String>,
}

/// The result of a change.
#[derive(Clone, Debug)]
pub struct PolicyChangeReport {
    /// The policy that was set, cleared or activated.
    pub name: String,
    pub revision: String,
    /// The revision in its place before.
    pub previous_revision: Option<String>,
    /// The warnings about the policy.
    pub warnings: Vec<Problem>,
    /// The files that were written, relative to the policy's directory.
    pub written_files: Vec<String>,
}

/// The reason why a change was not made.
#[derive(Clone, Debug)]
pub enum PolicyChangeError {
    /// It is impossible in the present state, for this reason.
    Refused(String),
    /// The policy has these problems.
    Invalid(Vec<Problem>),
}

/// The result of a request.
pub type PolicyChangeResult = Result<PolicyChangeReport, PolicyChangeError>;

/// A change that was requested. Its turn ends with it, even if nobody waits for the result any more.
#[derive(Debug)]
struct PendingChange {
    request: PolicyChangeRequest,
    reply: oneshot::Sender<PolicyChangeResult>,
    turn: OwnedMutexGuard<()>,
}

/// A handle that requests changes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RolloutHandle {
    requests: mpsc::Sender<PendingChange>,
    /// Locked by the change that is being requested or made.
    turn: Arc<Mutex<()>>,
}

/// The right to request a change. Until it is dropped, or the change has ended, there is no other one.
#[derive(Debug)]
pub struct ChangeTurn {
    requests: mpsc::Sender<PendingChange>,
    turn: OwnedMutexGuard<()>,
}

/// The receiver of the requests, which makes the changes.
#[derive(Debug)]
pub struct RolloutQueue(mpsc::Receiver<PendingChange>);

impl RolloutHandle {
    /// Creates both ends.
    pub fn new() -> (Self, RolloutQueue) {
        // Only the change whose turn it is can be pending.
        let (requests, receiver) = mpsc::channel(1);
        let turn = Arc::default();
        (Self { requests, turn }, RolloutQueue(receiver))
    }

    /// Begins a change. `None` while another one is being requested or made.
    pub fn try_begin(&self) -> Option<ChangeTurn> {
        let turn = Arc::clone(&self.turn).try_lock_owned().ok()?;
        Some(ChangeTurn {
            requests: self.requests.clone(),
            turn,
        })
    }
}

impl ChangeTurn {
    /// Requests the change, and waits for its result. `None` if the proxy is shutting down. The change goes on if the
    /// caller stops waiting.
    pub async fn request(self, request: PolicyChangeRequest) -> Option<PolicyChangeResult> {
        let (reply, result) = oneshot::channel();
        let turn = self.turn;
        let pending = PendingChange {
            request,
            reply,
            turn,
        };
        self.requests.send(pending).await.ok()?;
        result.await.ok()
    }
}

impl RolloutQueue {
    /// Makes one change after the other, until all handles are dropped.
    pub async fn serve<F: Future<Output = PolicyChangeResult>>(
        mut self,
        change: impl Fn(PolicyChangeRequest) -> F,
    ) {
        while let Some(pending) = self.0.recv().await {
            let result = change(pending.request).await;
            // Before the reply, since its receiver may request the next change at once.
            drop(pending.turn);
            // The client may have left.
            let _ = pending.reply.send(result);
        }
    }
}
