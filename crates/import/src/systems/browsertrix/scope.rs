//! The scopes of seeds as conditions.

use crawlgate_policy::internal::urls::target::UrlTarget;

use crate::draft::ConditionDraft;

use super::source::ScopeType;

/// A seed as its scope is made of it: without scheme, and without `www<N>.` before its host.
pub(super) struct SeedOrigin {
    /// With the port, unless that is the scheme's.
    authority: String,
    path: String,
    path_and_query: String,
    url: String,
    /// The URL without `www<N>.`.
    bare_url: String,
}

impl SeedOrigin {
    /// Splits the URL of a seed.
    pub(super) fn new(url: &str) -> Option<Self> {
        let target = UrlTarget::parse(url).ok()?;
        let authority = without_www(target.authority()).to_owned();
        let path_and_query = target.path_and_query().to_owned();
        let scheme = target.scheme().as_str();
        Some(Self {
            bare_url: format!("{scheme}://{authority}{path_and_query}"),
            path: target.path().to_owned(),
            url: target.as_str().to_owned(),
            authority,
            path_and_query,
        })
    }

    /// Returns the URLs that are the seed, whatever its scope is.
    pub(super) fn urls(&self) -> Vec<String> {
        let mut urls = vec![self.url.clone()];
        if self.bare_url != self.url {
            urls.push(self.bare_url.clone());
        }
        urls
    }

    /// Returns the directory of the seed, with its last slash.
    fn directory(&self) -> &str {
        let end = self.path.rfind('/').map_or(0, |at| at + 1);
        self.path.get(..end).unwrap_or("/")
    }

    /// Returns the condition of a scope. Any scheme and any `www<N>.` before the host fit.
    pub(super) fn condition(&self, scope_type: ScopeType) -> ConditionDraft {
        let host = self.host_expression(scope_type);
        let authority = ConditionDraft::test("authority", "regex", [format!("{host}$")]);
        match scope_type {
            ScopeType::Page | ScopeType::PageSpa => {
                let pages = page_forms(&self.path_and_query);
                let page = ConditionDraft::test("path_and_query", "exact", pages);
                ConditionDraft::all(vec![authority, page])
            }
            ScopeType::Prefix if self.directory() != "/" => {
                let directory = ConditionDraft::is("path", [self.directory()]);
                ConditionDraft::all(vec![authority, directory])
            }
            ScopeType::Prefix | ScopeType::Host | ScopeType::Domain => authority,
            ScopeType::Any => ConditionDraft::Always,
            ScopeType::Custom => ConditionDraft::is("url", self.urls()),
        }
    }

    /// Returns expressions for URLs that say the same as the condition.
    pub(super) fn expressions(&self, scope_type: ScopeType) -> Vec<String> {
        let host = self.host_expression(scope_type);
        let host = host.trim_start_matches('^');
        let begin = format!("^https?://{host}");
        match scope_type {
            ScopeType::Page | ScopeType::PageSpa => {
                let pages = page_forms(&self.path_and_query).into_iter();
                pages
                    .map(|page| format!("{begin}{}$", escaped(&page)))
                    .collect()
            }
            ScopeType::Prefix => vec![format!("{begin}{}", escaped(self.directory()))],
            ScopeType::Host | ScopeType::Domain => vec![format!("{begin}/")],
            ScopeType::Any => vec!["^".to_owned()],
            ScopeType::Custom => {
                let urls = self.urls().into_iter();
                urls.map(|url| format!("^{}$", escaped(&url))).collect()
            }
        }
    }

    fn host_expression(&self, scope_type: ScopeType) -> String {
        let host = escaped(&self.authority);
        match scope_type {
            ScopeType::Domain => format!(r"^([^/]+\.)*{host}"),
            ScopeType::Page
            | ScopeType::PageSpa
            | ScopeType::Prefix
            | ScopeType::Host
            | ScopeType::Any
            | ScopeType::Custom => format!(r"^(www[0-9]*\.)?{host}"),
        }
    }
}

/// Returns a page as it is written, and with its parameters sorted by their names.
fn page_forms(path_and_query: &str) -> Vec<String> {
    let mut forms = vec![path_and_query.to_owned()];
    if let Some((path, query)) = path_and_query.split_once('?') {
        let mut parameters: Vec<&str> = query.split('&').collect();
        parameters.sort_by_key(|parameter| parameter.split('=').next().unwrap_or(parameter));
        let sorted = format!("{path}?{}", parameters.join("&"));
        if sorted != path_and_query {
            forms.push(sorted);
        }
    }
    forms
}

fn without_www(authority: &str) -> &str {
    let bare = authority.strip_prefix("www").and_then(|rest| {
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        rest.strip_prefix('.')
    });
    bare.filter(|bare| !bare.is_empty()).unwrap_or(authority)
}

/// Escapes the characters of a text that have a meaning in an expression.
fn escaped(text: &str) -> String {
    let mut expression = String::with_capacity(text.len());
    for c in text.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            expression.push('\\');
        }
        expression.push(c);
    }
    expression
}
