//! Which options exist, what values they take, their defaults, and what this version does with them.

use super::Slot;

/// `disposition`.
pub const DISPOSITION: Slot = Slot(0);
/// `reject`.
pub const REJECT: Slot = Slot(1);
/// `reject_status`.
pub const REJECT_STATUS: Slot = Slot(2);
/// `record`.
pub const RECORD: Slot = Slot(3);
/// `html_only`.
pub const HTML_ONLY: Slot = Slot(4);
/// `max_depth`.
pub const MAX_DEPTH: Slot = Slot(5);
/// `max_body`.
pub const MAX_BODY: Slot = Slot(6);
/// `tunnel_undecided`.
pub const TUNNEL_UNDECIDED: Slot = Slot(7);
