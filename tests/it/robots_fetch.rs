//! Fetches of robots.txt from a scripted origin: the meaning of each outcome, shared fetches, and the effect on requests.

mod failing;
mod fetcher;
mod gate;
mod outcomes;
mod refused_host;
mod renewal;
mod shared;
mod usage;
