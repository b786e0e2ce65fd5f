//! HTTP/2 to origins: one connection serves several requests at once, each on a stream of its own.
//!
//! A task drives the connection. It sees the frames in both directions: the host's delay begins when
//! the head of a request has been written, and an origin that sends too many frames without data is
//! closed.

mod connection;
mod download;
mod exchange;
mod failure;
mod frame_budget;
mod socket;
mod upload;
mod watch;

pub(super) use connection::SharedConnectionSettings;
pub use connection::{SharedConnection, StreamReservation};
pub use download::StreamDownload;
pub(super) use exchange::{ExchangedStream, StreamCall, exchange};
pub(super) use failure::ResendCondition;
