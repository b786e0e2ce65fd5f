//! `crawlgate env`: the variables that send the clients of a shell through the proxy, and let them trust it.
//!
//! It only prints: a process cannot change the environment of the shell that started it.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use crate::config::load::Overrides;
use crate::config::settings::{ListenerConfig, Settings, TlsConfig};

use super::args::{EnvArgs, Shell};
use super::exit::Exit;
use super::{console, inputs};

/// What is not sent to the proxy.
const NO_PROXY: &str = "localhost,127.0.0.1,::1";
/// Variables that replace a client's roots, so they name the system's roots and ours together.
const ROOT_FILE_VARIABLES: [&str; 3] = ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"];
/// The variable that adds to a client's roots.
const EXTRA_ROOTS_VARIABLE: &str = "NODE_EXTRA_CA_CERTS";

/// Runs the command. Exit 2 if the crawler has no listener, 3 if a path cannot be written down.
pub(super) fn run(args: &EnvArgs) -> Exit {
    let overrides = Overrides {
        config: args.config.clone(),
        ..Overrides::default()
    };
    let settings = match inputs::load_settings(&overrides) {
        Ok(loaded) => loaded.settings,
        Err(exit) => return exit,
    };
    let listener = match select_listener(&settings, args.crawler.as_deref()) {
        Ok(listener) => listener,
        Err(mistake) => return console::report_invalid(&mistake),
    };
    let shell = args
        .shell
        .unwrap_or_else(|| detect_shell(env::var("SHELL").ok().as_deref()));
    match client_variables(listener.address, &settings.tls) {
        Ok(variables) => console::print(&render_commands(shell, &variables), Exit::Success),
        Err(mistake) => console::report_cannot_run(&mistake),
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
            .ok_or_else(|| "nothing listens".to_owned());
    };
    let own = |listener: &&ListenerConfig| {
        listener
            .crawler
            .as_ref()
            .is_some_and(|slug| slug.as_str() == name)
    };
    all.iter().find(own).ok_or_else(|| {
        if settings.crawlers.iter().any(|registration| registration.crawler.as_str() == name) {
            format!(
                "crawler `{name}` has no listener of its own; if it has a password, put both into the proxy's URL: \
                 http://USER:PASSWORD@HOST:PORT"
            )
        } else {
            let known: Vec<&str> = settings.crawlers.iter().map(|r| r.crawler.as_str()).collect();
            format!("no crawler is called `{name}`; there are: {}", known.join(", "))
        }
    })
}

fn client_variables(
    listener: SocketAddr,
    tls: &TlsConfig,
) -> Result<Vec<(&'static str, String)>, String> {
    let proxy = format!("http://{}", client_address(listener));
    let mut all: Vec<(&str, String)> = ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"]
        .map(|name| (name, proxy.clone()))
        .into();
    all.extend(["no_proxy", "NO_PROXY"].map(|name| (name, NO_PROXY.to_owned())));
    if !tls.intercept {
        return Ok(all);
    }
    let bundle = absolute_path(&tls.bundle)?;
    // One file each: of several authorities a client may meet any, so it gets them with the roots.
    let added = match tls.authorities.as_slice() {
        [one] => absolute_path(&one.cert)?,
        _ => bundle.clone(),
    };
    for file in [&bundle, &added] {
        if !Path::new(file).exists() {
            console::warn(&format!(
                "{file} is not there yet: `crawlgate run` makes it, and `crawlgate ca init`"
            ));
        }
    }
    all.extend(ROOT_FILE_VARIABLES.map(|name| (name, bundle.clone())));
    all.push((EXTRA_ROOTS_VARIABLE, added));
    Ok(all)
}

/// Where a client on this machine reaches a listener.
fn client_address(listener: SocketAddr) -> SocketAddr {
    let home = match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    SocketAddr::new(home, listener.port())
}

/// A path that is right in every directory, without detours as far as it is there.
fn absolute_path(path: &Path) -> Result<String, String> {
    let unfit = || format!("{} cannot be written into a variable", path.display());
    let whole = |path: &Path| fs::canonicalize(path).ok();
    let found = whole(path).or_else(|| {
        let directory = path
            .parent()
            .filter(|directory| !directory.as_os_str().is_empty());
        Some(whole(directory.unwrap_or(Path::new(".")))?.join(path.file_name()?))
    });
    let found: PathBuf = match found {
        Some(found) => found,
        None => std::path::absolute(path).map_err(|_| unfit())?,
    };
    found.into_os_string().into_string().map_err(|_| unfit())
}

fn detect_shell(program: Option<&str>) -> Shell {
    match program.and_then(|path| path.rsplit('/').next()) {
        Some("fish") => Shell::Fish,
        Some("pwsh" | "powershell") => Shell::Powershell,
        Some(_) | None => Shell::Sh,
    }
}

/// The commands, then how to use them: a comment in front would swallow all that follows where `eval` joins lines.
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
    let _ = writeln!(text, "# Run this to set them in this shell:\n#   {usage}");
    text
}

/// A value in single quotes, with what would end them written as the shell wants it.
fn quote(value: &str, special: &[(char, &str)]) -> String {
    let mut text = String::from("'");
    for letter in value.chars() {
        match special.iter().find(|(plain, _)| *plain == letter) {
            Some((_, instead)) => text.push_str(instead),
            None => text.push(letter),
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
    fn the_shell_is_told_by_its_program() {
        for (program, shell) in [
            (None, Shell::Sh),
            (Some("/bin/bash"), Shell::Sh),
            (Some("/usr/bin/fish"), Shell::Fish),
            (Some("pwsh"), Shell::Powershell),
        ] {
            assert_eq!(detect_shell(program), shell, "{program:?}");
        }
    }

    #[test]
    fn a_listener_on_all_addresses_is_reached_at_home() {
        for (listener, home) in [
            ("0.0.0.0:3128", "127.0.0.1:3128"),
            ("[::]:3128", "[::1]:3128"),
            ("192.0.2.1:1", "192.0.2.1:1"),
        ] {
            assert_eq!(
                client_address(listener.parse().unwrap()),
                home.parse().unwrap()
            );
        }
    }
}
