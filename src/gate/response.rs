//! From the origin's answer to the client: the stages behind the origin, in their order.

use http::response::Parts;

use super::judged::Judged;
use super::refusal::Refusal;
use super::stage::content;

/// Judges the origin's head, before a byte of its body is sent on.
///
/// # Errors
/// The refusal that takes the place of the origin's answer.
pub fn response<C>(judged: &mut Judged<C>, head: &Parts) -> Result<(), Box<Refusal>> {
    content::judge(judged, head)
}
