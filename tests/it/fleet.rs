//! Several proxies in one process that forward requests to each other, over real sockets. The test says who owns a host.

mod api;
pub(crate) mod bench;
mod bytes;
mod identity;
mod lapses;
mod links;
mod owners;
mod pace;
mod traces;
mod tunnels;
