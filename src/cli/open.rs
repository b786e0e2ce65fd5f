use super::Exit;
use crate::policy::Policy;
use std::path::Path;
pub(super) fn policy(_: Option<&Path>) -> Result<Policy, Exit> { Err(Exit::Invalid) }
