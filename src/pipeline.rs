//! The pipeline: which requests may be sent to an origin, and which answers may be passed on.
//!
//! The order of the stages is written once: in [`request`] up to the permit, in [`response`] from the origin's head on.
//! [`tunnel`] has the stages of a CONNECT. The pipeline knows the types of HTTP but no sockets; for what it needs from the
//! proxy (addresses of a name, robots.txt, the sender of a request) it declares traits that `proxy` implements.

pub mod admission;
pub mod budget;
pub mod crawlers;
pub mod destination;
pub mod document_rewrite;
pub mod evaluation;
pub(crate) mod evaluation_loop;
pub mod facts;
pub mod failure_class;
pub mod header_effects;
pub mod headers;
pub(crate) mod held_requests;
pub mod offline_evaluation;
pub mod permit;
pub mod policy_source;
pub mod refusal;
pub mod reload;
pub mod request;
pub mod response;
pub mod robots_fetch;
pub mod rollout;
pub mod schedules;
pub mod shadow;
pub mod snapshot;
pub mod stage;
pub mod stop_registry;
pub mod sweep;
pub mod tunnel;
mod tunnel_decisions;
pub mod tunnel_tls;
