//! A request as the proxy hands it to the stages.

use std::sync::Arc;

use crate::model::crawler::Crawler;
use crate::model::profile::Profile;
use crate::pipeline::facts::RequestFacts;
use crate::pipeline::permit::BodyTimeouts;
use crate::pipeline::refusal::Refusal;
use crate::robots::state::RobotsState;
use crate::urls::target::UrlTarget;

/// A request as it arrives. The proxy provides the data of the connection, in the order in which the pipeline needs it.
pub trait IncomingRequest: Send + Sync {
    /// Finds out which crawler sends the request.
    fn identify(&mut self) -> impl Future<Output = Result<Crawler, Box<Refusal>>> + Send;
    /// Reads the URL that the request is for.
    ///
    /// # Errors
    /// The refusal of a request that the proxy cannot forward.
    fn target(&mut self) -> Result<UrlTarget, Box<Refusal>>;
    /// Reads the facts of the request.
    fn facts(&self, target: UrlTarget, crawler: Crawler) -> RequestFacts;
    /// Returns the profile of the crawler, needed only for requests that have to wait.
    fn profile(&self) -> Profile;
}

/// The body of a request.
pub trait IncomingBody: Send {
    /// Reads the beginning of the body, with these timeouts, before the request takes a slot of its
    /// host: a client that sends slowly must not hold one meanwhile. May be called more than once.
    ///
    /// # Errors
    /// The refusal, if no valid body arrives in time.
    fn read_ahead(
        &mut self,
        timeouts: BodyTimeouts,
    ) -> impl Future<Output = Result<(), NotSent>> + Send;
}

/// A request without a body.
impl IncomingBody for () {
    async fn read_ahead(&mut self, _timeouts: BodyTimeouts) -> Result<(), NotSent> {
        Ok(())
    }
}

/// The reason why a request is not sent to its origin.
#[derive(Debug)]
pub enum NotSent {
    /// The proxy responds with its copy of the host's robots.txt.
    ServeRobots(Arc<RobotsState>),
    /// The proxy refuses it.
    Refuse(Box<Refusal>),
    /// The client has left in the middle of its body.
    ClientLeft,
}

impl From<Box<Refusal>> for NotSent {
    fn from(refusal: Box<Refusal>) -> Self {
        Self::Refuse(refusal)
    }
}
