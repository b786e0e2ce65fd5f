//! Changes of the policy that an operator requests while the proxy runs: setting a shadow policy, promoting it, and
//! returning to an earlier policy.
//!
//! This module has the requests and their results. The server makes the changes, one after the other.

use tokio::sync::{mpsc, oneshot};

use crate::diagnostics::problem::Problem;
use crate::policy::source::PolicyFileSet;
use crate::store::policies::ChangeAuthor;

/// The maximum number of pending requests.
const MAX_PENDING_REQUESTS: usize = 4;

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

/// The cause if a change was not made.
#[derive(Clone, Debug)]
pub enum PolicyChangeError {
    /// It is impossible in the present state, for this reason.
    Refused(String),
    /// The policy has these problems.
    Invalid(Vec<Problem>),
}

/// The result of a request.
pub type PolicyChangeResult = Result<PolicyChangeReport, PolicyChangeError>;

type PendingChange = (PolicyChangeRequest, oneshot::Sender<PolicyChangeResult>);

/// A handle that requests changes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RolloutHandle(mpsc::Sender<PendingChange>);

/// The receiver of the requests, which makes the changes.
#[derive(Debug)]
pub struct RolloutQueue(mpsc::Receiver<PendingChange>);

impl RolloutHandle {
    /// Creates both ends.
    pub fn new() -> (Self, RolloutQueue) {
        let (sender, receiver) = mpsc::channel(MAX_PENDING_REQUESTS);
        (Self(sender), RolloutQueue(receiver))
    }

    /// Requests a change, and waits for its result. `None` if the proxy is shutting down.
    pub async fn request(&self, request: PolicyChangeRequest) -> Option<PolicyChangeResult> {
        let (reply, result) = oneshot::channel();
        self.0.send((request, reply)).await.ok()?;
        result.await.ok()
    }
}

impl RolloutQueue {
    /// Makes one change after the other, until all handles are dropped.
    pub async fn serve<F: Future<Output = PolicyChangeResult>>(
        mut self,
        change: impl Fn(PolicyChangeRequest) -> F,
    ) {
        while let Some((request, reply)) = self.0.recv().await {
            // The client may have left.
            let _ = reply.send(change(request).await);
        }
    }
}
