//! Nodes, their processes, and time as a node measures it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The name of a node, `fleet.node`: 1 to 63 letters, digits, `-`, `.` and `_`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(Arc<str>);

/// A text that is not a node name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a node name has 1 to 63 letters, digits, `-`, `.` or `_`, and begins with a letter or digit"
)]
pub struct NodeNameError;

impl NodeName {
    /// The longest name in bytes, so that it can be a label of a host name.
    pub const MAX_LENGTH: usize = 63;

    /// Checks a name.
    ///
    /// # Errors
    ///
    /// If the text is empty, too long, or has another character.
    pub fn new(text: &str) -> Result<Self, NodeNameError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        let begins = text
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric());
        if begins && text.len() <= Self::MAX_LENGTH && text.bytes().all(is_allowed) {
            Ok(Self(text.into()))
        } else {
            Err(NodeNameError)
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The random number of one process of a node. A node that restarts is another incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// The number of times that a partition has changed its owner. It only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch of the next owner.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A node that can own partitions, and where other nodes reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name.
    pub node: NodeName,
    /// The process.
    pub incarnation: Incarnation,
    /// The address for links of other nodes.
    pub address: SocketAddr,
}

/// A moment on the clock of one machine that also counts while the machine is suspended. Times of two machines cannot
/// be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(pub Duration);

impl BootTime {
    /// The moment that is later by a duration.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// The time since an earlier moment; zero if it is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
