//! Crawlers: how a client is recognized, what wrong credentials cost, and what differs for each crawler.
//!
//! `table` asks the gate's table directly, on a clock that is moved by hand; `wire` speaks to the real binary.

mod config;
mod table;
mod wire;
