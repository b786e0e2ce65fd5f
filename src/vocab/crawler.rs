//! Who is asking: the name of a configured crawler, or `anonymous`.

use std::fmt;
use std::sync::Arc;

use super::rule_id::Slug;

/// A crawler's name, as configured; clients without one are `anonymous`.
///
/// Cheap to clone: every request carries it into its record.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Crawler(Arc<str>);

impl Crawler {
    /// The name of a client that gave none.
    pub const ANONYMOUS: &'static str = "anonymous";

    /// A client without a name.
    pub fn anonymous() -> Self {
        Self(Self::ANONYMOUS.into())
    }

    /// A configured crawler.
    pub fn new(name: &Slug) -> Self {
        Self(name.as_str().into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Crawler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
