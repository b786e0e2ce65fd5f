//! The binary, run to its end.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a command said, and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    /// The exit code.
    pub(crate) code: i32,
    /// Standard output.
    pub(crate) out: String,
    /// Standard error.
    pub(crate) err: String,
}

/// Runs `crawlgate` in a directory, without the variables that change what it does.
pub(crate) fn crawlgate(directory: &Path, arguments: &[&str], input: impl AsRef<[u8]>) -> Said {
    let mut child = Command::new(env!("CARGO_BIN_EXE_crawlgate"))
        .args(arguments)
        .current_dir(directory)
        .env_remove("CRAWLGATE_CONFIG")
        .env_remove("NO_COLOR")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that does not read its input may be gone already.
    let _ = child.stdin.take().unwrap().write_all(input.as_ref());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said {
        code: output.status.code().unwrap(),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}
