//! What commands open before they work: configurations and policies, with their problems told on standard error.

use std::path::Path;

use crate::config::load::{self, Environment, LoadedConfig, Overrides};
use crate::config::policy;
use crate::config::settings::{PolicyOrigin, Settings};
use crate::diagnostics::problem::Problem;
use crate::policy::Policy;
use crate::policy::compile::CompiledPolicy;

use super::Exit;
use super::args::RunArgs;
use super::console::{print_problems, report_invalid};

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
pub(super) fn policy_origin(named: Option<&Path>) -> Result<PolicyOrigin, Exit> {
    match named {
        Some(path) => Ok(PolicyOrigin::Path(path.to_owned())),
        None => load_settings(&Overrides::default()).map(|loaded| loaded.settings.policy.origin),
    }
}

/// A policy to ask, whatever becomes of its cases. Errors are told; what is only doubtful is for `check`.
pub(super) fn load_policy(named: Option<&Path>) -> Result<Policy, Exit> {
    compile_policy(&policy_origin(named)?).map(|compiled| compiled.policy)
}

/// A policy with its cases, to be asked for given facts.
pub(super) fn compile_policy(origin: &PolicyOrigin) -> Result<CompiledPolicy, Exit> {
    policy::open(origin).map_err(|problems| report_errors(&problems))
}

pub(super) fn load_settings(overrides: &Overrides) -> Result<LoadedConfig, Exit> {
    let loaded = load::load(overrides, &Environment::from_process())
        .map_err(|problems| report_errors(&problems))?;
    print_problems(&loaded.problems);
    Ok(loaded)
}

/// The same, and what is only doubtful is for those who run under it.
pub(super) fn load_settings_quietly(overrides: &Overrides) -> Result<Settings, Exit> {
    let loaded = load::load(overrides, &Environment::from_process());
    loaded
        .map(|loaded| loaded.settings)
        .map_err(|problems| report_errors(&problems))
}

/// Tells the errors, and leaves the warnings beside them to `check`.
pub(super) fn report_errors(problems: &[Problem]) -> Exit {
    let errors: Vec<Problem> = problems.iter().filter(|p| p.is_error()).cloned().collect();
    print_problems(&errors);
    report_invalid(&match errors.len() {
        1 => "1 error, nothing was done".to_owned(),
        n => format!("{n} errors, nothing was done"),
    })
}
