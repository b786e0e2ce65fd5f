//! YAML and JSON with places: every key and every item is a part of the report.

use std::sync::Arc;

use crawlgate_policy::internal::diagnostics::problem::SourceLocation;
use crawlgate_policy::internal::diagnostics::problems::Problems;
use crawlgate_policy::internal::yaml::{MappingEntry, Node, YamlValue, parse};

use crate::input::{ImportError, Place, SourceText};
use crate::report::{PartId, Report};
use crate::systems::urls::without_user;

/// A file of YAML or JSON.
pub(crate) struct YamlSource {
    pub root: Node,
    file: Arc<str>,
    is_secret: fn(&str) -> bool,
}

impl YamlSource {
    /// Parses a file. Values of keys for which `is_secret` is true are not written to the report.
    pub(crate) fn parse(
        source: &SourceText,
        is_secret: fn(&str) -> bool,
    ) -> Result<Self, ImportError> {
        let mut problems = Problems::new();
        let root = parse(&source.file, source.text.as_str(), &mut problems);
        let file = Arc::clone(&source.file);
        let problem = problems.into_vec().into_iter().next();
        match (root, problem) {
            (Some(root), None) => Ok(Self {
                root,
                file,
                is_secret,
            }),
            (_, Some(problem)) => {
                let place = to_place(&file, &problem.location);
                let message = format!("not readable: {}", problem.message);
                Err(ImportError::invalid(&place, message))
            }
            (None, None) => {
                let place = Place::start(&file);
                Err(ImportError::invalid(&place, "not readable"))
            }
        }
    }

    /// Returns the place of a value.
    pub(crate) fn place(&self, node: &Node) -> Place {
        to_place(&self.file, &node.place)
    }

    /// Adds a key with its value, if that is a scalar, as a part.
    pub(crate) fn add_entry(&self, entry: &MappingEntry, report: &mut Report) -> PartId {
        let key = &*entry.key.text;
        let text = match entry.value.spelling() {
            Some(_) if (self.is_secret)(key) => format!("{key}: ***"),
            Some(value) => format!("{key}: {}", without_user(value)),
            None => format!("{key}:"),
        };
        report.add(to_place(&self.file, &entry.key.place), text)
    }

    /// Adds an item of a list as a part.
    pub(crate) fn add_item(&self, item: &Node, report: &mut Report) -> PartId {
        report.add(self.place(item), without_user(item.display_text()))
    }

    /// Adds a key with all that is in its value as parts.
    pub(crate) fn add_all(&self, entry: &MappingEntry, report: &mut Report) -> Vec<PartId> {
        let mut parts = vec![self.add_entry(entry, report)];
        self.add_inner(&entry.value, report, &mut parts);
        parts
    }

    /// Adds all that is in a value as parts.
    pub(crate) fn add_inner(&self, node: &Node, report: &mut Report, parts: &mut Vec<PartId>) {
        for entry in entries(node) {
            parts.push(self.add_entry(entry, report));
            self.add_inner(&entry.value, report, parts);
        }
        for item in items(node) {
            if entries(item).is_empty() {
                parts.push(self.add_item(item, report));
            }
            self.add_inner(item, report, parts);
        }
    }
}

fn to_place(file: &Arc<str>, location: &SourceLocation) -> Place {
    Place {
        file: Arc::clone(file),
        line: location.line.max(1),
        column: location.column.max(1),
    }
}

/// Returns the entries of a mapping; none for other values.
pub(crate) fn entries(node: &Node) -> &[MappingEntry] {
    match &node.value {
        YamlValue::Mapping(entries) => entries,
        YamlValue::Null
        | YamlValue::Bool(_)
        | YamlValue::Int(..)
        | YamlValue::Float(..)
        | YamlValue::Text(_)
        | YamlValue::Sequence(_) => &[],
    }
}

/// Returns the items of a list; none for other values.
pub(crate) fn items(node: &Node) -> &[Node] {
    match &node.value {
        YamlValue::Sequence(items) => items,
        YamlValue::Null
        | YamlValue::Bool(_)
        | YamlValue::Int(..)
        | YamlValue::Float(..)
        | YamlValue::Text(_)
        | YamlValue::Mapping(_) => &[],
    }
}
