//! Politeness: how often a host may be asked, and who must wait. Pure: the time is an argument, and so is chance.
//!
//! A [`lane`] remembers what went to one key, a [`backoff`] what the origin has asked for; a [`pace`] says what a
//! policy wants. Who keeps them, and how a request waits, is not here.

pub mod backoff;
pub mod lane;
pub mod pace;
pub mod rate;
pub mod retry_after;
