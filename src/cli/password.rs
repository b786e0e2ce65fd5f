//! `crawlgate password`: hashes a password.

use std::io::{self, BufRead, IsTerminal, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::pipeline::crawlers::password::PasswordHash;

use super::Exit;
use super::console::{print, report_cannot_run, report_invalid, report_io_error};

/// Prints the hash of the first line of standard input. Exits with 2 if the line is not a valid password.
pub(super) fn run() -> Result<Exit, Exit> {
    let password = read_password().map_err(|error| report_io_error(&error))?;
    if password.is_empty() {
        return Err(report_invalid(&"the password is empty"));
    }
    if password.chars().any(char::is_control) {
        return Err(report_invalid(
            &"the password contains a control character, which HTTP Basic authentication does not allow (RFC 7617)",
        ));
    }
    let hash = PasswordHash::generate(&password).map_err(|error| report_cannot_run(&error))?;
    Ok(print(&format!("{hash}\n"), Exit::Success))
}

fn read_password() -> io::Result<String> {
    let input = io::stdin();
    let no_echo = if input.is_terminal() {
        NoEcho::for_stdin()
    } else {
        None
    };
    if no_echo.is_some() {
        eprint!("Password: ");
        io::stderr().flush()?;
    }
    let mut line = String::new();
    input.lock().read_line(&mut line)?;
    if no_echo.is_some() {
        eprintln!();
    }
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// A guard that disables the echo of the terminal until it is dropped.
struct NoEcho(Termios);

impl NoEcho {
    fn for_stdin() -> Option<Self> {
        let original = tcgetattr(io::stdin()).ok()?;
        let mut modes = original.clone();
        modes.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Now, &modes).ok()?;
        Some(Self(original))
    }
}

impl Drop for NoEcho {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
