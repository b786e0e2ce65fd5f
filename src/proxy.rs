//! The proxy: sockets, HTTP/1 and everything that speaks to clients and origins.

pub mod accept;
pub mod answer;
pub mod body;
pub mod clean;
pub mod connect;
pub mod dead;
pub mod destination;
pub mod dial;
pub mod document;
pub mod drain;
pub mod front;
pub(in crate::proxy) mod gather;
pub mod head;
pub mod http;
pub mod intercept;
pub mod origin_tls;
pub mod pool;
pub mod reply;
pub mod resolve;
pub mod robots;
pub mod robots_tag;
mod seen;
pub mod sniff;
mod timing;
pub mod tunnel;
pub mod upstream;
