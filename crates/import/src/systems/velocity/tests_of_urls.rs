//! Patterns of conditions: reading, and translation.

use roxmltree::Node;

use crate::draft::ConditionDraft;

use crate::systems::urls::{check_condition, check_host};

use super::source::{VelocityField, VelocityTest};

/// Reads `field`, `how` and the pattern of a condition. The error names the value that is not known.
pub(super) fn read_test(element: Node<'_, '_>) -> Result<VelocityTest, String> {
    let field = match element.attribute("field").unwrap_or("url") {
        "url" => VelocityField::Url,
        "path" => VelocityField::Path,
        "host" => VelocityField::Host,
        "protocol" => VelocityField::Protocol,
        other => return Err(format!("`field` is `{other}`, which is not known")),
    };
    if let Some(name) = element.attribute("custom-field") {
        return Err(format!("`custom-field` is `{name}`, which is not known"));
    }
    let how = element.attribute("how").unwrap_or("wc-set");
    if !matches!(how, "wc-set" | "wc" | "exact") {
        return Err(format!("`how` is `{how}`, which is not known"));
    }
    let mut patterns = element
        .children()
        .filter(|child| child.tag_name().name() == "crawl-pattern");
    let text = match (patterns.next(), patterns.next()) {
        (Some(pattern), None) => pattern.text().unwrap_or_default(),
        (Some(_), Some(_)) => return Err("several `crawl-pattern` in one condition".to_owned()),
        (None, _) => return Err("a condition without `crawl-pattern`".to_owned()),
    };
    let patterns: Vec<String> = match how {
        "wc-set" => text.lines().map(str::trim).map(str::to_owned).collect(),
        _ => vec![text.trim().to_owned()],
    };
    let patterns: Vec<String> = patterns.into_iter().filter(|it| !it.is_empty()).collect();
    if patterns.is_empty() {
        return Err("an empty `crawl-pattern`".to_owned());
    }
    Ok(VelocityTest {
        field,
        has_wildcards: how != "exact",
        patterns,
    })
}

/// A test as a condition.
pub(super) struct TranslatedTest {
    pub condition: ConditionDraft,
    /// A default port was left out of a pattern.
    pub drops_port: bool,
}

/// Translates a test. The error says why it cannot be said in a policy.
pub(super) fn condition(test: &VelocityTest) -> Result<TranslatedTest, String> {
    let mut drops_port = false;
    let mut texts = Vec::new();
    for pattern in &test.patterns {
        if test.has_wildcards && pattern.contains("\\*") {
            return Err(format!("a backslash before a star: `{pattern}`"));
        }
        let written = match test.field {
            VelocityField::Url => canonical_pattern(pattern)?,
            VelocityField::Path => pattern.clone(),
            VelocityField::Host | VelocityField::Protocol => pattern.to_ascii_lowercase(),
        };
        if test.field == VelocityField::Host && !written.contains('*') {
            check_host(&written)?;
        }
        drops_port |= !written.eq_ignore_ascii_case(pattern);
        texts.push(written);
    }
    // A glob without a star is the text itself, so that the order of the patterns is kept.
    let has_globs = test.has_wildcards && texts.iter().any(|text| text.contains('*'));
    let has_scheme = |scheme: &str| texts.iter().any(|text| text == scheme);
    let fits_all = has_globs && texts.iter().any(|text| text == "*");
    let is_protocol = test.field == VelocityField::Protocol;
    if fits_all || is_protocol && has_scheme("http") && has_scheme("https") {
        return Ok(TranslatedTest {
            condition: ConditionDraft::Always,
            drops_port,
        });
    }
    let field = match test.field {
        VelocityField::Url => "url",
        VelocityField::Path => "path",
        VelocityField::Host => "host",
        VelocityField::Protocol => "scheme",
    };
    let condition = if has_globs {
        ConditionDraft::test(field, "glob", texts)
    } else if texts.iter().any(|text| text.contains('*')) {
        let texts = texts.iter().map(|text| text.replace('*', "\\*"));
        ConditionDraft::test(field, "glob", texts)
    } else {
        let kind = (test.field == VelocityField::Path).then_some("exact");
        ConditionDraft::test(field, kind, texts)
    };
    check_condition(&condition)?;
    Ok(TranslatedTest {
        condition,
        drops_port,
    })
}

/// Writes scheme and host in lower case, and leaves out a default port, which Velocity writes into its keys.
fn canonical_pattern(pattern: &str) -> Result<String, String> {
    let hidden =
        || format!("a default port after a star, which URLs do not carry here: `{pattern}`");
    let Some((scheme, rest)) = pattern.split_once("://") else {
        let names_port = pattern.contains(":80/") || pattern.contains(":443/");
        return if names_port {
            Err(hidden())
        } else {
            Ok(pattern.to_owned())
        };
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, rest) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let scheme = scheme.to_ascii_lowercase();
    let authority = authority.to_ascii_lowercase();
    let port = match scheme.as_str() {
        "http" => ":80",
        "https" => ":443",
        _ if authority.ends_with(":80") || authority.ends_with(":443") => return Err(hidden()),
        _ => "",
    };
    let host = match authority.strip_suffix(port) {
        // In `http://*:80` the star may also be in front of the path.
        Some(host) => host,
        None => &authority,
    };
    Ok(format!("{scheme}://{host}{rest}"))
}
