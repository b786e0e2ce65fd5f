//! The configurations and policies that commands read, with their problems reported on standard error.

use std::io::{self, BufRead};
use std::path::Path;

use crate::config::load::{self, Environment, LoadedConfig, Overrides};
use crate::config::policy;
use crate::config::settings::{PolicyOrigin, Settings};
use crate::diagnostics::problem::Problem;
use crate::policy::Policy;
use crate::policy::compile::CompiledPolicy;

use super::Exit;
use super::args::RunArgs;
use super::console::{note, print_problems, report_invalid};
use super::text::sanitize_text;

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

/// Returns the named policy, or the one that `run` would use.
pub(super) fn policy_origin(named: Option<&Path>) -> Result<PolicyOrigin, Exit> {
    match named {
        Some(path) => Ok(PolicyOrigin::Path(path.to_owned())),
        None => load_settings(&Overrides::default()).map(|loaded| loaded.settings.policy.origin),
    }
}

/// Loads a policy without running its cases. Reports errors, but no warnings, which `check` reports.
pub(super) fn load_policy(named: Option<&Path>) -> Result<Policy, Exit> {
    compile_policy(&policy_origin(named)?).map(|compiled| compiled.policy)
}

/// Compiles a policy, and its cases without running them. Names the policy on standard error, so that nobody takes it for
/// that of another directory or of the running proxy.
pub(super) fn compile_policy(origin: &PolicyOrigin) -> Result<CompiledPolicy, Exit> {
    let compiled = policy::open(origin).map_err(|problems| report_errors(&problems))?;
    let source = match origin {
        PolicyOrigin::Path(path) => sanitize_text(&path.display().to_string()).into_owned(),
        PolicyOrigin::BuiltIn => "the built-in policy".to_owned(),
    };
    note(&format!(
        "policy {} ({source})",
        compiled.policy.name_and_revision()
    ));
    Ok(compiled)
}

/// Loads the configuration, and reports its errors and warnings.
pub(super) fn load_settings(overrides: &Overrides) -> Result<LoadedConfig, Exit> {
    let loaded = load::load(overrides, &Environment::from_process())
        .map_err(|problems| report_errors(&problems))?;
    print_problems(&loaded.problems);
    Ok(loaded)
}

/// Loads the named configuration, or the one that `run` would use, and reports its errors and warnings.
pub(super) fn load_config(named: Option<&Path>) -> Result<Settings, Exit> {
    let overrides = Overrides {
        config: named.map(Path::to_owned),
        ..Overrides::default()
    };
    load_settings(&overrides).map(|loaded| loaded.settings)
}

/// Loads the configuration, and reports its errors only: warnings matter to the proxy, not to its clients.
pub(super) fn load_quietly(overrides: &Overrides) -> Result<LoadedConfig, Exit> {
    load::load(overrides, &Environment::from_process()).map_err(|problems| report_errors(&problems))
}

/// Calls a function for each URL, or for each line of `stdin` without its end if there are no URLs.
///
/// Spaces at the end of a line are kept: they are an error to report.
pub(super) fn for_each_url(
    urls: &[String],
    stdin: &mut dyn BufRead,
    mut check: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    if !urls.is_empty() {
        return urls.iter().try_for_each(|url| check(url.as_bytes()));
    }
    let mut line = Vec::new();
    while stdin.read_until(b'\n', &mut line)? > 0 {
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        check(text.strip_suffix(b"\r").unwrap_or(text))?;
        line.clear();
    }
    Ok(())
}

/// Reports the errors of a list of problems, but no warnings, which `check` reports.
pub(super) fn report_errors(problems: &[Problem]) -> Exit {
    let errors: Vec<Problem> = problems
        .iter()
        .filter(|problem| problem.is_error())
        .cloned()
        .collect();
    print_problems(&errors);
    report_invalid(&match errors.len() {
        1 => "1 error, nothing was done".to_owned(),
        n => format!("{n} errors, nothing was done"),
    })
}
