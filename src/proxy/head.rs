//! The head reader: a wrapper around a client's socket that reads request heads before hyper does.
//!
//! hyper answers some requests before any service runs, and refuses bytes that crawlers send in
//! URLs. The head reader therefore collects each head completely, parses it strictly, answers it if
//! it is refused, and passes it on with such bytes percent-encoded. If the head declares a body
//! length, the reader counts the bytes of the body. A chunked body or another protocol after a head
//! is not parsed: that request is the last one of its connection, so every head that is served was
//! checked here. The reader is not a second implementation of message framing.

mod client_io;
mod client_socket;
mod client_stream;
pub(crate) mod client_tls;
mod close;
mod line;
mod reader;
mod scan;
mod service_state;
pub(crate) mod timer;
mod tunnel_stream;
mod writer;

pub(crate) use client_io::ClientIo;
pub use client_socket::ClientSocket;
pub use client_stream::ClientWatch;
pub(crate) use close::{LINGER_BYTES, LINGER_TIME};
pub use reader::{HeadEvents, HeadReader, HeadReaderSettings};
pub use scan::{
    FollowingBytes, ForeignProtocol, HeadError, HeadLimits, HeadScanner, RequestHead, ScanProgress,
    scan_head,
};
pub use service_state::{ServiceGuard, ServiceState};
