//! `crawlgate identity`: creates, shows and publishes the keys by which origins recognize crawlers.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::clock::Clock;
use crate::identity::{Ed25519Key, KeyDirectory, KeyError, RequestSigners, WELL_KNOWN_PATH};

use super::args::{IdentityArgs, IdentityCommand, IdentityDirectoryArgs};
use super::{Exit, console, inputs};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Runs the command.
pub(super) fn run(args: &IdentityArgs) -> Result<Exit, Exit> {
    match &args.command {
        IdentityCommand::Key(key) => create_key(&key.file),
        IdentityCommand::Show => show(&load_signers(args)?),
        IdentityCommand::Directory(directory) => publish(&load_signers(args)?, directory),
    }
}

fn create_key(file: &Path) -> Result<Exit, Exit> {
    let key = Ed25519Key::create(file).map_err(|error| match error {
        KeyError::Exists(_) => console::report_invalid(&error),
        KeyError::File(_) | KeyError::NoKey(_) | KeyError::Unusable { .. } => {
            console::report_cannot_run(&error)
        }
    })?;
    let text = format!(
        "key         {}\nthumbprint  {}\n",
        file.display(),
        key.thumbprint()
    );
    Ok(console::print(&text, Exit::Success))
}

fn load_signers(args: &IdentityArgs) -> Result<RequestSigners, Exit> {
    let settings = inputs::load_config(args.config.as_deref())?;
    if settings.identities.is_empty() {
        let message = "no crawler has an `identity` in the configuration: give it `identity: { key: FILE, directory: URL }`";
        return Err(console::report_invalid(&message));
    }
    RequestSigners::load(&settings.identities).map_err(|error| console::report_cannot_run(&error))
}

fn show(signers: &RequestSigners) -> Result<Exit, Exit> {
    let mut text = String::new();
    for (crawler, signer) in signers.iter() {
        let _ = writeln!(text, "crawler     {crawler}");
        let _ = writeln!(text, "directory   {}{WELL_KNOWN_PATH}", signer.directory());
        for (index, key) in signer.keys().iter().enumerate() {
            let role = if index == 0 {
                "signs"
            } else {
                "published, does not sign"
            };
            let _ = writeln!(text, "key         {} ({role})", key.thumbprint());
        }
    }
    Ok(console::print(&text, Exit::Success))
}

fn publish(signers: &RequestSigners, args: &IdentityDirectoryArgs) -> Result<Exit, Exit> {
    let directory = select_directory(signers, args.directory.as_deref())?;
    let keys: Vec<&Ed25519Key> = signers.directory_keys(directory).collect();
    let authority = directory.trim_start_matches("https://");
    let now = Clock::system().wall_time();
    let published = KeyDirectory::new(&keys, authority, now, DAY * u32::from(args.days))
        .map_err(|error| console::report_cannot_run(&error))?;
    let mut text = String::new();
    for (name, value) in &published.fields {
        let _ = writeln!(text, "{name}: {value}");
    }
    if let Some(file) = &args.output {
        fs::write(file, &published.body)
            .map_err(|error| console::report_cannot_run(&format!("{}: {error}", file.display())))?;
        console::note(&format!(
            "{} is to be served at {directory}{WELL_KNOWN_PATH}, byte for byte, with these fields",
            file.display()
        ));
    } else {
        let _ = writeln!(text, "\n{}", published.body);
    }
    Ok(console::print(&text, Exit::Success))
}

/// Returns the directory that is named, or the only one.
fn select_directory<'a>(signers: &'a RequestSigners, named: Option<&str>) -> Result<&'a str, Exit> {
    let directories = signers.directories();
    let wanted =
        |directory: &&&str| named.is_none_or(|named| named.trim_end_matches('/') == **directory);
    let mut found = directories.iter().filter(wanted);
    match (found.next(), found.next()) {
        (Some(directory), None) => Ok(directory),
        (None, _) => Err(console::report_invalid(&format!(
            "no crawler has this directory; the configuration has {}",
            join(&directories)
        ))),
        (Some(_), Some(_)) => Err(console::report_invalid(&format!(
            "the configuration has several directories: choose one by --directory, of {}",
            join(&directories)
        ))),
    }
}

fn join(directories: &BTreeSet<&str>) -> String {
    directories.iter().copied().collect::<Vec<_>>().join(", ")
}
