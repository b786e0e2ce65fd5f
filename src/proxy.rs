//! The proxy: listeners, HTTP/1, TLS and the connections to clients and origins.

pub mod accept;
pub mod body;
pub(crate) mod coalesce;
pub mod connect;
pub mod destination;
pub mod dial;
pub mod document;
pub mod drain;
pub mod head;
pub mod header_filter;
pub mod http;
mod inspect;
pub mod intercept;
pub mod local_reply;
pub mod negative_cache;
pub mod origin_tls;
pub mod pool;
mod read_allowance;
pub mod request_target;
pub mod resolve;
pub mod robots;
pub mod robots_tag;
pub mod service_response;
pub mod sniff;
mod timing;
pub mod tunnel;
pub mod upstream;
