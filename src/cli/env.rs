//! `crawlgate env`: prints the environment variables that make the clients of a shell use and trust the proxy.
//!
//! They are those of the running proxy, wherever the command is run; if none answers, those of the configuration file. All
//! that clients need is printed, or nothing. The command only prints them, since a process cannot change the environment of the shell that started it.

use std::env;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::config::canonical_path;
use crate::config::settings::Settings;
use crate::pipeline::crawlers::AnonymousAccess;

use super::admin_client::{client_address, get_array, get_or_null, get_str};
use super::args::{EnvArgs, ProxyArgs, Shell};
use super::running_proxy::RunningProxy;
use super::{Exit, console, inputs};

/// The hosts that clients connect to directly.
const NO_PROXY: &str = "localhost,127.0.0.1,::1";
/// Variables that replace the roots of a client; their value contains the roots of the system as well.
const ROOT_FILE_VARIABLES: [&str; 3] = ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"];
/// The variable that adds to the roots of a client.
const EXTRA_ROOTS_VARIABLE: &str = "NODE_EXTRA_CA_CERTS";

/// Runs the command. Exits with 2 if the crawler has no listener, with 3 if something that clients need is unknown or does
/// not exist.
pub(super) fn run(args: &EnvArgs) -> Result<Exit, Exit> {
    let settings = ClientSettings::find(&args.proxy)?;
    let listener = settings
        .select_listener(args.crawler.as_deref())
        .map_err(|error| console::report_invalid(&error))?;
    let variables = settings
        .variables(listener)
        .map_err(|error| console::report_cannot_run(&error))?;
    let shell = args
        .shell
        .unwrap_or_else(|| detect_shell(env::var("SHELL").ok().as_deref()));
    let text = render_commands(shell, &variables);
    Ok(console::print(&text, Exit::Success))
}

/// Returns `true` if the proxy answers clients without credentials with 407, unless they use a crawler's own listener or
/// network.
fn needs_password(settings: &Settings) -> bool {
    settings.anonymous == AnonymousAccess::Deny
        && settings
            .crawlers
            .iter()
            .any(|crawler| crawler.auth.is_some())
}

/// The settings of a proxy that its clients need.
#[derive(Debug, PartialEq, Eq)]
struct ClientSettings {
    listeners: Vec<ClientListener>,
    /// The files to trust; `None` if TLS is not intercepted.
    trust: Option<TrustFiles>,
}

/// A listener of the proxy.
#[derive(Debug, PartialEq, Eq)]
struct ClientListener {
    address: SocketAddr,
    /// The crawler that every client of it is.
    crawler: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
struct TrustFiles {
    authorities: Vec<PathBuf>,
    bundle: PathBuf,
}

impl ClientSettings {
    /// Asks the running proxy, else reads the configuration file. Names the source on standard error.
    fn find(args: &ProxyArgs) -> Result<Self, Exit> {
        let loaded = inputs::load_quietly(&args.overrides())?;
        if loaded.file.is_some() && args.admin.is_none() && needs_password(&loaded.settings) {
            console::note(
                &"clients of this proxy need a user and a password, which these variables lack: write \
                 http://USER:PASSWORD@HOST:PORT into them",
            );
        }
        let proxy = RunningProxy::new(args, &loaded);
        let error = match proxy.get("/api/v1/status") {
            Ok(status) => match Self::from_status(&status, proxy.address) {
                Some(settings) => {
                    let policy = get_or_null(&status, "policy");
                    console::note(&format!(
                        "{proxy}, policy {}@{}",
                        get_str(policy, "name"),
                        get_str(policy, "revision")
                    ));
                    return Ok(settings);
                }
                None => format!("{proxy} does not name its listeners: it is an older version"),
            },
            Err(error) => error.to_string(),
        };
        match &loaded.file {
            Some(file) if args.admin.is_none() => {
                console::note(&format!("{} ({error})", file.display()));
                Ok(Self::from_settings(&loaded.settings))
            }
            Some(_) | None => Err(console::report_cannot_run(&error)),
        }
    }

    fn from_settings(settings: &Settings) -> Self {
        let tls = &settings.tls;
        Self {
            listeners: settings
                .listen
                .iter()
                .map(|listener| ClientListener {
                    address: client_address(listener.address),
                    crawler: listener
                        .crawler
                        .as_ref()
                        .map(|crawler| crawler.as_str().to_owned()),
                })
                .collect(),
            trust: tls.intercept.then(|| TrustFiles {
                authorities: tls
                    .authorities
                    .iter()
                    .map(|files| files.cert.clone())
                    .collect(),
                bundle: tls.bundle.clone(),
            }),
        }
    }

    /// Reads `/api/v1/status` of the proxy whose admin listener is at this address.
    fn from_status(status: &Json, admin: SocketAddr) -> Option<Self> {
        let listeners = status.get("listeners")?.as_array()?.iter().map(|listener| {
            let mut address: SocketAddr = get_str(listener, "address").parse().ok()?;
            if address.ip().is_unspecified() {
                address.set_ip(admin.ip());
            }
            Some(ClientListener {
                address,
                crawler: get_or_null(listener, "crawler").as_str().map(str::to_owned),
            })
        });
        let https = status.get("https")?;
        let trust = match https.get("intercept")?.as_bool()? {
            true => Some(TrustFiles {
                authorities: get_array(https, "authorities")
                    .iter()
                    .filter_map(|path| path.as_str().map(PathBuf::from))
                    .collect(),
                bundle: https.get("bundle")?.as_str()?.into(),
            }),
            false => None,
        };
        Some(Self {
            listeners: listeners.collect::<Option<Vec<_>>>()?,
            trust,
        })
    }

    fn select_listener(&self, crawler: Option<&str>) -> Result<SocketAddr, String> {
        let all = &self.listeners;
        let Some(name) = crawler else {
            let general = all.iter().find(|listener| listener.crawler.is_none());
            return general
                .or(all.first())
                .map(|listener| listener.address)
                .ok_or_else(|| "the proxy has no listener".to_owned());
        };
        let named = || {
            all.iter()
                .filter_map(|listener| listener.crawler.as_deref())
        };
        all.iter()
            .find(|listener| listener.crawler.as_deref() == Some(name))
            .map(|listener| listener.address)
            .ok_or_else(|| {
                let known = match named().collect::<Vec<_>>() {
                    known if known.is_empty() => "no crawler has one".to_owned(),
                    known => format!("these have one: {}", known.join(", ")),
                };
                format!(
                    "crawler `{name}` has no listener in `listen` ({known}); if it has a password, write the user and the \
                     password into the URL of the proxy: http://USER:PASSWORD@HOST:PORT"
                )
            })
    }

    fn variables(&self, listener: SocketAddr) -> Result<Vec<(&'static str, String)>, String> {
        let proxy = format!("http://{listener}");
        let mut variables: Vec<(&str, String)> =
            ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"]
                .map(|name| (name, proxy.clone()))
                .into();
        variables.extend(["no_proxy", "NO_PROXY"].map(|name| (name, NO_PROXY.to_owned())));
        let Some(trust) = &self.trust else {
            return Ok(variables);
        };
        let bundle = path_value(&trust.bundle)?;
        // The variable takes one file. With several authorities, only the bundle contains all of them.
        let extra_roots = match trust.authorities.as_slice() {
            [authority] => path_value(authority)?,
            _ => bundle.clone(),
        };
        for file in [&bundle, &extra_roots] {
            if !Path::new(file).exists() {
                return Err(missing_file_message(file));
            }
        }
        variables.extend(ROOT_FILE_VARIABLES.map(|name| (name, bundle.clone())));
        variables.push((EXTRA_ROOTS_VARIABLE, extra_roots));
        Ok(variables)
    }
}

/// Without the file, clients would fail for every URL of HTTPS, so that nothing is printed.
fn missing_file_message(file: &str) -> String {
    format!(
        "the proxy intercepts TLS, and {file}, which clients must trust, does not exist here: `crawlgate run` or \
         `crawlgate ca init` creates it; if the proxy runs on another machine or in a container, save /ca.pem of its admin \
         listener, and let clients trust that"
    )
}

/// Returns the absolute path of a file as the value of a variable.
fn path_value(path: &Path) -> Result<String, String> {
    let absolute = canonical_path(path).into_os_string();
    absolute.into_string().map_err(|absolute| {
        format!(
            "the path {} cannot be written into an environment variable",
            absolute.display()
        )
    })
}

fn detect_shell(program: Option<&str>) -> Shell {
    match program.and_then(|path| path.rsplit('/').next()) {
        Some("fish") => Shell::Fish,
        Some("pwsh" | "powershell") => Shell::Powershell,
        Some(_) | None => Shell::Sh,
    }
}

/// Renders the commands that set the variables, then a comment with their usage.
///
/// The comment comes last, since `eval` may join the lines, and all text after a comment would be part of it.
fn render_commands(shell: Shell, variables: &[(&str, String)]) -> String {
    let mut text = String::new();
    for (name, value) in variables {
        let _ = match shell {
            Shell::Sh => writeln!(text, "export {name}={};", quote(value, &[('\'', r"'\''")])),
            Shell::Fish => {
                writeln!(
                    text,
                    "set -gx {name} {};",
                    quote(value, &[('\\', r"\\"), ('\'', r"\'")])
                )
            }
            Shell::Powershell => {
                writeln!(text, "$env:{name} = {};", quote(value, &[('\'', "''")]))
            }
        };
    }
    let usage = match shell {
        Shell::Sh => r#"eval "$(crawlgate env)""#,
        Shell::Fish => "crawlgate env --shell fish | source",
        Shell::Powershell => "crawlgate env --shell powershell | Out-String | Invoke-Expression",
    };
    let _ = writeln!(
        text,
        "# To set these variables in this shell, run:\n#   {usage}"
    );
    text
}

/// Quotes a value with single quotes, and replaces the special characters with their escapes.
fn quote(value: &str, escapes: &[(char, &str)]) -> String {
    let mut text = String::from("'");
    for character in value.chars() {
        match escapes.iter().find(|(special, _)| *special == character) {
            Some((_, escape)) => text.push_str(escape),
            None => text.push(character),
        }
    }
    text.push('\'');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_reads_back_what_was_written() {
        for (shell, line) in [
            (Shell::Sh, r"export A='/it'\''s $HOME\x';"),
            (Shell::Fish, r"set -gx A '/it\'s $HOME\\x';"),
            (Shell::Powershell, r"$env:A = '/it''s $HOME\x';"),
        ] {
            let text = render_commands(shell, &[("A", r"/it's $HOME\x".to_owned())]);
            assert_eq!(text.lines().next(), Some(line));
        }
    }

    #[test]
    fn the_shell_is_detected_by_its_program() {
        for (program, shell) in [
            (None, Shell::Sh),
            (Some("/bin/bash"), Shell::Sh),
            (Some("/usr/bin/fish"), Shell::Fish),
            (Some("pwsh"), Shell::Powershell),
        ] {
            assert_eq!(detect_shell(program), shell, "{program:?}");
        }
    }
}
