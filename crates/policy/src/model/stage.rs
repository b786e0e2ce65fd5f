//! The stages of a request, in order.

use super::words::words;

words! {
    /// A stage in the path of a request: the value of `stage` in headers, logs and metrics.
    pub enum Stage {
        /// Identification of the crawler.
        Identify = "identify",
        /// Validation of the request target.
        Target = "target",
        /// The policy, before the request is sent.
        Request = "request",
        /// The ledger's knowledge of the URL.
        Ledger = "ledger",
        /// Resolution of the host's addresses.
        Destination = "destination",
        /// The origin's robots.txt.
        Robots = "robots",
        /// The wait required by the host's pace.
        Pace = "pace",
        /// A CONNECT, before the tunnel opens.
        Connect = "connect",
        /// The exchange with the origin.
        Upstream = "upstream",
        /// The policy, once the response head is known.
        Response = "response",
        /// The policy, once the beginning of the document is known.
        Document = "document",
    }
}
