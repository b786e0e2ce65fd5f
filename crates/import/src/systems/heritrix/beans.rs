//! Spring's beans as Heritrix uses them: properties in each of their forms, references, and overrides.

use roxmltree::Node;

use crate::input::{ImportInput, Place, SourceText};
use crate::report::{PartId, Report};
use crate::xml::XmlSource;

/// The beans of a file.
#[derive(Debug, Default)]
pub(super) struct Beans {
    pub beans: Vec<Bean>,
    overrides: Vec<Override>,
}

/// A bean, at the top or as a value.
#[derive(Clone, Debug)]
pub(super) struct Bean {
    pub id: Option<String>,
    /// The class without its package.
    pub class: String,
    pub package: String,
    /// The element.
    pub part: PartId,
    /// The element and its attributes.
    pub own_parts: Vec<PartId>,
    pub properties: Vec<Property>,
    /// The comment above it.
    pub comment: Option<String>,
    /// The paths by which overrides name it: `scope`, `scope.rules[2]`.
    pub paths: Vec<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Property {
    pub name: String,
    pub value: BeanValue,
}

/// A value, with the parts that it is made of.
#[derive(Clone, Debug)]
pub(super) struct BeanValue {
    pub parts: Vec<PartId>,
    pub kind: ValueKind,
}

#[derive(Clone, Debug)]
pub(super) enum ValueKind {
    Text(TextValue),
    Bean(Box<Bean>),
    Reference(String),
    List(Vec<BeanValue>),
    Map(Vec<(String, BeanValue)>),
}

/// Text, with the line on which it begins.
#[derive(Clone, Debug)]
pub(super) struct TextValue {
    pub text: String,
    pub place: Place,
}

/// A value that replaces the one of a bean: a line of a `PropertyOverrideConfigurer`.
#[derive(Debug)]
struct Override {
    path: String,
    value: BeanValue,
}

/// The reader of a document.
pub(super) struct BeanReader<'a, 't> {
    pub xml: &'a XmlSource<'t>,
    pub source: &'a SourceText,
    pub input: &'a ImportInput<'a>,
}

impl Beans {
    /// Returns the bean with an id.
    pub(super) fn by_id(&self, id: &str) -> Option<&Bean> {
        let mut beans = self.beans.iter();
        beans.find(|bean| bean.id.as_deref() == Some(id))
    }

    /// Returns the first bean of a class.
    pub(super) fn by_class(&self, class: &str) -> Option<&Bean> {
        self.beans.iter().find(|bean| bean.class == class)
    }

    /// Returns the value of a property: that of an override if there is one.
    pub(super) fn property<'b>(&'b self, bean: &'b Bean, name: &str) -> Option<&'b BeanValue> {
        let overridden = bean
            .paths
            .iter()
            .find_map(|path| self.override_of(&format!("{path}.{name}")));
        overridden.or_else(|| bean.own_property(name))
    }

    /// Returns a property as text: trimmed, with its parts.
    pub(super) fn text<'b>(&'b self, bean: &'b Bean, name: &str) -> Option<(String, &'b [PartId])> {
        let value = self.property(bean, name)?;
        let text = value.text()?;
        Some((text.text.trim().to_owned(), &value.parts))
    }

    /// Returns the bean that a value is or refers to.
    pub(super) fn resolve<'b>(&'b self, value: &'b BeanValue) -> Option<&'b Bean> {
        match &value.kind {
            ValueKind::Bean(bean) => Some(bean),
            ValueKind::Reference(id) => self.by_id(id),
            ValueKind::Text(_) | ValueKind::List(_) | ValueKind::Map(_) => None,
        }
    }

    /// Returns the properties of a bean that an override replaces, as parts.
    pub(super) fn replaced_parts(&self, bean: &Bean) -> Vec<PartId> {
        let mut parts = Vec::new();
        for property in &bean.properties {
            let is_replaced = bean.paths.iter().any(|path| {
                self.override_of(&format!("{path}.{}", property.name))
                    .is_some()
            });
            if is_replaced {
                parts.extend(property.value.all_parts());
            }
        }
        parts
    }

    fn override_of(&self, path: &str) -> Option<&BeanValue> {
        // The last line of a properties file counts.
        let mut found = self.overrides.iter().rev();
        let found = found.find(|entry| entry.path == path);
        found.map(|entry| &entry.value)
    }

    /// Returns all overrides, by their paths.
    pub(super) fn overrides(&self) -> impl Iterator<Item = (&str, &BeanValue)> {
        let entries = self.overrides.iter();
        entries.map(|entry| (entry.path.as_str(), &entry.value))
    }
}

impl Bean {
    fn own_property(&self, name: &str) -> Option<&BeanValue> {
        let mut properties = self.properties.iter();
        let found = properties.find(|property| property.name == name);
        found.map(|property| &property.value)
    }

    /// Returns all parts in the bean.
    pub(super) fn all_parts(&self) -> Vec<PartId> {
        let properties = self.properties.iter();
        let nested = properties.flat_map(|property| property.value.all_parts());
        self.own_parts.iter().copied().chain(nested).collect()
    }

    /// Returns `true` for a class of Heritrix.
    pub(super) fn is_of_heritrix(&self) -> bool {
        self.package.starts_with("org.archive.")
    }
}

impl BeanValue {
    pub(super) fn text(&self) -> Option<&TextValue> {
        match &self.kind {
            ValueKind::Text(text) => Some(text),
            ValueKind::Bean(_)
            | ValueKind::Reference(_)
            | ValueKind::List(_)
            | ValueKind::Map(_) => None,
        }
    }

    /// Returns all parts of the value and of what is in it.
    pub(super) fn all_parts(&self) -> Vec<PartId> {
        let mut parts = self.parts.clone();
        match &self.kind {
            ValueKind::Text(_) | ValueKind::Reference(_) => {}
            ValueKind::Bean(bean) => parts.extend(bean.all_parts()),
            ValueKind::List(values) => {
                parts.extend(values.iter().flat_map(Self::all_parts));
            }
            ValueKind::Map(entries) => {
                parts.extend(entries.iter().flat_map(|(_, value)| value.all_parts()));
            }
        }
        parts
    }
}

impl TextValue {
    /// Returns the lines that are not empty, with their places.
    pub(super) fn lines(&self) -> impl Iterator<Item = (Place, &str)> {
        let lines = (self.place.line..).zip(self.text.lines());
        let lines = lines.map(|(line, text)| {
            let place = Place {
                line,
                column: if line == self.place.line {
                    self.place.column
                } else {
                    1
                },
                file: self.place.file.clone(),
            };
            (place, text.trim())
        });
        lines.filter(|(_, text)| !text.is_empty())
    }

    /// Returns the name of a variable or expression that has no value.
    pub(super) fn unresolved(&self) -> Option<&str> {
        let at = self.text.find("${").or_else(|| self.text.find("#{"))?;
        let rest = self.text.get(at..)?;
        rest.find('}').and_then(|end| rest.get(..=end))
    }
}

impl BeanReader<'_, '_> {
    /// Reads all beans of the document.
    pub(super) fn read(&self, report: &mut Report) -> Beans {
        let mut beans = Beans::default();
        self.read_level(self.xml.root(), &mut beans);
        let configurers: Vec<Bean> = beans
            .beans
            .iter()
            .filter(|bean| bean.class == "PropertyOverrideConfigurer")
            .cloned()
            .collect();
        for bean in &configurers {
            self.read_overrides(bean, &mut beans, report);
        }
        beans
    }

    fn read_level(&self, parent: Node<'_, '_>, beans: &mut Beans) {
        for child in parent.children().filter(Node::is_element) {
            match child.tag_name().name() {
                "bean" => {
                    let id = child.attribute("id").or_else(|| child.attribute("name"));
                    let paths = id.map(str::to_owned).into_iter().collect();
                    beans.beans.extend(self.read_bean(child, paths));
                }
                "beans" => self.read_level(child, beans),
                _ => {}
            }
        }
    }

    fn read_bean(&self, element: Node<'_, '_>, paths: Vec<String>) -> Option<Bean> {
        let class = element.attribute("class").unwrap_or_default().trim();
        let (package, name) = match class.rfind('.') {
            Some(dot) => (class.get(..=dot)?, class.get(dot + 1..)?),
            None => ("", class),
        };
        let id = element
            .attribute("id")
            .or_else(|| element.attribute("name"));
        let mut bean = Bean {
            id: id.map(str::to_owned),
            class: name.to_owned(),
            package: package.to_owned(),
            part: self.xml.part(element)?,
            own_parts: self.xml.own_parts(element),
            properties: Vec::new(),
            comment: comment_above(element),
            paths,
        };
        for child in element.children().filter(Node::is_element) {
            let name = child.attribute("name").unwrap_or_default();
            if child.tag_name().name() == "property" && !name.is_empty() {
                let paths = extend_paths(&bean.paths, &format!(".{name}"));
                if let Some(value) = self.read_holder(child, &paths) {
                    bean.properties.push(Property {
                        name: name.to_owned(),
                        value,
                    });
                }
            }
        }
        self.read_short_properties(element, &mut bean);
        Some(bean)
    }

    /// Reads properties that are attributes: `p:maxHops="3"`.
    fn read_short_properties(&self, element: Node<'_, '_>, bean: &mut Bean) {
        for attribute in element.attributes() {
            let is_property = attribute
                .namespace()
                .is_some_and(|namespace| namespace.ends_with("/schema/p"));
            let part = self.xml.attribute_part(element, attribute.name());
            let (true, Some(part)) = (is_property, part) else {
                continue;
            };
            bean.own_parts.retain(|own| *own != part);
            let (name, kind) = match attribute.name().strip_suffix("-ref") {
                Some(name) => (name, ValueKind::Reference(attribute.value().to_owned())),
                None => (attribute.name(), self.text_kind(attribute.value(), element)),
            };
            bean.properties.push(Property {
                name: name.to_owned(),
                value: BeanValue {
                    parts: vec![part],
                    kind,
                },
            });
        }
    }

    /// Reads the value of a `property`, `entry` or similar: an attribute or what is in the element.
    fn read_holder(&self, element: Node<'_, '_>, paths: &[String]) -> Option<BeanValue> {
        let parts = self.xml.own_parts(element);
        if let Some(text) = element.attribute("value") {
            return Some(BeanValue {
                parts,
                kind: self.text_kind(text, element),
            });
        }
        let reference = element
            .attribute("ref")
            .or_else(|| element.attribute("value-ref"));
        if let Some(id) = reference {
            let kind = ValueKind::Reference(id.to_owned());
            return Some(BeanValue { parts, kind });
        }
        let inner = element.children().find(|child| {
            child.is_element() && !matches!(child.tag_name().name(), "description" | "key")
        })?;
        let mut value = self.read_value(inner, paths)?;
        value.parts.extend(parts);
        Some(value)
    }

    fn read_value(&self, element: Node<'_, '_>, paths: &[String]) -> Option<BeanValue> {
        let parts = self.xml.own_parts(element);
        let kind = match element.tag_name().name() {
            "value" => self.text_kind(&element_text(element), element),
            "bean" => {
                let bean = self.read_bean(element, paths.to_vec())?;
                return Some(BeanValue {
                    parts: Vec::new(),
                    kind: ValueKind::Bean(Box::new(bean)),
                });
            }
            "ref" | "idref" => {
                let names = ["bean", "local", "parent"];
                let id = names.iter().find_map(|name| element.attribute(*name))?;
                ValueKind::Reference(id.to_owned())
            }
            "list" | "set" | "array" => {
                let items = element.children().filter(Node::is_element).enumerate();
                let items = items.filter_map(|(nth, item)| {
                    self.read_value(item, &extend_paths(paths, &format!("[{nth}]")))
                });
                ValueKind::List(items.collect())
            }
            "map" | "props" => {
                let entries = element.children().filter(Node::is_element);
                ValueKind::Map(entries.filter_map(|entry| self.read_entry(entry)).collect())
            }
            _ => ValueKind::Text(self.text_value("", element)),
        };
        Some(BeanValue { parts, kind })
    }

    fn read_entry(&self, entry: Node<'_, '_>) -> Option<(String, BeanValue)> {
        let key = entry.attribute("key").map(str::to_owned).or_else(|| {
            let key = entry.children().find(|child| child.has_tag_name("key"))?;
            let value = key.children().find(Node::is_element)?;
            Some(element_text(value).trim().to_owned())
        })?;
        if entry.tag_name().name() == "prop" {
            let value = BeanValue {
                parts: self.xml.own_parts(entry),
                kind: self.text_kind(&element_text(entry), entry),
            };
            return Some((key, value));
        }
        Some((key, self.read_holder(entry, &[])?))
    }

    fn text_kind(&self, text: &str, element: Node<'_, '_>) -> ValueKind {
        ValueKind::Text(self.text_value(text, element))
    }

    fn text_value(&self, text: &str, element: Node<'_, '_>) -> TextValue {
        let node = element.children().find(Node::is_text).unwrap_or(element);
        let start = node.range().start;
        let before = self.source.text.get(..start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before
            .rsplit('\n')
            .next()
            .map_or(0, |line| line.chars().count())
            + 1;
        TextValue {
            text: self.substitute(text),
            place: Place {
                file: self.source.file.clone(),
                line: u32::try_from(line).unwrap_or(u32::MAX),
                column: u32::try_from(column).unwrap_or(u32::MAX),
            },
        }
    }

    /// Replaces `${NAME}` by the values that were given.
    fn substitute(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, value) in &self.input.variables {
            text = text.replace(&format!("${{{name}}}"), value);
        }
        text
    }

    fn read_overrides(&self, bean: &Bean, beans: &mut Beans, report: &mut Report) {
        let Some(value) = bean.own_property("properties") else {
            return;
        };
        match &value.kind {
            ValueKind::Map(entries) => {
                let entries = entries.iter().map(|(path, value)| Override {
                    path: path.trim().to_owned(),
                    value: value.clone(),
                });
                beans.overrides.extend(entries);
            }
            ValueKind::Text(text) => {
                for (place, line) in text.lines() {
                    if line.starts_with(['#', '!']) {
                        continue;
                    }
                    let (path, rest) = split_property(line);
                    let shown = if is_secret(path) {
                        format!("{path}=***")
                    } else {
                        line.to_owned()
                    };
                    let part = report.add(place.clone(), shown);
                    let kind = ValueKind::Text(TextValue {
                        text: self.substitute(rest),
                        place,
                    });
                    let value = BeanValue {
                        parts: vec![part],
                        kind,
                    };
                    let path = path.to_owned();
                    beans.overrides.push(Override { path, value });
                }
            }
            ValueKind::Bean(_) | ValueKind::Reference(_) | ValueKind::List(_) => {}
        }
    }
}

/// Splits a line of Java's properties.
fn split_property(line: &str) -> (&str, &str) {
    let end = line
        .find(|c: char| c == '=' || c == ':' || c.is_whitespace())
        .unwrap_or(line.len());
    let (key, rest) = line.split_at_checked(end).unwrap_or((line, ""));
    let rest = rest.trim_start();
    let rest = rest.strip_prefix(['=', ':']).unwrap_or(rest);
    (key, rest.trim_start())
}

fn extend_paths(paths: &[String], suffix: &str) -> Vec<String> {
    paths.iter().map(|path| format!("{path}{suffix}")).collect()
}

fn element_text(element: Node<'_, '_>) -> String {
    let texts = element.children().filter(Node::is_text);
    texts.filter_map(|node| node.text()).collect()
}

/// Returns the comment right above an element, on one line.
fn comment_above(element: Node<'_, '_>) -> Option<String> {
    let above = element
        .prev_siblings()
        .skip(1)
        .find(|node| !node.is_text() || node.text().is_some_and(|text| !text.trim().is_empty()))?;
    let text = above.is_comment().then(|| above.text())??;
    // What looks like XML is a property that was commented out.
    if text.contains('<') {
        return None;
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.trim_matches('.').trim();
    (!text.is_empty() && text.chars().count() <= 200).then(|| text.to_owned())
}

/// Returns `true` for names of properties whose value is a secret.
pub(super) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [
        "password",
        "passwd",
        "secret",
        "token",
        "proxyuser",
        "login",
    ]
    .iter()
    .any(|word| name.contains(word))
}

/// Hides the values of secret properties, and those of credentials.
pub(super) fn hide_secrets(xml: &XmlSource<'_>, report: &mut Report) {
    for element in xml.root().descendants().filter(Node::is_element) {
        let is_credential = element.ancestors().any(|node| {
            let class = node.attribute("class").unwrap_or_default();
            class.contains("Credential") || class.contains("AMQP")
        });
        let holder = ["name", "key"]
            .iter()
            .find_map(|key| element.attribute(*key));
        let by_parent = element.ancestors().skip(1).take(3).any(|node| {
            let name = ["name", "key"].iter().find_map(|key| node.attribute(*key));
            name.is_some_and(is_secret)
        });
        let is_secret = is_credential || by_parent || holder.is_some_and(is_secret);
        if !is_secret {
            continue;
        }
        for attribute in element.attributes().filter(|it| it.name() == "value") {
            if let Some(part) = xml.attribute_part(element, attribute.name()) {
                report.set_text(part, "value=\"***\"");
            }
        }
        let has_text = element.text().is_some_and(|text| !text.trim().is_empty());
        if let Some(part) = xml.part(element).filter(|_| has_text) {
            report.set_text(part, format!("<{}>***", element.tag_name().name()));
        }
    }
}
