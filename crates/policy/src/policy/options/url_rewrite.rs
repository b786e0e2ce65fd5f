//! The options `strip_params` and `replace`: the URL under which the ledger records a request and,
//! with `rewrite: true`, the URL that is fetched instead (docs/policy/reference.md, "Options").
//!
//! Prepared when a policy is loaded; if a policy sets neither, a request costs two checks. The
//! caller evaluates a rewritten URL again, once.

use std::borrow::Cow;

use regex::Regex;

use crate::model::glob::TextGlob;
use crate::policy::Policy;
use crate::policy::trail::Trail;
use crate::urls::target::UrlTarget;

use super::prepared::PreparedOption;
use super::schema::{REPLACE, STRIP_PARAMS};
use super::{OptionSources, OptionValue};

/// The prepared `strip_params` and `replace` of a policy.
#[derive(Debug, Default)]
pub struct UrlRewriter {
    strip_params: Option<PreparedOption<StripParams>>,
    replacements: Option<PreparedOption<Box<[UrlReplacement]>>>,
}

/// The purpose for which a URL is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewriteScope {
    /// The ledger key only.
    Key,
    /// The fetch as well: `rewrite: true`.
    Fetch,
}

/// Query parameters that do not distinguish URLs.
#[derive(Debug)]
struct StripParams {
    names: Box<[ParamNamePattern]>,
    scope: RewriteScope,
}

/// A pattern for parameter names.
#[derive(Debug)]
enum ParamNamePattern {
    Name(Box<str>),
    Glob(TextGlob),
}

/// One item of `replace`.
#[derive(Debug)]
pub(crate) struct UrlReplacement {
    pub(crate) regex: Regex,
    pub(crate) with: Box<str>,
    pub(crate) scope: RewriteScope,
}

impl UrlRewriter {
    /// Prepares the options of a policy; `compile` compiles an item of `replace`.
    pub(crate) fn new(
        sources: OptionSources<'_>,
        compile: impl Fn(&OptionValue) -> Option<UrlReplacement>,
    ) -> Self {
        Self {
            strip_params: PreparedOption::from_sources(
                sources,
                STRIP_PARAMS,
                StripParams::from_value,
            ),
            replacements: PreparedOption::from_sources(sources, REPLACE, |value| {
                let all: Box<[UrlReplacement]> =
                    value.items().iter().filter_map(&compile).collect();
                (!all.is_empty()).then_some(all)
            }),
        }
    }

    /// Returns `true` if a URL may be fetched in place of another.
    pub(crate) fn rewrites_urls(&self) -> bool {
        let strips = self
            .strip_params
            .iter()
            .flat_map(PreparedOption::values)
            .map(|strip| strip.scope);
        let replaces = self
            .replacements
            .iter()
            .flat_map(PreparedOption::values)
            .flatten()
            .map(|replacement| replacement.scope);
        strips
            .chain(replaces)
            .any(|scope| scope == RewriteScope::Fetch)
    }

    /// Returns the URL as changed for a purpose.
    fn apply<'t>(
        &self,
        policy: &Policy,
        trail: &Trail,
        url: &'t str,
        scope: RewriteScope,
    ) -> Cow<'t, str> {
        let strip = self
            .strip_params
            .as_ref()
            .and_then(|strip| strip.current(policy, trail));
        let replace = self
            .replacements
            .as_ref()
            .and_then(|replace| replace.current(policy, trail));
        let stripped = match strip.filter(|strip| strip.scope.covers(scope)) {
            Some(strip) => strip.apply(url),
            None => Cow::Borrowed(url),
        };
        let replace = replace
            .into_iter()
            .flatten()
            .filter(|replacement| replacement.scope.covers(scope));
        replace.fold(stripped, |url, replacement| replacement.apply(url))
    }
}

impl RewriteScope {
    /// Returns the scope that a value of `strip_params` or an item of `replace` sets with `rewrite`.
    pub(crate) fn of_option(value: &OptionValue) -> Self {
        if value.get("rewrite") == Some(&OptionValue::Bool(true)) {
            Self::Fetch
        } else {
            Self::Key
        }
    }

    /// Returns `true` if a change with this scope applies to the wanted purpose: a change for the
    /// fetch applies to both.
    pub(crate) fn covers(self, wanted: Self) -> bool {
        self == Self::Fetch || wanted == Self::Key
    }
}

impl UrlReplacement {
    pub(crate) fn apply<'t>(&self, url: Cow<'t, str>) -> Cow<'t, str> {
        match self.regex.replace_all(&url, &*self.with) {
            Cow::Borrowed(_) => url,
            Cow::Owned(changed) => Cow::Owned(changed),
        }
    }
}

impl StripParams {
    fn from_value(value: &OptionValue) -> Option<Self> {
        let names: Box<[ParamNamePattern]> = value
            .get("names")
            .unwrap_or(value)
            .items()
            .iter()
            .filter_map(ParamNamePattern::from_value)
            .collect();
        (!names.is_empty()).then_some(Self {
            names,
            scope: RewriteScope::of_option(value),
        })
    }

    /// Returns the URL without these parameters; the others keep their spelling and order.
    fn apply<'t>(&self, url: &'t str) -> Cow<'t, str> {
        let Some((front, query)) = url.split_once('?') else {
            return Cow::Borrowed(url);
        };
        if !query.split('&').any(|param| self.matches(param)) {
            return Cow::Borrowed(url);
        }
        let rest: Vec<&str> = query
            .split('&')
            .filter(|param| !self.matches(param))
            .collect();
        if rest.is_empty() {
            return Cow::Owned(front.to_owned());
        }
        Cow::Owned([front, "?", &rest.join("&")].concat())
    }

    fn matches(&self, param: &str) -> bool {
        let name = param_name(param);
        self.names.iter().any(|pattern| pattern.matches(&name))
    }
}

/// Returns the name of a parameter as `param.NAME` reads it: percent-decoded once, `+` as a space.
fn param_name(param: &str) -> Cow<'_, str> {
    let name = param.split('=').next().unwrap_or(param);
    url::form_urlencoded::parse(name.as_bytes())
        .next()
        .map_or(Cow::Borrowed(""), |(name, _)| name)
}

impl ParamNamePattern {
    fn from_value(value: &OptionValue) -> Option<Self> {
        let text = value.as_text()?;
        Some(TextGlob::parse(text).map_or_else(|| Self::Name(text.into()), Self::Glob))
    }

    /// Matches a name, with regard to case; `*` matches any run of characters. An empty name is
    /// matched by `*` only.
    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Name(text) => !name.is_empty() && **text == *name,
            Self::Glob(glob) => glob.matches(name),
        }
    }
}

impl Policy {
    /// Returns the URL under which the ledger records this one: its canonical form after
    /// `strip_params` and `replace`. The result may not be a valid URL.
    pub fn key_url<'t>(&self, trail: &Trail, target: &'t UrlTarget) -> Cow<'t, str> {
        self.url_rewriter
            .apply(self, trail, target.as_str(), RewriteScope::Key)
    }

    /// Returns the URL that is fetched in place of this one, after the changes with `rewrite:
    /// true`. `None` if it is the same, or not a URL that can be fetched.
    pub fn rewritten_url(&self, trail: &Trail, target: &UrlTarget) -> Option<UrlTarget> {
        match self
            .url_rewriter
            .apply(self, trail, target.as_str(), RewriteScope::Fetch)
        {
            Cow::Borrowed(_) => None,
            Cow::Owned(url) => UrlTarget::parse(&url).ok().filter(|other| other != target),
        }
    }

    /// Returns `true` if the policy may fetch a URL in place of another.
    pub fn rewrites_urls(&self) -> bool {
        self.rewrites_urls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_run_of_characters() {
        for (name, params, other) in [
            ("sid", &["sid"][..], &["SID", "sid2", "xsid", ""][..]),
            ("utm_*", &["utm_", "utm_source"], &["utm", "xutm_a"]),
            ("*sid", &["sid", "phpsid"], &["side"]),
            ("a*b*c", &["abc", "a-b-c", "abbc"], &["ac", "acb", "abcd"]),
            ("a*a", &["aa", "aba"], &["a"]),
            ("*", &["", "x"], &[]),
        ] {
            let pattern = ParamNamePattern::from_value(&OptionValue::Text(name.into())).unwrap();
            params
                .iter()
                .for_each(|param| assert!(pattern.matches(param), "{name} {param}"));
            other
                .iter()
                .for_each(|param| assert!(!pattern.matches(param), "{name} {param}"));
        }
    }

    #[test]
    fn other_parameters_stay_unchanged() {
        let names = ["sid", "utm_*"].map(|name| OptionValue::Text(name.into()));
        let strip = StripParams::from_value(&OptionValue::List(names.into())).unwrap();
        for (url, expected) in [
            ("http://h/", "http://h/"),
            ("http://h/?", "http://h/?"),
            ("http://h/?sid=1", "http://h/"),
            ("http://h/?sid", "http://h/"),
            ("http://h/?b=%41&sid=1&a=+", "http://h/?b=%41&a=+"),
            ("http://h/?s%69d=1&a", "http://h/?a"),
            ("http://h/?SID=1", "http://h/?SID=1"),
            (
                "http://h/?utm_source=x&utm_medium=y&q=utm_z",
                "http://h/?q=utm_z",
            ),
            ("http://h/?&&sid=1", "http://h/?&"),
            ("http://h/?a=1?sid=2", "http://h/?a=1?sid=2"),
        ] {
            assert_eq!(strip.apply(url), expected, "{url}");
        }
    }
}
