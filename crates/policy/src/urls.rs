//! Canonical URLs and hosts, registrable domains, and the ranges of IP addresses that are not
//! public.

pub mod address;
pub mod domain;
pub mod target;
