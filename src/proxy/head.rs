//! The head reader: a wrapper around a client's socket that reads request heads before hyper does.
//!
//! hyper answers some requests before any service runs, and refuses bytes that crawlers send in URLs. So heads are
//! collected whole, read strictly, answered in full where they are refused, and handed on with such bytes encoded.
//! The bytes of a body whose head tells their number are counted past. After a head with a chunked body or another
//! protocol behind it the reader steps aside, and that request is the connection's last: every head that is served was
//! read here. It is no second framing parser.

mod client_socket;
mod client_stream;
pub(crate) mod client_tls;
mod close;
mod line;
mod reader;
mod scan;
mod service_state;
pub(crate) mod timer;
mod writer;

pub use client_socket::ClientSocket;
pub use client_stream::ClientWatch;
pub use reader::{HeadEvents, HeadReader, HeadReaderSettings};
pub use scan::{
    FollowingBytes, ForeignProtocol, HeadError, HeadLimits, HeadScanner, RequestHead, ScanProgress,
    scan_head,
};
pub use service_state::{ServiceGuard, ServiceState};
