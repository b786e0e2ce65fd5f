//! `crawlgate env`: prints the environment variables that make the clients of a shell use and trust the proxy.
//!
//! The command only prints them, since a process cannot change the environment of the shell that started it.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::config::settings::{ListenerConfig, Settings, TlsConfig};

use super::admin_client::client_address;
use super::args::{EnvArgs, Shell};
use super::{Exit, console, inputs};

/// The hosts that clients connect to directly.
const NO_PROXY: &str = "localhost,127.0.0.1,::1";
/// Variables that replace the roots of a client; their value contains the roots of the system as well.
const ROOT_FILE_VARIABLES: [&str; 3] = ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"];
/// The variable that adds to the roots of a client.
const EXTRA_ROOTS_VARIABLE: &str = "NODE_EXTRA_CA_CERTS";

/// Runs the command. Exits with 2 if the crawler has no listener, with 3 if a path is not valid UTF-8.
pub(super) fn run(args: &EnvArgs) -> Exit {
    let settings = match inputs::load_config(args.config.as_deref()) {
        Ok(settings) => settings,
        Err(exit) => return exit,
    };
    let listener = match select_listener(&settings, args.crawler.as_deref()) {
        Ok(listener) => listener,
        Err(error) => return console::report_invalid(&error),
    };
    let shell = args
        .shell
        .unwrap_or_else(|| detect_shell(env::var("SHELL").ok().as_deref()));
    match client_variables(listener.address, &settings.tls) {
        Ok(variables) => console::print(&render_commands(shell, &variables), Exit::Success),
        Err(error) => console::report_cannot_run(&error),
    }
}

fn select_listener<'s>(
    settings: &'s Settings,
    crawler: Option<&str>,
) -> Result<&'s ListenerConfig, String> {
    let all = &settings.listen;
    let Some(name) = crawler else {
        let general = all.iter().find(|listener| listener.crawler.is_none());
        return general
            .or(all.first())
            .ok_or_else(|| "`listen` of the configuration has no listener".to_owned());
    };
    let own_listener = all.iter().find(|listener| {
        listener
            .crawler
            .as_ref()
            .is_some_and(|crawler| crawler.as_str() == name)
    });
    own_listener.ok_or_else(|| {
        let supported: Vec<&str> = settings
            .crawlers
            .iter()
            .map(|registration| registration.crawler.as_str())
            .collect();
        if supported.contains(&name) {
            format!(
                "crawler `{name}` has no listener in `listen`; if it has a password, write the user and the password \
                 into the URL of the proxy: http://USER:PASSWORD@HOST:PORT"
            )
        } else {
            format!(
                "there is no crawler `{name}` in the configuration; the crawlers are: {}",
                supported.join(", ")
            )
        }
    })
}

fn client_variables(
    listener: SocketAddr,
    tls: &TlsConfig,
) -> Result<Vec<(&'static str, String)>, String> {
    let proxy = format!("http://{}", client_address(listener));
    let mut variables: Vec<(&str, String)> =
        ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"]
            .map(|name| (name, proxy.clone()))
            .into();
    variables.extend(["no_proxy", "NO_PROXY"].map(|name| (name, NO_PROXY.to_owned())));
    if !tls.intercept {
        return Ok(variables);
    }
    let bundle = absolute_path(&tls.bundle)?;
    // The variable takes one file. With several authorities, only the bundle contains all of them.
    let extra_roots = match tls.authorities.as_slice() {
        [authority] => absolute_path(&authority.cert)?,
        _ => bundle.clone(),
    };
    for file in [&bundle, &extra_roots] {
        if !Path::new(file).exists() {
            console::warn(&format!(
                "{file} does not exist yet: `crawlgate run` or `crawlgate ca init` creates it"
            ));
        }
    }
    variables.extend(ROOT_FILE_VARIABLES.map(|name| (name, bundle.clone())));
    variables.push((EXTRA_ROOTS_VARIABLE, extra_roots));
    Ok(variables)
}

/// Returns the absolute path of a file, with symbolic links resolved as far as the path exists.
fn absolute_path(path: &Path) -> Result<String, String> {
    canonical_path(path)
        .or_else(|| std::path::absolute(path).ok())
        .and_then(|absolute| absolute.into_os_string().into_string().ok())
        .ok_or_else(|| {
            format!(
                "the path {} cannot be written into an environment variable",
                path.display()
            )
        })
}

fn canonical_path(path: &Path) -> Option<PathBuf> {
    if let Ok(path) = fs::canonicalize(path) {
        return Some(path);
    }
    let directory = path
        .parent()
        .filter(|directory| !directory.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    Some(fs::canonicalize(directory).ok()?.join(path.file_name()?))
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
