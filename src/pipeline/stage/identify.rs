//! Identify: which crawler sends a request. This stage is the first, also for CONNECT, so that unidentified clients
//! learn nothing else.

use http::HeaderMap;

use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::crawlers::{
    AuthenticationError, ConnectedClient, CrawlerIdentity, CrawlerRegistry,
};
use crate::pipeline::refusal::Refusal;

/// Identifies the sender of a request with these header fields on this connection.
///
/// # Errors
/// `unauthorized`; `overloaded` if the credentials were not checked, because too many are being checked, or too many
/// from the same address were wrong.
pub async fn identify(
    crawlers: &CrawlerRegistry,
    caller: &ConnectedClient,
    headers: &HeaderMap,
) -> Result<CrawlerIdentity, Box<Refusal>> {
    crawlers
        .identify(caller, headers)
        .await
        .map_err(|error| Box::new(refusal(error)))
}

fn refusal(error: AuthenticationError) -> Refusal {
    let unauthorized = || Refusal::new(Reason::Unauthorized, Stage::Identify);
    // Not 407: a crawler that is told so about credentials that are right gives up.
    let not_checked = || Refusal::new(Reason::Overloaded, Stage::Identify);
    match error {
        AuthenticationError::MissingCredentials => {
            unauthorized().with_detail("this proxy requires a user and a password")
        }
        AuthenticationError::MalformedCredentials(mistake) => unauthorized().with_detail(mistake),
        AuthenticationError::InvalidCredentials => {
            unauthorized().with_detail("the user or the password is wrong")
        }
        AuthenticationError::Throttled(wait) => not_checked()
            .with_detail(
                "too many wrong passwords came from this address: these credentials were not checked",
            )
            .with_retry_after(Some(wait)),
        AuthenticationError::Busy => {
            not_checked().with_detail("too many passwords are being checked")
        }
        // Not 407: other credentials would not help.
        AuthenticationError::UnknownHere => Refusal {
            status: Some(403),
            ..unauthorized().with_detail(
                "the node of the fleet that owns this host has no crawler of this name: the configurations of the \
                 nodes differ",
            )
        },
    }
}
