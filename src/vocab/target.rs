//! (arrives with its own commit)
