//! HTTP/2 (RFC 9113): what the proxy adds to the `h2` crate, which reports little about the frames
//! that it handles itself.

pub mod frame;
pub mod observed_stream;
