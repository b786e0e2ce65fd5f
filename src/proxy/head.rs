//! The head reader: a wrapper around a client's socket that reads request heads before hyper does.
//!
//! hyper answers some requests before any service runs, and refuses bytes that crawlers send in URLs. So heads are
//! collected whole, read strictly, answered in full where they are refused, and handed on with such bytes encoded.
//! The bytes of a body whose head tells their number are counted past. After a head with a chunked body or another
//! protocol behind it the reader steps aside, and that request is the connection's last: every head that is served was
//! read here. It is no second framing parser.

mod closing;
mod handover;
mod line;
mod reader;
mod scan;
pub(in crate::proxy) mod secure;
mod sending;
mod socket;
pub(in crate::proxy) mod timer;
mod turn;

pub use handover::Handover;
pub use reader::{HeadEvents, HeadReader, ReaderSettings};
pub use scan::{Follows, Foreign, Head, HeadError, HeadLimits, Progress, Scan, scan};
pub use socket::ClientWatch;
pub use turn::{ServiceOpen, Turn};
