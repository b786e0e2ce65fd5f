//! wget: a command line, or a `.wgetrc`.

mod convert;
mod read;
mod shell;

use crate::conversion::Conversion;
use crate::draft::{PolicyDraft, to_slug};
use crate::input::{ImportError, ImportInput};
use crate::reference::wget::WgetEvaluator;
use crate::report::{PartId, Report};
use crate::settings::SettingsDraft;

pub(crate) use read::recognize;

/// The commands of wget, as in a `.wgetrc`, and the pages to start from.
#[derive(Clone, Debug, Default)]
pub struct WgetSource {
    pub commands: Vec<WgetCommand>,
    pub starts: Vec<WgetStart>,
}

/// A command by its name in a `.wgetrc`, in lower case without `_` and `-`.
#[derive(Clone, Debug)]
pub struct WgetCommand {
    pub part: PartId,
    pub name: String,
    pub value: String,
}

/// A page to start from.
#[derive(Clone, Debug)]
pub struct WgetStart {
    /// `None` for a page of `--seeds`.
    pub part: Option<PartId>,
    pub url: String,
}

impl WgetSource {
    /// Returns the value that is in effect.
    pub fn value(&self, name: &str) -> Option<&str> {
        let found = self
            .commands
            .iter()
            .rev()
            .find(|command| command.name == name);
        found.map(|command| command.value.as_str())
    }

    /// Returns `true` if a switch is on.
    pub fn is_on(&self, name: &str) -> bool {
        matches!(self.value(name), Some("on" | "yes" | "1"))
    }

    /// Returns the items of lists that are joined: `-A gif -A jpg`.
    pub fn items(&self, name: &str) -> Vec<&str> {
        let commands = self.commands.iter().filter(|command| command.name == name);
        let items = commands.flat_map(|command| command.value.split(','));
        items
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .collect()
    }

    /// Returns `true` if links are followed.
    pub fn is_recursive(&self) -> bool {
        self.is_on("recursive") || self.is_on("mirror")
    }
}

pub(crate) fn convert(input: &ImportInput<'_>) -> Result<Conversion, ImportError> {
    let mut report = Report::default();
    let source = read::read(input, &mut report)?;
    let mut policy = PolicyDraft {
        name: to_slug(input.name.as_deref().unwrap_or("wget")),
        ..PolicyDraft::default()
    };
    convert::convert(&source, &mut policy, &mut report);
    let evaluator = WgetEvaluator::new(&source, &report);
    Ok(Conversion {
        policy,
        report,
        settings: SettingsDraft::default(),
        evaluator: Box::new(evaluator),
    })
}
