//! Loads the configuration: finds the file, reads it, and applies the options of the command line.

use std::fs::File;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;

use super::base_paths::BasePaths;
use super::file::{ConfigFile, NamedPolicy, VariableLookup, listing};
use super::file_digest;
use super::policy;
use super::settings::{ListenerConfig, PolicyOrigin, Settings};
use super::timed_read::read_limited;

/// The configuration that is used if none is named and it exists.
pub const DEFAULT_CONFIG_PATH: &str = "config/crawlgate.yaml";
/// The environment variable that names the configuration.
pub const CONFIG_VARIABLE: &str = "CRAWLGATE_CONFIG";

/// Options of the command line that take precedence over the configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    pub config: Option<PathBuf>,
    /// `--policy`, relative to the working directory.
    pub policy: Option<PathBuf>,
    pub listen: Option<SocketAddr>,
    pub admin: Option<SocketAddr>,
}

/// The surroundings of the process.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// The working directory. If empty, that of the process, and messages show paths as they are written.
    pub directory: &'a Path,
    pub variables: VariableLookup<'a>,
}

impl Environment<'_> {
    pub fn from_process() -> Environment<'static> {
        Environment {
            directory: Path::new(""),
            variables: &process_variable,
        }
    }
}

/// Returns a variable of the process. One that is not UTF-8 counts as unset, since no setting could hold it.
fn process_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// A configuration that was loaded.
#[derive(Debug)]
pub struct LoadedConfig {
    pub settings: Settings,
    /// The configuration file, if there is one.
    pub file: Option<PathBuf>,
    /// Warnings.
    pub problems: Vec<Problem>,
}

/// Loads the configuration.
///
/// Settings that are dangerous together are accepted; see [`Settings::safety_errors`].
///
/// # Errors
/// Returns every problem of the file, warnings included, if one of them is an error. A named policy that does not exist
/// is an error too.
pub fn load(
    overrides: &Overrides,
    environment: &Environment<'_>,
) -> Result<LoadedConfig, Vec<Problem>> {
    let file = find_config_file(overrides, environment);
    let base = BasePaths::new(file.as_deref(), environment.directory);
    let mut problems = Problems::new();
    let mut digest = None;
    let config = match &file {
        Some(path) => {
            let name = display_path(path);
            let place = SourceLocation::for_file(&name);
            let text = read_text(path, &place)?;
            digest = Some(file_digest::digest(text.as_bytes()));
            ConfigFile::parse(&name, &text, &base, environment.variables, &mut problems)
        }
        None => ConfigFile::with_defaults(&base),
    };
    let mut settings = apply_overrides(config, overrides, &base, &mut problems);
    complete_listing(&mut settings, overrides, file.as_deref());
    settings.listing.digest = digest;
    if problems.has_errors() {
        return Err(problems.into_vec());
    }
    Ok(LoadedConfig {
        settings,
        file,
        problems: problems.into_vec(),
    })
}

/// Returns the file that is named, or the usual one if it exists.
fn find_config_file(overrides: &Overrides, environment: &Environment<'_>) -> Option<PathBuf> {
    if let Some(path) = &overrides.config {
        return Some(environment.directory.join(path));
    }
    if let Some(path) = (environment.variables)(CONFIG_VARIABLE).filter(|path| !path.is_empty()) {
        return Some(environment.directory.join(path));
    }
    Some(environment.directory.join(DEFAULT_CONFIG_PATH)).filter(|path| path.exists())
}

fn read_text(path: &Path, place: &SourceLocation) -> Result<String, Vec<Problem>> {
    let bytes = File::open(path).and_then(read_limited).map_err(|error| {
        let problem = if error.kind() == ErrorKind::NotFound {
            Problem::error(place, "there is no such file")
        } else {
            Problem::error(place, format!("the configuration cannot be read: {error}"))
        };
        vec![problem.with_help(
            "name another with --config or $CRAWLGATE_CONFIG, or write one with `crawlgate init`",
        )]
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let message = format!(
            "the file is not UTF-8: byte {} is wrong",
            error.utf8_error().valid_up_to() + 1
        );
        vec![Problem::error(place, message)]
    })
}

fn display_path(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}

/// Applies the command line, and checks that the policies exist.
fn apply_overrides(
    config: ConfigFile,
    overrides: &Overrides,
    base: &BasePaths,
    problems: &mut Problems,
) -> Settings {
    let mut settings = config.settings;
    if let Some(address) = overrides.listen {
        settings.listen = vec![ListenerConfig::for_all(address)];
    }
    if let Some(address) = overrides.admin {
        settings.admin.listen = address;
    }
    settings.policy.origin = match (&overrides.policy, config.policy) {
        (Some(path), _) => {
            reject_kept(
                path,
                &SourceLocation::for_file(&display_path(path)),
                problems,
            );
            PolicyOrigin::Path(path.clone())
        }
        (None, Some(named)) => PolicyOrigin::Path(resolve_policy(&named, base, problems)),
        (None, None) => default_policy(base, problems),
    };
    settings.policy.shadow = config
        .shadow
        .map(|named| resolve_policy(&named, base, problems));
    settings
}

/// Completes the list of settings for the admin page, whose readers run elsewhere: the path is absolute.
fn complete_listing(settings: &mut Settings, overrides: &Overrides, file: Option<&Path>) {
    let options = [
        ("policy.path", "--policy", overrides.policy.is_some()),
        ("listen", "--listen", overrides.listen.is_some()),
        ("admin.listen", "--admin", overrides.admin.is_some()),
    ];
    let given = options.iter().filter(|(_, _, given)| *given);
    let given: Vec<_> = given.map(|(key, option, _)| (*key, *option)).collect();
    let mut listed = settings.listing.settings.to_vec();
    listing::complete(&mut listed, settings, &given);
    settings.listing.settings = listed.into();
    settings.listing.file = file.map(|path| {
        let absolute = std::path::absolute(path);
        absolute.as_deref().unwrap_or(path).display().to_string()
    });
}

/// Returns the policy to use if none is named: the usual one if it exists.
fn default_policy(base: &BasePaths, problems: &mut Problems) -> PolicyOrigin {
    if base.default_policy.exists() {
        return PolicyOrigin::Path(base.default_policy.clone());
    }
    // A configuration with errors may name a policy where it could not be read.
    if !problems.has_errors() {
        let place = SourceLocation::for_file(&display_path(&base.default_policy));
        let message = "there is no policy: the built-in one is used, which refuses nothing";
        problems.push(
            Problem::warning(&place, message)
                .with_help("create this file, or name another with --policy"),
        );
    }
    PolicyOrigin::BuiltIn
}

/// Returns the path of a policy that the file names, which must exist.
fn resolve_policy(named: &NamedPolicy, base: &BasePaths, problems: &mut Problems) -> PathBuf {
    let path = base.resolve(&named.path);
    if !path.exists() {
        problems.push(
            Problem::error(&named.place, "there is no such policy")
                .with_found(&*named.path)
                .with_help(format!("looked for {}", path.display())),
        );
    }
    reject_kept(&path, &named.place, problems);
    path
}

/// Reports an error for a policy that a proxy keeps.
fn reject_kept(path: &Path, place: &SourceLocation, problems: &mut Problems) {
    if policy::is_kept(path) {
        let message = "this is a copy of an earlier policy, which the proxy deletes when it has newer ones, and which a promotion would \
                       overwrite";
        problems.push(
            Problem::error(place, message)
                .with_found(path.display().to_string())
                .with_help("copy its files; or `crawlgate policy rollback` puts it into force, and `crawlgate shadow set` shadows it"),
        );
    }
}
