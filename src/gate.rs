//! The gate: which requests may go to an origin, and which answers may come back.
//!
//! The order of the stages is written once: [`request`] up to the permit, [`response`] from the origin's head on.
//! The gate knows HTTP's types but no socket; what it needs from above (addresses for a name) is a trait that it
//! declares and `proxy` implements.

pub mod budget;
pub mod changes;
pub mod crawlers;
pub mod destination;
pub mod effects;
pub mod failing;
pub mod hold;
pub mod judged;
pub mod permit;
pub mod refusal;
pub mod reload;
pub mod request;
pub mod response;
pub mod robots;
pub mod schedules;
pub mod shadow;
pub mod snapshot;
pub mod stage;
pub mod stops;
pub mod sweep;
pub mod tls;
pub mod trial;
pub mod tunnel;
pub mod written;
