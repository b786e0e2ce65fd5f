//! `crawlgate password`: a password in, its hash out.

use std::io::{self, BufRead, IsTerminal, Write};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::gate::crawlers::password::PasswordHash;

use super::Exit;
use super::out::{complain, failed, say_and_fail, write};

/// Prints the hash of the first line of standard input; exit 2 if there is no password in it.
pub(super) fn run() -> Exit {
    let password = match read() {
        Ok(password) => password,
        Err(error) => return failed(&error),
    };
    if password.is_empty() {
        return complain(&"no password was given");
    }
    if password.chars().any(char::is_control) {
        return complain(&"a password with a control character cannot be sent (RFC 7617)");
    }
    match PasswordHash::make(&password) {
        Ok(hash) => write(&format!("{hash}\n"), Exit::Success),
        Err(mistake) => say_and_fail(&mistake),
    }
}

fn read() -> io::Result<String> {
    let input = io::stdin();
    let silence = if input.is_terminal() {
        Silence::of_the_terminal()
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
struct Silence(Termios);

impl Silence {
    fn of_the_terminal() -> Option<Self> {
        let before = tcgetattr(io::stdin()).ok()?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(io::stdin(), OptionalActions::Now, &silent).ok()?;
        Some(Self(before))
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
