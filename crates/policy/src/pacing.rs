//! Politeness: the rate of requests to a host, and the order of waiting requests. Pure: time and
//! randomness are arguments.
//!
//! For each key, a [`host_limiter`] tracks requests, a [`backoff`] the origin's complaints and
//! failures, [`adaptive`] its latency, [`byte_debt`] the cost of bodies, a [`ban`] its 403s, a
//! [`budget`] the daily usage; a [`response_class`] is the meaning of a response to them. A
//! [`pace`] is the policy's setting, a [`schedule`] changes it by the time of day, a [`queue`]
//! orders the waiting requests, and [`stops`] are the operator's emergency stops. Storage and
//! waiting are the caller's.

pub mod adaptive;
pub mod backoff;
pub mod ban;
pub mod budget;
pub mod byte_debt;
pub mod host_limiter;
pub mod pace;
pub mod queue;
pub mod response_class;
pub mod retry_after;
pub mod schedule;
pub mod stops;
pub mod token_bucket;
