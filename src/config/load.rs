//! Which configuration holds: finds the file, reads it, puts the command line's words over it, resolves paths.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;

use super::file::{ConfigFile, VariableLookup};
use super::settings::{
    AdminConfig, ListenerConfig, LogTarget, LogsConfig, PolicyConfig, PolicyOrigin, RotateConfig,
    Settings, StoreConfig,
};

/// The configuration that is used if none is named and it is there.
pub const DEFAULT_CONFIG_PATH: &str = "config/crawlgate.yaml";
/// The policy that is used without a configuration, if it is there.
pub const DEFAULT_POLICY_PATH: &str = "config/policy.yaml";
/// The environment variable that names the configuration.
pub const CONFIG_VARIABLE: &str = "CRAWLGATE_CONFIG";

/// What the command line says of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--policy`, from the working directory.
    pub policy: Option<PathBuf>,
    /// `--listen`.
    pub listen: Option<SocketAddr>,
    /// `--admin`.
    pub admin: Option<SocketAddr>,
}

/// What is around the process.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    /// The working directory; empty for that of the process, so that paths are shown as they are written.
    pub directory: &'a Path,
    /// The environment.
    pub variables: VariableLookup<'a>,
}

impl Environment<'_> {
    /// Those of this process.
    pub fn from_process() -> Environment<'static> {
        Environment {
            directory: Path::new(""),
            variables: &process_variable,
        }
    }
}

/// A variable that is not UTF-8 counts as unset: no setting could hold it.
fn process_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Settings, and where they come from.
#[derive(Debug)]
pub struct LoadedConfig {
    /// The settings.
    pub settings: Settings,
    /// The configuration file, if there is one.
    pub file: Option<PathBuf>,
    /// Warnings.
    pub problems: Vec<Problem>,
}

/// Loads the configuration.
///
/// # Errors
/// Everything that is wrong with it, warnings included; a named policy that is missing too. Whether the settings are
/// dangerous is not asked here: see [`Settings::dangers`].
pub fn load(
    overrides: &Overrides,
    environment: &Environment<'_>,
) -> Result<LoadedConfig, Vec<Problem>> {
    let file = find_config_file(overrides, environment);
    let mut problems = Problems::new();
    let config = match &file {
        Some(path) => match read_text(path) {
            Ok(text) => ConfigFile::parse(
                &display_path(path),
                &text,
                environment.variables,
                &mut problems,
            ),
            Err(mistake) => {
                return Err(vec![Problem::error(
                    &SourceLocation::for_file(&display_path(path)),
                    mistake,
                )]);
            }
        },
        None => ConfigFile::default(),
    };
    let home = BasePaths::new(file.as_deref(), environment);
    let settings = resolve(config, overrides, &home, &mut problems);
    let refused = problems.has_errors();
    let problems = problems.into_vec();
    if refused {
        Err(problems)
    } else {
        Ok(LoadedConfig {
            settings,
            file,
            problems,
        })
    }
}

/// The file that holds: named, or the usual one if it is there.
fn find_config_file(overrides: &Overrides, environment: &Environment<'_>) -> Option<PathBuf> {
    if let Some(path) = &overrides.config {
        return Some(environment.directory.join(path));
    }
    if let Some(path) = (environment.variables)(CONFIG_VARIABLE).filter(|path| !path.is_empty()) {
        return Some(environment.directory.join(path));
    }
    Some(environment.directory.join(DEFAULT_CONFIG_PATH)).filter(|path| path.exists())
}

/// The text of a file; the error says what is wrong with it as a whole.
fn read_text(path: &Path) -> Result<String, String> {
    let bytes =
        fs::read(path).map_err(|error| format!("the configuration cannot be read: {error}"))?;
    String::from_utf8(bytes).map_err(|error| {
        format!(
            "the file is not UTF-8: byte {} is wrong",
            error.utf8_error().valid_up_to() + 1
        )
    })
}

fn display_path(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}

/// Where relative paths of the configuration start.
struct BasePaths {
    config_directory: PathBuf,
    /// The policy that is used if none is named and it is there.
    default_policy: PathBuf,
    /// The directory that holds the usual `certs/` and `var/`.
    data_root: PathBuf,
}

impl BasePaths {
    fn new(file: Option<&Path>, environment: &Environment<'_>) -> Self {
        match file.and_then(Path::parent) {
            Some(directory) => {
                let (policy, around) = (directory.join("policy.yaml"), parent_directory(directory));
                Self {
                    default_policy: policy,
                    data_root: around,
                    config_directory: directory.to_owned(),
                }
            }
            None => {
                let directory = environment.directory.to_owned();
                Self {
                    default_policy: directory.join(DEFAULT_POLICY_PATH),
                    data_root: directory.clone(),
                    config_directory: directory,
                }
            }
        }
    }
}

/// The directory above the configuration's: `certs/` and `var/` are beside `config/`.
fn parent_directory(directory: &Path) -> PathBuf {
    match directory.file_name() {
        Some(_) => directory.parent().map(Path::to_owned).unwrap_or_default(),
        None => directory.join(".."),
    }
}

fn resolve(
    config: ConfigFile,
    overrides: &Overrides,
    base: &BasePaths,
    problems: &mut Problems,
) -> Settings {
    let origin = match &overrides.policy {
        Some(path) => PolicyOrigin::Path(path.clone()),
        None => resolve_origin(config.policy_path, base, problems),
    };
    let shadow = config
        .policy_shadow
        .map(|(written, place)| resolve_named_policy(&written, &place, base, problems));
    let token_file = config
        .token_file
        .map(|path| base.config_directory.join(path));
    Settings {
        listen: overrides.listen.map_or(config.listen, |address| {
            vec![ListenerConfig::for_all(address)]
        }),
        crawlers: config.crawlers,
        anonymous: config.anonymous,
        admin: AdminConfig {
            listen: overrides.admin.unwrap_or(config.admin_listen),
            token_file,
            names: config.admin_names,
        },
        policy: PolicyConfig {
            origin,
            watch: config.policy_watch,
            shadow,
        },
        profile: config.profile,
        tls: config.tls.resolve(&base.config_directory, &base.data_root),
        egress: config.egress,
        store: resolve_store(config.store_path, base),
        ledger: config.ledger.resolve(&base.config_directory),
        limits: config.limits,
        timeouts: config.timeouts,
        workers: config.workers,
        logs: LogsConfig {
            decisions: resolve_log_target(&config.logs.decisions, base),
            format: config.logs.format,
            rotate: config.logs.rotate_size.map(|size| RotateConfig {
                size,
                keep: config.logs.rotate_keep,
            }),
            allows: config.logs.allows,
            on_full: config.logs.on_full,
            redact_query: config.logs.redact_query,
        },
        telemetry: config.telemetry,
    }
}

/// A policy that is named must be there; one that is not named is used if it is there.
fn resolve_origin(
    named: Option<(String, SourceLocation)>,
    base: &BasePaths,
    problems: &mut Problems,
) -> PolicyOrigin {
    let Some((written, place)) = named else {
        if base.default_policy.exists() {
            return PolicyOrigin::Path(base.default_policy.clone());
        }
        // A broken configuration may have named one where nobody could read it.
        if !problems.has_errors() {
            problems.push(no_policy_warning(&base.default_policy));
        }
        return PolicyOrigin::BuiltIn;
    };
    PolicyOrigin::Path(self::resolve_named_policy(&written, &place, base, problems))
}

/// The path of a policy that is named.
fn resolve_named_policy(
    written: &str,
    place: &SourceLocation,
    base: &BasePaths,
    problems: &mut Problems,
) -> PathBuf {
    let path = base.config_directory.join(written);
    if !path.exists() {
        let looked = format!("looked for {}", path.display());
        problems.push(
            Problem::error(place, "there is no such policy")
                .with_found(written)
                .with_help(looked),
        );
    }
    path
}

fn no_policy_warning(usual: &Path) -> Problem {
    let message = "there is no policy: the built-in one is used, which refuses nothing";
    Problem::warning(&SourceLocation::for_file(&display_path(usual)), message)
        .with_help("write one there, or name one with --policy")
}

fn resolve_store(written: Option<String>, base: &BasePaths) -> StoreConfig {
    let usual = || {
        StoreConfig::default()
            .path
            .map(|path| base.data_root.join(path))
    };
    StoreConfig {
        path: written
            .map(|path| base.config_directory.join(path))
            .or_else(usual),
    }
}

fn resolve_log_target(written: &str, base: &BasePaths) -> LogTarget {
    match written {
        "stderr" => LogTarget::Stderr,
        "stdout" => LogTarget::Stdout,
        "none" => LogTarget::Discard,
        path => LogTarget::File(base.config_directory.join(path)),
    }
}
