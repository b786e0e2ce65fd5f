//! Identify: which crawler sends a request. It comes first, also for CONNECT: nothing else is told to a stranger.

use http::HeaderMap;

use crate::gate::crawlers::{Caller, Crawlers, Identity, Stranger};
use crate::gate::refusal::Refusal;
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;

/// Who sends a request with these fields, on this connection.
///
/// # Errors
/// `unauthorized`; `overloaded` if too many credentials are being checked.
pub async fn identify(
    crawlers: &Crawlers,
    caller: &Caller,
    headers: &HeaderMap,
) -> Result<Identity, Box<Refusal>> {
    crawlers
        .recognise(caller, headers)
        .await
        .map_err(|stranger| Box::new(refusal(stranger)))
}

fn refusal(stranger: Stranger) -> Refusal {
    let unauthorized = Refusal::new(Reason::Unauthorized, Stage::Identify);
    match stranger {
        Stranger::Nameless => unauthorized.with_detail("this proxy asks for a user and a password"),
        Stranger::Unreadable(mistake) => unauthorized.with_detail(mistake),
        Stranger::Wrong => unauthorized.with_detail("the user or the password is wrong"),
        Stranger::Throttled => unauthorized.with_detail(
            "too many wrong passwords came from this address: these credentials were not looked at; wait a minute",
        ),
        Stranger::Busy => Refusal::new(Reason::Overloaded, Stage::Identify)
            .with_detail("too many passwords are being checked"),
    }
}
