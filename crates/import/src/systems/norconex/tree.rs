//! A configuration as a tree of settings, the same for XML, YAML and JSON: an attribute is a setting like an
//! element, as in Norconex 4.

use std::collections::HashMap;

use crawlgate_policy::internal::diagnostics::problem::SourceLocation;
use crawlgate_policy::internal::diagnostics::problems::Problems;
use crawlgate_policy::internal::yaml;
use roxmltree::{Document, Node, ParsingOptions};

use crate::input::{ImportError, Place, SourceText};
use crate::report::{PartId, Report};
use crate::systems::urls::without_user;
use crate::xml::{LineStarts, check_structure};

use super::variables::is_secret;
use super::velocity::RenderedText;

/// The maximum length of a description made of a comment.
const MAX_COMMENT: usize = 160;

/// An element, an attribute or a value.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub name: String,
    /// Its text without white space at the ends.
    pub text: String,
    pub part: PartId,
    pub line: u32,
    pub children: Vec<Setting>,
    /// `true` for an item of a list of YAML or JSON.
    pub is_item: bool,
    is_attribute: bool,
    /// `null`, or an element without attributes and content.
    pub is_null: bool,
    /// The comment right above it.
    pub comment: Option<String>,
}

impl Setting {
    /// Returns the first setting in it with one of the names.
    pub(super) fn get(&self, names: &[&str]) -> Option<&Self> {
        let mut children = self.children.iter();
        children.find(|child| names.contains(&child.name.as_str()))
    }

    /// Returns the text of the first setting in it with one of the names.
    pub(super) fn value(&self, names: &[&str]) -> Option<&str> {
        self.get(names).map(|child| child.text.as_str())
    }

    /// Returns a value that is `true` or `false`.
    pub(super) fn flag(&self, names: &[&str]) -> Option<bool> {
        self.value(names)
            .map(|value| value.eq_ignore_ascii_case("true"))
    }

    /// Returns its elements or items, without attributes.
    pub(super) fn elements(&self) -> impl Iterator<Item = &Self> {
        self.children.iter().filter(|child| !child.is_attribute)
    }

    /// Returns the values of a list: its items, its elements, or the words of its text.
    pub(super) fn list(&self) -> Vec<(&str, PartId)> {
        if self.elements().next().is_none() {
            return self.words();
        }
        self.elements().flat_map(Self::words).collect()
    }

    /// Returns the words of its own text, which commas divide.
    pub(super) fn words(&self) -> Vec<(&str, PartId)> {
        let words = self.text.split(',').map(str::trim);
        let words = words.filter(|word| !word.is_empty());
        words.map(|word| (word, self.part)).collect()
    }

    /// Returns the parts of the setting and of everything in it.
    pub(super) fn parts(&self) -> Vec<PartId> {
        let mut parts = vec![self.part];
        for child in &self.children {
            parts.extend(child.parts());
        }
        parts
    }

    /// Returns the simple name of its class.
    pub(super) fn class(&self) -> Option<&str> {
        let class = self.value(&["class"])?;
        let name = class.rsplit(['.', '$']).next().unwrap_or(class).trim();
        (!name.is_empty()).then_some(name)
    }
}

/// Parses a rendered configuration, and adds its settings to the report.
pub(super) fn parse(rendered: &RenderedText, report: &mut Report) -> Result<Setting, ImportError> {
    let is_xml = rendered.source.text.trim_start().starts_with('<');
    let mut builder = TreeBuilder {
        rendered,
        report,
        known: HashMap::new(),
    };
    if is_xml {
        parse_xml(&mut builder)
    } else {
        parse_yaml(&mut builder)
    }
}

struct TreeBuilder<'r> {
    rendered: &'r RenderedText,
    report: &'r mut Report,
    /// The parts by their places: what is included twice is listed once.
    known: HashMap<(Place, String), PartId>,
}

impl TreeBuilder<'_> {
    fn part(&mut self, place: Place, text: String) -> PartId {
        let text = without_user(&text);
        let key = (place.clone(), text.clone());
        if let Some(part) = self.known.get(&key) {
            return *part;
        }
        let part = self.report.add(place, text);
        self.known.insert(key, part);
        part
    }
}

fn parse_xml(builder: &mut TreeBuilder<'_>) -> Result<Setting, ImportError> {
    let source = &builder.rendered.source;
    check_structure(source)?;
    let options = ParsingOptions {
        allow_dtd: false,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(&source.text, options).map_err(|error| {
        let position = error.pos();
        let place = builder.rendered.place(position.row, position.col);
        ImportError::invalid(&place, format!("not well-formed XML: {error}"))
    })?;
    let starts = LineStarts::new(&source.text);
    let mut reader = XmlReader {
        source,
        starts,
        builder,
    };
    Ok(reader.read(document.root_element(), false))
}

struct XmlReader<'b, 'r> {
    source: &'r SourceText,
    starts: LineStarts,
    builder: &'b mut TreeBuilder<'r>,
}

impl XmlReader<'_, '_> {
    fn place(&self, offset: usize) -> Place {
        let rendered = self
            .starts
            .place(&self.source.text, &self.source.file, offset);
        self.builder.rendered.place(rendered.line, rendered.column)
    }

    fn read(&mut self, element: Node<'_, '_>, hidden: bool) -> Setting {
        let name = element.tag_name().name().to_owned();
        let hidden = hidden || is_secret(&name) || is_header(&name);
        let text = own_text(element);
        let place = self.place(element.range().start);
        let shown = if hidden && !text.is_empty() {
            "***"
        } else {
            &text
        };
        let line = place.line;
        let part = self.builder.part(place, format!("<{name}>{shown}"));
        let mut children = Vec::new();
        for attribute in element.attributes() {
            let place = self.place(attribute.range().start);
            children.push(self.read_attribute(attribute.name(), attribute.value(), place, hidden));
        }
        for child in element.children().filter(Node::is_element) {
            children.push(self.read(child, hidden));
        }
        Setting {
            is_null: children.is_empty() && text.is_empty(),
            comment: comment_above(element),
            name,
            text,
            part,
            line,
            children,
            is_item: false,
            is_attribute: false,
        }
    }

    fn read_attribute(&mut self, name: &str, value: &str, place: Place, hidden: bool) -> Setting {
        let is_name = matches!(name, "name" | "class");
        let shown = if is_secret(name) || (hidden && !is_name) {
            "***"
        } else {
            value
        };
        let line = place.line;
        let part = self.builder.part(place, format!("{name}=\"{shown}\""));
        Setting {
            name: name.to_owned(),
            text: value.trim().to_owned(),
            part,
            line,
            children: Vec::new(),
            is_item: false,
            is_attribute: true,
            is_null: false,
            comment: None,
        }
    }
}

/// Returns the text directly in an element, which sections of CDATA and comments may divide.
fn own_text(element: Node<'_, '_>) -> String {
    let texts = element.children().filter(Node::is_text);
    let text: String = texts.filter_map(|text| text.text()).collect();
    text.trim().to_owned()
}

/// Returns the comment that is right above an element.
fn comment_above(element: Node<'_, '_>) -> Option<String> {
    let mut before = element.prev_siblings().skip(1);
    let found = before.find(|node| {
        let text = node.text().map(str::trim).unwrap_or_default();
        !(node.is_text() && text.is_empty())
    })?;
    let text = found.text().filter(|_| found.is_comment())?;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_short = !text.is_empty() && text.chars().count() <= MAX_COMMENT;
    is_short.then_some(text)
}

fn is_header(name: &str) -> bool {
    matches!(name, "headers" | "requestHeaders")
}

fn parse_yaml(builder: &mut TreeBuilder<'_>) -> Result<Setting, ImportError> {
    let source = &builder.rendered.source;
    let mut problems = Problems::new();
    let tree = yaml::parse(&source.file, source.text.as_str(), &mut problems);
    let problem = problems.into_vec().into_iter().next();
    match (tree, problem) {
        (Some(tree), None) => Ok(read_yaml(builder, "configuration", &tree, None, false)),
        (_, Some(problem)) => {
            let place = yaml_place(builder.rendered, &problem.location);
            let message = format!("not readable: {}", problem.message);
            Err(ImportError::invalid(&place, message))
        }
        (None, None) => {
            let place = Place::start(&source.file);
            Err(ImportError::invalid(&place, "not readable"))
        }
    }
}

fn yaml_place(rendered: &RenderedText, location: &SourceLocation) -> Place {
    rendered.place(location.line.max(1), location.column.max(1))
}

/// Reads a value with its key, or an item of a list without one.
fn read_yaml(
    builder: &mut TreeBuilder<'_>,
    name: &str,
    node: &yaml::Node,
    key: Option<&SourceLocation>,
    hidden: bool,
) -> Setting {
    let hidden = hidden || is_secret(name) || is_header(name);
    let text = node.spelling().unwrap_or_default().trim().to_owned();
    let place = yaml_place(builder.rendered, key.unwrap_or(&node.place));
    let shown = if hidden && !text.is_empty() {
        "***"
    } else {
        &text
    };
    let line = place.line;
    let shown = match name {
        "-" => format!("- {shown}"),
        name => format!("{name}: {shown}"),
    };
    let part = builder.part(place, shown.trim_end().to_owned());
    let mut children = Vec::new();
    match &node.value {
        yaml::YamlValue::Mapping(entries) => {
            for entry in entries {
                let key = &entry.key;
                let place = Some(&key.place);
                children.push(read_yaml(builder, &key.text, &entry.value, place, hidden));
            }
        }
        yaml::YamlValue::Sequence(items) => {
            for item in items {
                let mut item = read_yaml(builder, "-", item, None, hidden);
                item.is_item = true;
                children.push(item);
            }
        }
        yaml::YamlValue::Null
        | yaml::YamlValue::Bool(_)
        | yaml::YamlValue::Int(..)
        | yaml::YamlValue::Float(..)
        | yaml::YamlValue::Text(_) => {}
    }
    Setting {
        name: name.to_owned(),
        text,
        part,
        line,
        children,
        is_item: false,
        is_attribute: false,
        is_null: node.is_null(),
        comment: None,
    }
}
