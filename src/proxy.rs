//! The proxy: sockets, HTTP/1 and everything that speaks to clients and origins.

pub mod answer;
pub mod clean;
pub mod front;
