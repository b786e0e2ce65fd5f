//! Fetches of robots.txt from a scripted origin: what each outcome means, who waits for whom, and what a request gets.

mod fetcher;
mod gate;
mod outcomes;
mod renewal;
mod shared;
mod usage;
