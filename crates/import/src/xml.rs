//! Reading of XML: elements and attributes with their places, each a part of the report.
//!
//! Documents with a DTD are refused, so no entity is expanded and nothing is fetched.

use std::collections::HashMap;
use std::sync::Arc;

use roxmltree::{Document, Node, NodeId, ParsingOptions};

use crate::input::{ImportError, Place, SourceText};
use crate::report::{PartId, Report};

/// The maximum depth of elements.
pub const MAX_DEPTH: usize = 200;
/// The maximum number of elements and attributes.
const MAX_PARTS: usize = 200_000;
/// The maximum number of attributes of an element, whose names a parser compares with each other.
const MAX_ATTRIBUTES: usize = 1_000;

/// A document whose elements and attributes are parts of a report.
pub struct XmlSource<'t> {
    document: Document<'t>,
    file: Arc<str>,
    elements: HashMap<NodeId, PartId>,
    attributes: HashMap<(NodeId, String), PartId>,
}

impl<'t> XmlSource<'t> {
    /// Parses a document and adds its parts to the report: each element (with its text, if it has no
    /// elements) and each attribute, in order. `is_secret` says of a name that its value is not to be shown.
    pub fn parse(
        source: &'t SourceText,
        report: &mut Report,
        is_secret: fn(&str) -> bool,
    ) -> Result<Self, ImportError> {
        check_structure(source)?;
        let options = ParsingOptions {
            allow_dtd: false,
            ..ParsingOptions::default()
        };
        let document = Document::parse_with_options(&source.text, options).map_err(|error| {
            let position = error.pos();
            let place = Place {
                file: Arc::clone(&source.file),
                line: position.row,
                column: position.col,
            };
            ImportError::invalid(&place, format!("not well-formed XML: {error}"))
        })?;
        let mut xml = Self {
            document,
            file: Arc::clone(&source.file),
            elements: HashMap::new(),
            attributes: HashMap::new(),
        };
        xml.add_parts(&source.text, report, is_secret);
        Ok(xml)
    }

    fn add_parts(&mut self, text: &str, report: &mut Report, is_secret: fn(&str) -> bool) {
        let lines = LineStarts::new(text);
        let elements = self.document.descendants().filter(Node::is_element);
        for element in elements {
            let place = lines.place(text, &self.file, element.range().start);
            let name = element.tag_name().name();
            let shown = shown_text(&element, is_secret);
            self.elements
                .insert(element.id(), report.add(place, format!("<{name}>{shown}")));
            for attribute in element.attributes() {
                let place = lines.place(text, &self.file, attribute.range().start);
                let name = attribute.name();
                let value = if is_secret(name) {
                    "***"
                } else {
                    attribute.value()
                };
                let part = report.add(place, format!("{name}=\"{value}\""));
                self.attributes
                    .insert((element.id(), name.to_owned()), part);
            }
        }
    }

    /// Returns the root element.
    pub fn root(&self) -> Node<'_, 't> {
        self.document.root_element()
    }

    /// Returns the part of an element. Every element has one.
    pub fn part(&self, element: Node<'_, '_>) -> Option<PartId> {
        self.elements.get(&element.id()).copied()
    }

    /// Returns the part of an attribute.
    pub fn attribute_part(&self, element: Node<'_, '_>, name: &str) -> Option<PartId> {
        let key = (element.id(), name.to_owned());
        self.attributes.get(&key).copied()
    }

    /// Returns the parts of an element, its attributes and everything in it.
    pub fn all_parts(&self, element: Node<'_, '_>) -> Vec<PartId> {
        let elements = element.descendants().filter(Node::is_element);
        let parts = elements.flat_map(|element| {
            let attributes = element.attributes();
            let attributes =
                attributes.filter_map(move |it| self.attribute_part(element, it.name()));
            self.part(element).into_iter().chain(attributes)
        });
        parts.collect()
    }

    /// Returns the part of an element and those of its attributes, without what is in it.
    pub fn own_parts(&self, element: Node<'_, '_>) -> Vec<PartId> {
        let attributes = element.attributes();
        let attributes = attributes.filter_map(|it| self.attribute_part(element, it.name()));
        self.part(element).into_iter().chain(attributes).collect()
    }
}

/// Returns the text of an element that has no elements.
fn shown_text(element: &Node<'_, '_>, is_secret: fn(&str) -> bool) -> String {
    let text = element.text().map(str::trim).unwrap_or_default();
    let is_leaf = !element.children().any(|child| child.is_element());
    // The name of an option may be an attribute: `<option name="password">`.
    let name = element.attribute("name").unwrap_or_default();
    let hides = is_secret(element.tag_name().name()) || is_secret(name);
    match (is_leaf && !text.is_empty(), hides) {
        (false, _) => String::new(),
        (true, true) => "***".to_owned(),
        (true, false) => text.to_owned(),
    }
}

/// The offsets at which lines begin.
pub(crate) struct LineStarts(Vec<usize>);

impl LineStarts {
    pub(crate) fn new(text: &str) -> Self {
        let ends = text.match_indices('\n').map(|(at, _)| at + 1);
        Self(std::iter::once(0).chain(ends).collect())
    }

    pub(crate) fn place(&self, text: &str, file: &Arc<str>, offset: usize) -> Place {
        let line = self.0.partition_point(|start| *start <= offset);
        let start = line.checked_sub(1).and_then(|at| self.0.get(at)).copied();
        let before = start.and_then(|start| text.get(start..offset));
        Place {
            file: Arc::clone(file),
            line: u32::try_from(line).unwrap_or(u32::MAX),
            column: before.map_or(1, |text| {
                u32::try_from(text.chars().count() + 1).unwrap_or(u32::MAX)
            }),
        }
    }
}

/// A tag, as far as its structure matters.
struct TagShape {
    /// The offset of its `>`.
    end: Option<usize>,
    attributes: usize,
}

/// Reads the shape of the tag that a text begins with.
fn tag_shape(tag: &str) -> TagShape {
    let mut quote = None;
    let mut attributes = 0;
    for (at, byte) in tag.bytes().enumerate() {
        match (quote, byte) {
            (Some(open), _) if open == byte => quote = None,
            (Some(_), _) => {}
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'=') => attributes += 1,
            (None, b'>') => {
                return TagShape {
                    end: Some(at),
                    attributes,
                };
            }
            (None, _) => {}
        }
    }
    TagShape {
        end: None,
        attributes,
    }
}

/// Refuses elements that are nested too deeply, too many of them, and too many attributes, before a parser reads
/// them.
pub(crate) fn check_structure(source: &SourceText) -> Result<(), ImportError> {
    let mut depth = 0_usize;
    let mut parts = 0_usize;
    let mut rest = source.text.as_str();
    while let Some(at) = rest.find('<') {
        let tag = rest.get(at..).unwrap_or_default();
        let skipped = if tag.starts_with("<!--") {
            tag.find("-->")
        } else if tag.starts_with("<![CDATA[") {
            tag.find("]]>")
        } else {
            let TagShape { end, attributes } = tag_shape(tag);
            let is_empty =
                end.is_some_and(|end| tag.get(..end).is_some_and(|tag| tag.ends_with('/')));
            if tag.starts_with("</") {
                depth = depth.saturating_sub(1);
            } else {
                let has_content = !is_empty && !tag.starts_with("<?") && !tag.starts_with("<!");
                depth += usize::from(has_content);
                parts += 1 + attributes;
            }
            let problem = if depth > MAX_DEPTH {
                Some(format!("elements are nested more than {MAX_DEPTH} deep"))
            } else if attributes > MAX_ATTRIBUTES {
                Some(format!(
                    "an element with more than {MAX_ATTRIBUTES} attributes"
                ))
            } else {
                (parts > MAX_PARTS)
                    .then(|| format!("more than {MAX_PARTS} elements and attributes"))
            };
            if let Some(problem) = problem {
                let offset = source.text.len() - tag.len();
                let place = LineStarts::new(&source.text).place(&source.text, &source.file, offset);
                return Err(ImportError::invalid(&place, problem));
            }
            end
        };
        rest = skipped
            .and_then(|end| tag.get(end + 1..))
            .unwrap_or_default();
    }
    Ok(())
}
