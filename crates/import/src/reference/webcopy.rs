//! WebCopy's two passes over the list of rules: first those on the URL, then those on the content type. In each the
//! last rule that fits decides, unless one stops.

use crate::expression::{Anchoring, Dialect};
use crate::reference::expression::OriginalExpression;
use crate::reference::requested::RequestedUrl;
use crate::reference::{SourceEvaluator, SourceRequest, SourceVerdict};
use crate::report::Report;
use crate::systems::webcopy::source::{
    WebCopyAction, WebCopyCompare, WebCopyDepth, WebCopyProject, WebCopyRule, WebCopyScope,
};

/// Decides by the rules of a project.
pub struct WebCopyEvaluator {
    scope: Option<WebCopyScope>,
    depth: Option<WebCopyDepth>,
    /// Rules with their expressions; `None` for one that cannot be compiled.
    rules: Vec<(WebCopyRule, Option<OriginalExpression>)>,
}

impl WebCopyEvaluator {
    /// Prepares what was converted.
    pub fn new(project: WebCopyProject, report: &Report) -> Self {
        let rules = project.rules.into_iter();
        let rules = rules.filter(|rule| report.is_converted(rule.part));
        let rules = rules.map(|rule| {
            let expression = OriginalExpression::new(
                &rule.expression,
                Dialect::DotNet,
                Anchoring::Search,
                rule.ignore_case,
            );
            (rule, expression.ok())
        });
        Self {
            scope: project
                .scope
                .filter(|scope| report.is_converted(scope.part)),
            depth: project
                .depth
                .filter(|depth| report.is_converted(depth.part)),
            rules: rules.collect(),
        }
    }

    /// Evaluates the rules of one pass; `None` if an expression cannot be evaluated.
    fn pass(
        &self,
        begin: Option<WebCopyAction>,
        of_types: bool,
        text: impl Fn(WebCopyCompare) -> String,
    ) -> Option<Option<WebCopyAction>> {
        let mut outcome = begin;
        for (rule, expression) in &self.rules {
            if (rule.compare == WebCopyCompare::ContentType) != of_types {
                continue;
            }
            let matches = matches(&rule.expression, expression.as_ref()?, &text(rule.compare))?;
            if matches != rule.negated {
                outcome = rule.action.or(outcome);
                if rule.stops {
                    break;
                }
            }
        }
        Some(outcome)
    }

    fn is_in_scope(&self, url: &RequestedUrl<'_>) -> bool {
        let is_host = self.scope.as_ref().is_none_or(|scope| {
            let below =
                |domain: &String| url.host == domain || url.host.ends_with(&format!(".{domain}"));
            scope.hosts.iter().any(|host| host == url.host) || scope.domains.iter().any(below)
        });
        let is_shallow = self.depth.as_ref().is_none_or(|depth| {
            let is_other = depth.host.as_deref().is_some_and(|host| host != url.host);
            is_other || depth_of(url.path) <= depth.max
        });
        is_host && is_shallow
    }
}

/// Compares a text with an expression, with the escapes of a request's URL and without them: WebCopy shows URLs
/// without them. `None` if that makes a difference that is not one of characters in the expression.
fn matches(text: &str, expression: &OriginalExpression, value: &str) -> Option<bool> {
    let shown = unescaped(value);
    let escaped = expression.is_match(value)?;
    if shown == value || expression.is_match(&shown)? == escaped {
        return Some(escaped);
    }
    let is_in_expression = match escaped {
        true => text.contains('%'),
        false => text.contains(is_unescaped),
    };
    is_in_expression.then_some(true)
}

/// Returns `true` for characters that are escaped in a request's URL, and not where WebCopy shows it.
fn is_unescaped(c: char) -> bool {
    !c.is_ascii() || " \"#<>[\\]^`{|}".contains(c)
}

fn unescaped(value: &str) -> String {
    let mut bytes: Vec<u8> = Vec::new();
    let mut rest = value;
    while let Some(c) = rest.chars().next() {
        let code = rest.strip_prefix('%').and_then(|hex| hex.get(..2));
        let byte = code.and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match byte.filter(|byte| is_unescaped(char::from(*byte))) {
            Some(byte) => {
                bytes.push(byte);
                rest = rest.get(3..).unwrap_or_default();
            }
            None => {
                bytes.extend(c.to_string().as_bytes());
                rest = rest.get(c.len_utf8()..).unwrap_or_default();
            }
        }
    }
    // Bytes that are no UTF-8 stay escaped.
    String::from_utf8(bytes).unwrap_or_else(|_| value.to_owned())
}

/// Counts the segments of a path without the name of a document.
fn depth_of(path: &str) -> u64 {
    let path = path.strip_prefix('/').unwrap_or(path);
    let (directories, document) = path.rsplit_once('/').unwrap_or(("", path));
    let mut count = 0;
    if path.contains('/') {
        for directory in directories.split('/') {
            if directory.is_empty() {
                // What follows an empty segment does not count.
                return count;
            }
            count += 1;
        }
    }
    count + u64::from(!document.is_empty() && !document.contains('.'))
}

impl SourceEvaluator for WebCopyEvaluator {
    fn decide(&self, request: &SourceRequest<'_>) -> SourceVerdict {
        let url = RequestedUrl::new(request.url);
        if !self.is_in_scope(&url) {
            return SourceVerdict::Refuse;
        }
        let Some(first) = self.pass(None, false, |compare| text_of(compare, &url)) else {
            return SourceVerdict::Unknown;
        };
        if first == Some(WebCopyAction::Exclude) {
            return SourceVerdict::Refuse;
        }
        let is_success = request
            .number("status")
            .is_none_or(|status| status / 100 == 2);
        let Some(kind) = request.text("content_type").filter(|_| is_success) else {
            return SourceVerdict::Allow;
        };
        let kind = kind.split(';').next().unwrap_or_default().trim();
        let kind = kind.to_ascii_lowercase();
        let is_html = matches!(kind.as_str(), "text/html" | "application/xhtml+xml");
        match self.pass(first, true, |_| kind.clone()) {
            None => SourceVerdict::Unknown,
            Some(Some(WebCopyAction::Exclude)) => SourceVerdict::Refuse,
            Some(Some(WebCopyAction::ExcludeButScan)) if !is_html => SourceVerdict::Refuse,
            Some(_) => SourceVerdict::Allow,
        }
    }
}

fn text_of(compare: WebCopyCompare, url: &RequestedUrl<'_>) -> String {
    let path = url.path.strip_prefix('/').unwrap_or(url.path);
    let path_and_query = match url.query {
        "" => path.to_owned(),
        query => format!("{path}?{query}"),
    };
    match compare {
        WebCopyCompare::Authority => url.authority.to_owned(),
        WebCopyCompare::AuthorityPathQuery => format!("{}/{path_and_query}", url.authority),
        WebCopyCompare::ContentType => String::new(),
        WebCopyCompare::Url => url.url.to_owned(),
        WebCopyCompare::Path => path.to_owned(),
        WebCopyCompare::PathQuery => path_and_query,
        WebCopyCompare::Query => url.query.to_owned(),
    }
}
