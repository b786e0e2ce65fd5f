//! Politeness: how often a host may be asked, and who must wait. Pure: the time is an argument, and so is chance.
//!
//! A [`host_limiter`] remembers what went to one key, a [`backoff`] whether the origin rests, [`adaptive`] its latency, [`byte_debt`]
//! what bodies have cost, a [`ban`] its 403s, a [`budget`] what was spent of a day's; [`response_class`] says what an answer means to them. A [`pace`] says what a policy
//! wants, a [`schedule`] when it wants something else, an [`queue`] who of those that wait goes first; [`stops`] are what
//! an operator has stopped. Who keeps them, and how a request waits, is not here.

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
