//! The files of a source: those that were named, and those beside the first one.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use crawlgate_import::{FileSystem, MAX_RULE_FILE, SourcePath};

use crate::policy::source::FileError;

/// The name of standard input on the command line.
const STDIN: &str = "-";

/// Reads the files that were named, and others below the directory of the first one.
#[derive(Debug)]
pub(super) struct SourceFiles {
    directory: PathBuf,
    /// The files that were named, by the names that the importer uses.
    named: Vec<(String, PathBuf)>,
    /// Standard input, once it has been read: its system is recognized by it, then it is translated.
    stdin: OnceLock<Vec<u8>>,
}

impl SourceFiles {
    /// Returns the files with the paths by which the importer reads them.
    pub(super) fn new(words: &[String]) -> (Self, Vec<SourcePath>) {
        let first = words.first().map(|word| split_crawler(word).1);
        let directory = first.map(Path::new).and_then(Path::parent);
        let directory = directory.filter(|path| !path.as_os_str().is_empty());
        let mut files = Self {
            directory: directory.unwrap_or(Path::new(".")).to_owned(),
            named: Vec::new(),
            stdin: OnceLock::new(),
        };
        let paths = words.iter().map(|word| {
            let (crawler, file) = split_crawler(word);
            SourcePath {
                crawler: crawler.map(str::to_owned),
                path: files.add(Path::new(file)),
            }
        });
        let paths = paths.collect();
        (files, paths)
    }

    /// Adds a file that was named, and returns its name for the importer: its path below the directory if it is there,
    /// else its file name.
    pub(super) fn add(&mut self, path: &Path) -> String {
        let is_below_here = self.directory == Path::new(".")
            && path
                .components()
                .all(|part| matches!(part, Component::Normal(_)));
        let below = path.strip_prefix(&self.directory).ok();
        let below = below.or(is_below_here.then_some(path));
        let name = below.or_else(|| path.file_name().map(Path::new));
        let mut name = name.unwrap_or(path).to_string_lossy().into_owned();
        while self
            .named
            .iter()
            .any(|(taken, file)| *taken == name && file != path)
        {
            name.insert(0, '_');
        }
        self.named.push((name.clone(), path.to_owned()));
        name
    }

    fn read_stdin(&self) -> io::Result<Vec<u8>> {
        if let Some(known) = self.stdin.get() {
            return Ok(known.clone());
        }
        let bytes = read_limited(io::stdin().lock())?;
        Ok(self.stdin.get_or_init(|| bytes).clone())
    }

    /// Returns the path of a file that must not lead out of the directory, unless it was named.
    fn find(&self, name: &str) -> io::Result<PathBuf> {
        if let Some((_, path)) = self.named.iter().find(|(known, _)| known == name) {
            return Ok(path.clone());
        }
        let path = self.directory.join(name).canonicalize()?;
        if path.starts_with(self.directory.canonicalize()?) {
            return Ok(path);
        }
        let message = "it is outside of the directory of the source";
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
    }
}

/// Returns the file of a word: `FILE` or `CRAWLER=FILE`.
pub(super) fn file_of(word: &str) -> &str {
    split_crawler(word).1
}

/// Splits `CRAWLER=FILE`. A file whose name contains `=` is written with a path: `./a=b`.
fn split_crawler(word: &str) -> (Option<&str>, &str) {
    match word.split_once('=') {
        Some((crawler, file)) if is_crawler(crawler) => (Some(crawler), file),
        Some(_) | None => (None, word),
    }
}

/// Returns `true` for a name, or the origin of a robots.txt: `https://www.example.com`.
fn is_crawler(text: &str) -> bool {
    let name = text.split_once("://").map_or(text, |(_, host)| host);
    !name.contains('/') && !name.is_empty()
}

impl FileSystem for SourceFiles {
    fn read(&self, name: &str) -> Result<Vec<u8>, FileError> {
        let read = || {
            let path = self.find(name)?;
            if path == Path::new(STDIN) {
                return self.read_stdin();
            }
            let file = File::open(&path)?;
            if file.metadata()?.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            read_limited(file)
        };
        read().map_err(|error| to_file_error(&error))
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, FileError> {
        let list = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in fs::read_dir(self.find(directory)?)? {
                let entry = entry?;
                if entry.path().is_file() {
                    names.push(entry.file_name().to_string_lossy().into_owned());
                }
            }
            Ok(names)
        };
        list().map_err(|error| to_file_error(&error))
    }
}

fn to_file_error(error: &io::Error) -> FileError {
    if error.kind() == io::ErrorKind::NotFound {
        FileError::NotFound
    } else {
        FileError::Other(error.to_string())
    }
}

/// Reads at most one byte more than the importer accepts.
fn read_limited(reader: impl io::Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_RULE_FILE).unwrap_or(u64::MAX);
    reader
        .take(limit.saturating_add(1))
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}
