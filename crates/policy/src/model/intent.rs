//! The meaning of a refusal to the crawler, independent of the status on the wire.

use super::words::words;

words! {
    /// The meaning of a refusal. The crawler's profile maps it to a status.
    pub enum Intent {
        /// The URL must not be fetched.
        Deny = "deny",
        /// The URL must not be fetched and must leave the index (OmniFind 760).
        Gone = "gone",
        /// The URL must not be fetched now or by this crawler, and must stay in the index (OmniFind
        /// 761).
        Keep = "keep",
        /// The request may be repeated after `Retry-After`.
        Later = "later",
    }
}
