//! The gate: which requests may go to an origin, and which answers may come back.
//!
//! The order of the stages is written once: [`request`] up to the permit, [`response`] from the origin's head on.
//! The gate knows HTTP's types but no socket; what it needs from above (addresses for a name) is a trait that it
//! declares and `proxy` implements.

pub mod admission;
pub mod budget;
pub mod crawlers;
pub mod destination;
pub mod document_rewrite;
pub mod evaluation;
pub mod facts;
pub mod failure_class;
pub mod header_effects;
pub mod headers;
pub(crate) mod hold;
pub mod offline_evaluation;
pub mod permit;
pub mod policy_source;
pub mod refusal;
pub mod reload;
pub mod request;
pub mod response;
pub mod robots_fetch;
pub mod schedules;
pub mod shadow;
pub mod snapshot;
pub mod stage;
pub mod stop_registry;
pub mod sweep;
pub mod tunnel;
pub mod tunnel_tls;
