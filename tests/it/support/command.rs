//! Runs of the binary to its end.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The output and the exit code of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    /// The exit code.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) stdout: String,
    /// Standard error.
    pub(crate) stderr: String,
}

/// Runs `crawlgate` in a directory, without the environment variables that affect it.
pub(crate) fn crawlgate(
    directory: &Path,
    arguments: impl CommandArguments,
    input: impl AsRef<[u8]>,
) -> CommandOutput {
    let mut child = Command::new(env!("CARGO_BIN_EXE_crawlgate"))
        .args(arguments.to_list())
        .current_dir(directory)
        .env_remove("CRAWLGATE_CONFIG")
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input may have ended already.
    let _ = child.stdin.take().unwrap().write_all(input.as_ref());
    let output = child.wait_with_output().unwrap();
    CommandOutput {
        code: output.status.code().unwrap(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The arguments of a command: a list, or a text that is split at spaces.
pub(crate) trait CommandArguments {
    fn to_list(&self) -> Vec<String>;
}

impl CommandArguments for &str {
    fn to_list(&self) -> Vec<String> {
        self.split(' ').map(str::to_owned).collect()
    }
}

impl CommandArguments for &[&str] {
    fn to_list(&self) -> Vec<String> {
        self.iter().map(|argument| (*argument).to_owned()).collect()
    }
}

impl<const N: usize> CommandArguments for &[&str; N] {
    fn to_list(&self) -> Vec<String> {
        self.as_slice().to_list()
    }
}

impl CommandArguments for &Vec<&str> {
    fn to_list(&self) -> Vec<String> {
        self.as_slice().to_list()
    }
}
