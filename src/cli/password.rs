//! `crawlgate password`: a password in, its hash out.

use std::io::{self, BufRead, IsTerminal, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::pipeline::crawlers::password::PasswordHash;

use super::Exit;
use super::console::{print, report_cannot_run, report_invalid, report_io_error};

/// Prints the hash of the first line of standard input; exit 2 if there is no password in it.
pub(super) fn run() -> Exit {
    let password = match read_password() {
        Ok(password) => password,
        Err(error) => return report_io_error(&error),
    };
    if password.is_empty() {
        return report_invalid(&"no password was given");
    }
    if password.chars().any(char::is_control) {
        return report_invalid(&"a password with a control character cannot be sent (RFC 7617)");
    }
    match PasswordHash::generate(&password) {
        Ok(hash) => print(&format!("{hash}\n"), Exit::Success),
        Err(mistake) => report_cannot_run(&mistake),
    }
}

fn read_password() -> io::Result<String> {
    let input = io::stdin();
    let silence = if input.is_terminal() {
        NoEcho::for_stdin()
    } else {
        None
    };
    if silence.is_some() {
        eprint!("Password: ");
        io::stderr().flush()?;
    }
    let mut line = String::new();
    input.lock().read_line(&mut line)?;
    if silence.is_some() {
        eprintln!();
    }
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// A terminal that does not show what is typed, until this is dropped.
struct NoEcho(Termios);

impl NoEcho {
    fn for_stdin() -> Option<Self> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Now, &silent).ok()?;
        Some(Self(before))
    }
}

impl Drop for NoEcho {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
