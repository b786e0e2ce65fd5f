//! The form in XML: an element for each tag, with its type in the attribute `type`. Items of a list have the type
//! in the attribute `limitType` of the list.

use std::collections::BTreeSet;
use std::sync::Arc;

use roxmltree::{Document, Node, ParsingOptions};

use crate::input::{ImportError, Place, SourceText};
use crate::xml::{LineStarts, check_structure};

use super::tree::{NbtKind, NbtTag, NbtValue, TagNumbers};

const MAX_NODES: u32 = 1_000_000;

/// Reads the tree of a document.
pub(super) fn read(source: &SourceText) -> Result<NbtTag, ImportError> {
    check_structure(source)?;
    let options = ParsingOptions {
        allow_dtd: false,
        nodes_limit: MAX_NODES,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(&source.text, options).map_err(|error| {
        let place = Place {
            file: Arc::clone(&source.file),
            line: error.pos().row,
            column: error.pos().col,
        };
        ImportError::invalid(&place, format!("not well-formed XML: {error}"))
    })?;
    let mut reader = TwinReader {
        source,
        lines: LineStarts::new(&source.text),
        numbers: TagNumbers::default(),
    };
    let root = document.root_element();
    let tag = reader.tag(root, None)?;
    match tag.value {
        NbtValue::Compound(_) => Ok(tag),
        NbtValue::Integer { .. }
        | NbtValue::Real { .. }
        | NbtValue::Text(_)
        | NbtValue::Numbers { .. }
        | NbtValue::List { .. } => Err(reader.invalid(root, "the first tag is not a compound")),
    }
}

struct TwinReader<'s> {
    source: &'s SourceText,
    lines: LineStarts,
    numbers: TagNumbers,
}

impl TwinReader<'_> {
    fn place(&self, element: Node<'_, '_>) -> Place {
        let offset = element.range().start;
        self.lines
            .place(&self.source.text, &self.source.file, offset)
    }

    fn invalid(&self, element: Node<'_, '_>, message: impl Into<String>) -> ImportError {
        ImportError::invalid(&self.place(element), message)
    }

    /// Reads a tag. `item` is the type of the items of the list that it is in.
    fn tag(&mut self, element: Node<'_, '_>, item: Option<NbtKind>) -> Result<NbtTag, ImportError> {
        let kind = match item {
            Some(kind) => kind,
            None => self.kind(element, "type")?,
        };
        let name = match (item, element.attribute("name")) {
            (Some(_), _) => String::new(),
            (None, Some(name)) if !name.is_empty() => name.to_owned(),
            (None, _) => element.tag_name().name().to_owned(),
        };
        let place = self.place(element);
        let number = self.numbers.next();
        let index = number.map_err(|why| self.invalid(element, why))?;
        let attributes = u32::try_from(element.attributes().len()).unwrap_or(u32::MAX);
        let value = self.value(element, kind)?;
        let elements = match value {
            NbtValue::Numbers { .. } => {
                let items = element.children().filter(Node::is_element);
                items.map(|item| 1 + item.attributes().len()).sum()
            }
            NbtValue::Integer { .. }
            | NbtValue::Real { .. }
            | NbtValue::Text(_)
            | NbtValue::List { .. }
            | NbtValue::Compound(_) => 0,
        };
        let numbers = u32::try_from(elements).unwrap_or(u32::MAX);
        Ok(NbtTag {
            name,
            index,
            line: place.line,
            column: place.column,
            units: numbers.saturating_add(attributes).saturating_add(1),
            value,
        })
    }

    fn kind(&self, element: Node<'_, '_>, attribute: &str) -> Result<NbtKind, ImportError> {
        let Some(name) = element.attribute(attribute) else {
            return Err(self.invalid(element, format!("no attribute `{attribute}`")));
        };
        let kind = NbtKind::from_name(name);
        kind.ok_or_else(|| self.invalid(element, format!("a tag of the unknown type `{name}`")))
    }

    fn value(&mut self, element: Node<'_, '_>, kind: NbtKind) -> Result<NbtValue, ImportError> {
        Ok(match kind {
            NbtKind::End => return Err(self.invalid(element, "an end is not a value")),
            NbtKind::Byte | NbtKind::Short | NbtKind::Int | NbtKind::Long => NbtValue::Integer {
                kind,
                value: self.number(element)?,
            },
            NbtKind::Float | NbtKind::Double => NbtValue::Real {
                kind,
                value: self.number(element)?,
            },
            NbtKind::Text => NbtValue::Text(self.text(element)?),
            NbtKind::ByteArray => self.array(element, NbtKind::Byte)?,
            NbtKind::IntArray => self.array(element, NbtKind::Int)?,
            NbtKind::List => self.list(element)?,
            NbtKind::Compound => NbtValue::Compound(self.compound(element)?),
        })
    }

    fn text(&self, element: Node<'_, '_>) -> Result<String, ImportError> {
        if element.children().any(|child| child.is_element()) {
            return Err(self.invalid(element, "an element in a value"));
        }
        let texts = element.children().filter_map(|child| child.text());
        Ok(texts.collect())
    }

    fn number<T: std::str::FromStr>(&self, element: Node<'_, '_>) -> Result<T, ImportError> {
        let text = self.text(element)?;
        let number = text.trim().parse();
        number.map_err(|_| self.invalid(element, format!("`{}` is not a number", text.trim())))
    }

    fn array(&self, element: Node<'_, '_>, kind: NbtKind) -> Result<NbtValue, ImportError> {
        let count = self.text(element)?.split_ascii_whitespace().count();
        Ok(NbtValue::Numbers {
            kind,
            count: u32::try_from(count).unwrap_or(u32::MAX),
        })
    }

    fn list(&mut self, element: Node<'_, '_>) -> Result<NbtValue, ImportError> {
        let kind = self.kind(element, "limitType")?;
        let items = element.children().filter(Node::is_element);
        match kind {
            NbtKind::Byte
            | NbtKind::Short
            | NbtKind::Int
            | NbtKind::Long
            | NbtKind::Float
            | NbtKind::Double => {
                let count = u32::try_from(items.count()).unwrap_or(u32::MAX);
                Ok(NbtValue::Numbers { kind, count })
            }
            NbtKind::End
            | NbtKind::ByteArray
            | NbtKind::Text
            | NbtKind::List
            | NbtKind::Compound
            | NbtKind::IntArray => {
                let items = items.map(|item| self.tag(item, Some(kind)));
                let items = items.collect::<Result<Vec<_>, _>>()?;
                Ok(NbtValue::List { kind, items })
            }
        }
    }

    fn compound(&mut self, element: Node<'_, '_>) -> Result<Vec<NbtTag>, ImportError> {
        let mut tags = Vec::new();
        let mut names = BTreeSet::new();
        for child in element.children().filter(Node::is_element) {
            let tag = self.tag(child, None)?;
            if !names.insert(tag.name.clone()) {
                return Err(self.invalid(child, format!("the tag `{}` twice", tag.name)));
            }
            tags.push(tag);
        }
        Ok(tags)
    }
}
