//! The gate: which requests may go to an origin, and which answers may come back.
//!
//! The order of the stages is written once, in `request.rs` and `response.rs`.

pub mod refusal;
