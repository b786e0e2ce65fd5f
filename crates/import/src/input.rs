//! The files of a source, as text with places.

use std::fmt;
use std::sync::Arc;

use crawlgate_policy::{FileError, FileSystem};

/// The maximum size of a file of rules, in bytes.
pub const MAX_RULE_FILE: usize = 64 << 20;
/// The maximum size of a document of XML, NBT, JSON or YAML, in bytes.
pub const MAX_DOCUMENT: usize = 16 << 20;
/// The maximum number of lines of a file.
const MAX_LINES: usize = 1_000_000;

/// The files to import, and options.
pub struct ImportInput<'a> {
    /// Reads the files, by paths relative to the directory of the first one. Nothing outside of it is read.
    pub files: &'a dyn FileSystem,
    /// The files that were named, in order.
    pub paths: Vec<SourcePath>,
    /// The name of the policy; `None` for one made from the source.
    pub name: Option<String>,
    /// URLs and SURTs that a crawl starts from, one a line, where the source does not hold them.
    pub seeds: Option<String>,
    /// Values of variables that the source uses.
    pub variables: Vec<(String, String)>,
    /// Overrides a detail of the syntax for systems that have a choice: `escape` of Exalead.
    pub escape: Option<bool>,
    /// The path of OmniFind's `global.rules`, unless its name tells it.
    pub global: Option<String>,
}

/// A file that was named, with the crawler that it belongs to: `NAME=FILE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcePath {
    pub crawler: Option<String>,
    pub path: String,
}

impl<'a> ImportInput<'a> {
    /// Creates the input for files without options.
    pub fn new<'p>(files: &'a dyn FileSystem, paths: impl IntoIterator<Item = &'p str>) -> Self {
        let paths = paths.into_iter().map(|path| SourcePath {
            crawler: None,
            path: path.to_owned(),
        });
        Self {
            files,
            paths: paths.collect(),
            name: None,
            seeds: None,
            variables: Vec::new(),
            escape: None,
            global: None,
        }
    }

    /// Returns the value of a variable.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let found = self.variables.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Reads a file as bytes. `max` is its maximum size.
    pub fn read_bytes(&self, path: &str, max: usize) -> Result<Vec<u8>, ImportError> {
        check_path(path)?;
        let bytes = self.files.read(path).map_err(|error| ImportError::File {
            path: path.to_owned(),
            error,
        })?;
        if bytes.len() > max {
            let message = match max >> 20 {
                0 => format!("larger than {} KiB", max >> 10),
                mib => format!("larger than {mib} MiB"),
            };
            return Err(ImportError::invalid(&Place::start(path), message));
        }
        Ok(bytes)
    }

    /// Returns the names of the files in a directory, sorted.
    pub fn list_files(&self, directory: &str) -> Result<Vec<String>, ImportError> {
        check_path(directory)?;
        let names = self.files.list(directory);
        let mut names = names.map_err(|error| ImportError::File {
            path: directory.to_owned(),
            error,
        })?;
        names.sort();
        Ok(names)
    }

    /// Reads a file as text: UTF-8, or UTF-16 with a byte order mark; Latin-1 if it is neither.
    pub fn read_text(&self, path: &str, max: usize) -> Result<SourceText, ImportError> {
        let bytes = self.read_bytes(path, max)?;
        SourceText::decode(path, &bytes)
    }
}

/// Refuses paths that leave the directory.
fn check_path(path: &str) -> Result<(), ImportError> {
    let leaves = path.starts_with('/')
        || path.contains(['\\', '\0', ':'])
        || path.split('/').any(|part| part == "..");
    if leaves {
        return Err(ImportError::Outside {
            path: path.to_owned(),
        });
    }
    Ok(())
}

/// The text of a file.
#[derive(Clone, Debug)]
pub struct SourceText {
    pub file: Arc<str>,
    pub text: String,
}

impl SourceText {
    /// Decodes the bytes of a file.
    pub fn decode(file: &str, bytes: &[u8]) -> Result<Self, ImportError> {
        let text = match bytes {
            [0xef, 0xbb, 0xbf, rest @ ..] => decode_utf8(rest),
            [0xfe, 0xff, rest @ ..] => decode_utf16(file, rest, u16::from_be_bytes)?,
            [0xff, 0xfe, rest @ ..] => decode_utf16(file, rest, u16::from_le_bytes)?,
            _ => decode_utf8(bytes),
        };
        if text.contains('\0') {
            let message = "contains a zero byte: not a text file".to_owned();
            return Err(ImportError::invalid(&Place::start(file), message));
        }
        if text.bytes().filter(|byte| *byte == b'\n').count() > MAX_LINES {
            let message = format!("more than {MAX_LINES} lines: split the file");
            return Err(ImportError::invalid(&Place::start(file), message));
        }
        Ok(Self {
            file: file.into(),
            text,
        })
    }

    /// Returns the lines with their places, without line ends.
    pub fn lines(&self) -> impl Iterator<Item = (Place, &str)> {
        (1_u32..).zip(self.text.lines()).map(|(line, text)| {
            let place = Place {
                file: Arc::clone(&self.file),
                line,
                column: 1,
            };
            (place, text)
        })
    }
}

fn decode_utf8(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        // Latin-1: each byte is a character.
        Err(_) => bytes.iter().map(|byte| char::from(*byte)).collect(),
    }
}

fn decode_utf16(file: &str, bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, ImportError> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let units: Vec<u16> = pairs.iter().map(|pair| unit(*pair)).collect();
    match String::from_utf16(&units) {
        Ok(text) if rest.is_empty() => Ok(text),
        Ok(_) | Err(_) => {
            let message = "not valid UTF-16, which its first bytes announce".to_owned();
            Err(ImportError::invalid(&Place::start(file), message))
        }
    }
}

/// A place in a source file. Lines and columns count from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub file: Arc<str>,
    pub line: u32,
    pub column: u32,
}

impl Place {
    /// Returns the place of the beginning of a file.
    pub fn start(file: &str) -> Self {
        Self {
            file: file.into(),
            line: 1,
            column: 1,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// The reason why a source cannot be imported at all.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("{path}: {error}")]
    File {
        path: String,
        #[source]
        error: FileError,
    },
    #[error("{path}: not read, because it is outside of the directory of the source")]
    Outside { path: String },
    #[error("{place}: {message}")]
    Invalid { place: Place, message: String },
    /// The policy that was written is not valid: a defect of the importer.
    #[error("the translation is not a valid policy, which is a defect of the importer: {0}")]
    Defect(String),
}

impl ImportError {
    /// Creates an error at a place of the source.
    pub fn invalid(place: &Place, message: impl Into<String>) -> Self {
        Self::Invalid {
            place: place.clone(),
            message: message.into(),
        }
    }
}
