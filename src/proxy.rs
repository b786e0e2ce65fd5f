//! The proxy: sockets, HTTP/1 and everything that speaks to clients and origins.

pub mod accept;
pub mod answer;
pub mod body;
pub mod clean;
pub mod connect;
pub mod destination;
pub mod dial;
pub mod drain;
pub mod front;
pub(in crate::proxy) mod gather;
pub mod head;
pub mod http;
pub mod intercept;
pub mod origin_tls;
pub mod pool;
pub mod resolve;
pub mod robots;
pub mod robots_tag;
pub mod sniff;
pub mod tunnel;
pub mod upstream;
