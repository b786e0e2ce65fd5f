//! Identify: which crawler sends a request. It comes first, also for CONNECT: nothing else is told to a stranger.

use http::HeaderMap;

use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::crawlers::{
    AuthenticationError, ConnectedClient, CrawlerIdentity, CrawlerRegistry,
};
use crate::pipeline::refusal::Refusal;

/// Who sends a request with these fields, on this connection.
///
/// # Errors
/// `unauthorized`; `overloaded` if too many credentials are being checked.
pub async fn identify(
    crawlers: &CrawlerRegistry,
    caller: &ConnectedClient,
    headers: &HeaderMap,
) -> Result<CrawlerIdentity, Box<Refusal>> {
    crawlers
        .identify(caller, headers)
        .await
        .map_err(|stranger| Box::new(refusal(stranger)))
}

fn refusal(stranger: AuthenticationError) -> Refusal {
    let unauthorized = Refusal::new(Reason::Unauthorized, Stage::Identify);
    match stranger {
        AuthenticationError::MissingCredentials => unauthorized.with_detail("this proxy asks for a user and a password"),
        AuthenticationError::MalformedCredentials(mistake) => unauthorized.with_detail(mistake),
        AuthenticationError::InvalidCredentials => unauthorized.with_detail("the user or the password is wrong"),
        AuthenticationError::Throttled => unauthorized.with_detail(
            "too many wrong passwords came from this address: these credentials were not looked at; wait a minute",
        ),
        AuthenticationError::Busy => Refusal::new(Reason::Overloaded, Stage::Identify)
            .with_detail("too many passwords are being checked"),
    }
}
