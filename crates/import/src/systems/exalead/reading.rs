//! Reading of crawlers and of the conditions of rules.

use roxmltree::Node;

use crate::report::Report;
use crate::xml::XmlSource;

use super::pattern::{CloudViewPattern, ValueSyntax};
use super::source::{
    CloudViewAtom, CloudViewField, CloudViewKind, CloudViewMatcher, CloudViewNorm,
};

/// Sets the outcome of the root element and its attributes.
pub(super) fn add_outer_outcomes(xml: &XmlSource<'_>, report: &mut Report) {
    for part in xml.own_parts(xml.root()) {
        report.unrelated(part, "the frame of the configuration");
    }
}

/// Returns the crawlers of a configuration.
pub(super) fn crawlers<'x, 't>(xml: &'x XmlSource<'t>) -> Vec<Node<'x, 't>> {
    let children = xml.root().children();
    let crawlers = children.filter(|child| child.tag_name().name() == "Crawler");
    crawlers.collect()
}

pub(super) fn is_condition(name: &str) -> bool {
    matches!(name, "And" | "Or" | "Not" | "Atom" | "Length") || shortcut(name).is_some()
}

fn shortcut(name: &str) -> Option<(CloudViewField, CloudViewKind)> {
    match name {
        "Domain" => Some((CloudViewField::Host, CloudViewKind::Domain)),
        "Path" => Some((CloudViewField::Path, CloudViewKind::Prefix)),
        "Ext" => Some((CloudViewField::Path, CloudViewKind::Suffix)),
        "Host" => Some((CloudViewField::Host, CloudViewKind::Exact)),
        "Url" => Some((CloudViewField::Url, CloudViewKind::Exact)),
        "Scheme" => Some((CloudViewField::Scheme, CloudViewKind::Exact)),
        "Query" => Some((CloudViewField::Query, CloudViewKind::Exact)),
        "InQuery" => Some((CloudViewField::Query, CloudViewKind::Inside)),
        _ => None,
    }
}

/// Reads a condition. `escape` overrides the syntax of all values.
///
/// The error says why it cannot be said in a policy.
pub(super) fn read_matcher(
    xml: &XmlSource<'_>,
    node: Node<'_, '_>,
    escape: Option<bool>,
) -> Result<CloudViewMatcher, String> {
    let name = node.tag_name().name();
    match name {
        "And" => Ok(CloudViewMatcher::And(read_matchers(xml, node, escape)?)),
        "Or" => Ok(CloudViewMatcher::Or(read_matchers(xml, node, escape)?)),
        "Not" => {
            let mut parts = read_matchers(xml, node, escape)?;
            match (parts.pop(), parts.is_empty()) {
                (Some(part), true) => Ok(CloudViewMatcher::Not(Box::new(part))),
                (Some(_) | None, _) => Err("`Not` has exactly one condition".to_owned()),
            }
        }
        "Length" => read_length(node),
        "Atom" if node.attribute("kind") == Some("length") => read_length(node),
        "Atom" => {
            let field = read_field(node)?;
            let kind = node.attribute("kind").ok_or("`Atom` without `kind`")?;
            let kind = CloudViewKind::from_name(kind)
                .ok_or_else(|| format!("the kind `{kind}` is not known"))?;
            read_atom(xml, node, field, kind, escape)
        }
        _ => {
            let (field, kind) =
                shortcut(name).ok_or_else(|| format!("the condition `{name}` is not known"))?;
            read_atom(xml, node, field, kind, escape)
        }
    }
}

fn read_matchers(
    xml: &XmlSource<'_>,
    node: Node<'_, '_>,
    escape: Option<bool>,
) -> Result<Vec<CloudViewMatcher>, String> {
    let children = node.children().filter(Node::is_element);
    let parts: Result<Vec<_>, _> = children
        .map(|child| read_matcher(xml, child, escape))
        .collect();
    let parts = parts?;
    if parts.is_empty() {
        return Err(format!("`{}` without a condition", node.tag_name().name()));
    }
    Ok(parts)
}

fn read_field(node: Node<'_, '_>) -> Result<CloudViewField, String> {
    let name = node
        .attribute("field")
        .ok_or_else(|| format!("`{}` without `field`", node.tag_name().name()))?;
    if name == "fragment" {
        return Err("requests carry no fragment".to_owned());
    }
    CloudViewField::from_name(name).ok_or_else(|| format!("the field `{name}` is not known"))
}

fn read_value<'a>(node: Node<'a, '_>) -> Result<&'a str, String> {
    let value = node.attribute("value").or_else(|| node.attribute("val"));
    value.ok_or_else(|| format!("`{}` without a value", node.tag_name().name()))
}

fn read_atom(
    xml: &XmlSource<'_>,
    node: Node<'_, '_>,
    field: CloudViewField,
    kind: CloudViewKind,
    escape: Option<bool>,
) -> Result<CloudViewMatcher, String> {
    let is_literal = match node.attribute("litteral").or(node.attribute("literal")) {
        Some("true") => true,
        Some("false") | None => false,
        Some(other) => return Err(format!("`litteral` is neither true nor false: `{other}`")),
    };
    let syntax = match escape.unwrap_or(is_literal) {
        true => ValueSyntax::Literal,
        false => ValueSyntax::Expression,
    };
    let norm = match node.attribute("norm") {
        Some("none") => CloudViewNorm::None,
        Some("lower") => CloudViewNorm::Lower,
        Some("norm") | None => CloudViewNorm::Norm,
        Some(other) => return Err(format!("the normalization `{other}` is not known")),
    };
    let part = xml.part(node).ok_or("an element without a place")?;
    Ok(CloudViewMatcher::Atom(CloudViewAtom {
        part,
        field,
        kind,
        norm,
        pattern: CloudViewPattern::read(read_value(node)?, syntax),
    }))
}

fn read_length(node: Node<'_, '_>) -> Result<CloudViewMatcher, String> {
    let field = read_field(node)?;
    let value = read_value(node)?.trim();
    let wrong = || format!("not a range of lengths such as `[30:]`: `{value}`");
    let inside = value.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let (min, max) = inside.and_then(|it| it.split_once(':')).ok_or_else(wrong)?;
    let bound = |text: &str| match text.trim() {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| wrong()),
    };
    let (min, max) = (bound(min)?, bound(max)?);
    if min.is_none() && max.is_none() {
        return Err(wrong());
    }
    Ok(CloudViewMatcher::Length { field, min, max })
}
