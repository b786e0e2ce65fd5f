//! The head reader: a wrapper around a client's socket that reads request heads before hyper does.
//!
//! hyper answers some requests before any service runs, and refuses bytes that crawlers send in URLs. So heads are
//! collected whole, read strictly, answered in full where they are refused, and handed on with such bytes encoded.
//! After a head with a body or another protocol behind it the reader steps aside until the connection closes; it is
//! no second framing parser.

mod reader;
mod scan;
pub(in crate::proxy) mod timer;
mod turn;

pub use reader::{HeadEvents, HeadReader, ReaderSettings};
pub use scan::{Follows, Foreign, Head, HeadError, HeadLimits, Progress, Scan};
pub use turn::{ServiceOpen, Turn};
