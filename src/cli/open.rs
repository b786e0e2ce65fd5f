//! What commands open before they work: configurations and policies, with their problems told on standard error.

use std::path::Path;

use crate::config::load::{self, Loaded, Overrides, Surroundings};
use crate::config::policy;
use crate::config::settings::{PolicyOrigin, Settings};
use crate::policy::Policy;
use crate::policy::compile::Compiled;
use crate::vocab::problem::Problem;

use super::Exit;
use super::args::RunArgs;
use super::out::{complain, tell};

impl From<&RunArgs> for Overrides {
    fn from(args: &RunArgs) -> Self {
        Self {
            config: args.config.clone(),
            policy: args.policy.clone(),
            listen: args.listen,
            admin: args.admin,
        }
    }
}

/// The policy that is named, else the one that `run` would use.
pub(super) fn origin(named: Option<&Path>) -> Result<PolicyOrigin, Exit> {
    match named {
        Some(path) => Ok(PolicyOrigin::Path(path.to_owned())),
        None => settings(&Overrides::default()).map(|loaded| loaded.settings.policy.origin),
    }
}

/// A policy to ask, whatever becomes of its cases. Errors are told; what is only doubtful is for `check`.
pub(super) fn policy(named: Option<&Path>) -> Result<Policy, Exit> {
    compiled(&origin(named)?).map(|compiled| compiled.policy)
}

/// A policy with its cases, to be asked for given facts.
pub(super) fn compiled(origin: &PolicyOrigin) -> Result<Compiled, Exit> {
    policy::open(origin).map_err(|problems| refused(&problems))
}

pub(super) fn settings(overrides: &Overrides) -> Result<Loaded, Exit> {
    let loaded = load::load(overrides, &Surroundings::of_process())
        .map_err(|problems| refused(&problems))?;
    tell(&loaded.problems);
    Ok(loaded)
}

/// The same, and what is only doubtful is for those who run under it.
pub(super) fn settings_alone(overrides: &Overrides) -> Result<Settings, Exit> {
    let loaded = load::load(overrides, &Surroundings::of_process());
    loaded
        .map(|loaded| loaded.settings)
        .map_err(|problems| refused(&problems))
}

/// Tells the errors, and leaves the warnings beside them to `check`.
pub(super) fn refused(problems: &[Problem]) -> Exit {
    let errors: Vec<Problem> = problems.iter().filter(|p| p.is_error()).cloned().collect();
    tell(&errors);
    complain(&match errors.len() {
        1 => "1 error, nothing was done".to_owned(),
        n => format!("{n} errors, nothing was done"),
    })
}
