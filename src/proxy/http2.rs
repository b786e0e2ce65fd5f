//! HTTP/2 (RFC 9113) to clients.
//!
//! The `h2` crate implements the protocol. This module observes the frames, of which `h2` reports
//! little, closes connections that exceed a limit, and turns each stream into a request like those
//! of HTTP/1: the stages after it do not distinguish the versions.

mod batched_stream;
mod client_connection;
mod client_frames;
pub mod frame;
mod frame_budget;
pub mod observed_stream;
mod request_head;
mod stream;

pub(crate) use client_connection::serve_http2;

/// Settings of HTTP/2 connections with clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Settings {
    /// `h2.clients`: if set, clients may choose HTTP/2 in their TLS handshake.
    pub clients: bool,
    /// `h2.prior_knowledge`: if set, clients may begin with HTTP/2 without TLS.
    pub prior_knowledge: bool,
    /// `h2.streams`: the maximum number of requests at a time on one connection.
    pub streams: usize,
    /// `h2.resets`: the number of streams that one connection may reset per second. A burst may be
    /// as large as twice the number of streams.
    pub resets: usize,
}
