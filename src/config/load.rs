//! Which configuration holds: finds the file, reads it, puts the command line's words over it, resolves paths.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::vocab::problem::{Place, Problem};
use crate::vocab::problems::Problems;

use super::file::{ConfigFile, Variables};
use super::settings::{
    Admin, Listener, LogTarget, Logs, PolicyOrigin, PolicySettings, Rotate, Settings, Store,
};

/// The configuration that is used if none is named and it is there.
pub const USUAL_FILE: &str = "config/crawlgate.yaml";
/// The policy that is used without a configuration, if it is there.
pub const USUAL_POLICY: &str = "config/policy.yaml";
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
pub struct Surroundings<'a> {
    /// The working directory; empty for that of the process, so that paths are shown as they are written.
    pub directory: &'a Path,
    /// The environment.
    pub variables: Variables<'a>,
}

impl Surroundings<'_> {
    /// Those of this process.
    pub fn of_process() -> Surroundings<'static> {
        Surroundings {
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
pub struct Loaded {
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
pub fn load(overrides: &Overrides, around: &Surroundings<'_>) -> Result<Loaded, Vec<Problem>> {
    let file = find(overrides, around);
    let mut problems = Problems::new();
    let config = match &file {
        Some(path) => match read(path) {
            Ok(text) => ConfigFile::read(&shown(path), &text, around.variables, &mut problems),
            Err(mistake) => {
                return Err(vec![Problem::error(&Place::of_file(&shown(path)), mistake)]);
            }
        },
        None => ConfigFile::default(),
    };
    let home = Home::of(file.as_deref(), around);
    let settings = resolve(config, overrides, &home, &mut problems);
    let refused = problems.has_errors();
    let problems = problems.into_vec();
    if refused {
        Err(problems)
    } else {
        Ok(Loaded {
            settings,
            file,
            problems,
        })
    }
}

/// The file that holds: named, or the usual one if it is there.
fn find(overrides: &Overrides, around: &Surroundings<'_>) -> Option<PathBuf> {
    if let Some(path) = &overrides.config {
        return Some(around.directory.join(path));
    }
    if let Some(path) = (around.variables)(CONFIG_VARIABLE).filter(|path| !path.is_empty()) {
        return Some(around.directory.join(path));
    }
    Some(around.directory.join(USUAL_FILE)).filter(|path| path.exists())
}

/// The text of a file; the error says what is wrong with it as a whole.
fn read(path: &Path) -> Result<String, String> {
    let bytes =
        fs::read(path).map_err(|error| format!("the configuration cannot be read: {error}"))?;
    String::from_utf8(bytes).map_err(|error| {
        format!(
            "the file is not UTF-8: byte {} is wrong",
            error.utf8_error().valid_up_to() + 1
        )
    })
}

fn shown(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}

/// Where relative paths of the configuration start.
struct Home {
    directory: PathBuf,
    /// The policy that is used if none is named and it is there.
    policy: PathBuf,
    /// The directory that holds the usual `certs/` and `var/`.
    around: PathBuf,
}

impl Home {
    fn of(file: Option<&Path>, around: &Surroundings<'_>) -> Self {
        match file.and_then(Path::parent) {
            Some(directory) => {
                let (policy, around) = (directory.join("policy.yaml"), beside(directory));
                Self {
                    policy,
                    around,
                    directory: directory.to_owned(),
                }
            }
            None => {
                let directory = around.directory.to_owned();
                Self {
                    policy: directory.join(USUAL_POLICY),
                    around: directory.clone(),
                    directory,
                }
            }
        }
    }
}

/// The directory above the configuration's: `certs/` and `var/` are beside `config/`.
fn beside(directory: &Path) -> PathBuf {
    match directory.file_name() {
        Some(_) => directory.parent().map(Path::to_owned).unwrap_or_default(),
        None => directory.join(".."),
    }
}

fn resolve(
    config: ConfigFile,
    overrides: &Overrides,
    home: &Home,
    problems: &mut Problems,
) -> Settings {
    let origin = match &overrides.policy {
        Some(path) => PolicyOrigin::Path(path.clone()),
        None => origin(config.policy_path, home, problems),
    };
    let shadow = config
        .policy_shadow
        .map(|(written, place)| named(&written, &place, home, problems));
    let token_file = config.token_file.map(|path| home.directory.join(path));
    Settings {
        listen: overrides
            .listen
            .map_or(config.listen, |address| vec![Listener::for_all(address)]),
        crawlers: config.crawlers,
        anonymous: config.anonymous,
        admin: Admin {
            listen: overrides.admin.unwrap_or(config.admin_listen),
            token_file,
            names: config.admin_names,
        },
        policy: PolicySettings {
            origin,
            watch: config.policy_watch,
            shadow,
        },
        profile: config.profile,
        tls: config.tls.resolve(&home.directory, &home.around),
        egress: config.egress,
        store: store(config.store_path, home),
        ledger: config.ledger.resolve(&home.directory),
        limits: config.limits,
        timeouts: config.timeouts,
        workers: config.workers,
        logs: Logs {
            decisions: log_target(&config.logs.decisions, home),
            format: config.logs.format,
            rotate: config.logs.rotate_size.map(|size| Rotate {
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
fn origin(named: Option<(String, Place)>, home: &Home, problems: &mut Problems) -> PolicyOrigin {
    let Some((written, place)) = named else {
        if home.policy.exists() {
            return PolicyOrigin::Path(home.policy.clone());
        }
        // A broken configuration may have named one where nobody could read it.
        if !problems.has_errors() {
            problems.push(without_policy(&home.policy));
        }
        return PolicyOrigin::BuiltIn;
    };
    PolicyOrigin::Path(self::named(&written, &place, home, problems))
}

/// The path of a policy that is named.
fn named(written: &str, place: &Place, home: &Home, problems: &mut Problems) -> PathBuf {
    let path = home.directory.join(written);
    if !path.exists() {
        let looked = format!("looked for {}", path.display());
        problems.push(
            Problem::error(place, "there is no such policy")
                .found(written)
                .help(looked),
        );
    }
    path
}

fn without_policy(usual: &Path) -> Problem {
    let message = "there is no policy: the built-in one is used, which refuses nothing";
    Problem::warning(&Place::of_file(&shown(usual)), message)
        .help("write one there, or name one with --policy")
}

fn store(written: Option<String>, home: &Home) -> Store {
    let usual = || Store::default().path.map(|path| home.around.join(path));
    Store {
        path: written.map(|path| home.directory.join(path)).or_else(usual),
    }
}

fn log_target(written: &str, home: &Home) -> LogTarget {
    match written {
        "stderr" => LogTarget::Stderr,
        "stdout" => LogTarget::Stdout,
        "none" => LogTarget::Nowhere,
        path => LogTarget::File(home.directory.join(path)),
    }
}
