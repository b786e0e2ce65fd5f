//! The ownership of hosts in a fleet of proxies, without sockets, clocks or a store.
//!
//! All hosts fall into partitions ([`partition`]). A database says which node owns each partition; every node runs the
//! state machine of [`ownership`] on what it reads there, and publishes an [`view::OwnershipView`] for requests. Times
//! are arguments, and what the database should do is a value that the caller carries out.

pub mod node;
pub mod ownership;
pub mod partition;
pub mod view;
