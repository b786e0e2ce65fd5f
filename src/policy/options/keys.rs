//! The options `strip_params` and `replace`: under which URL the ledger keeps a request, and, where they say
//! `rewrite: true`, which URL is fetched in its place (policy.md section 5).
//!
//! Prepared when a policy is loaded; one that sets neither pays a look at two empty places. That the URL in place of
//! another is judged again, and once, is `gate`'s business.

use std::borrow::Cow;

use regex::Regex;

use crate::policy::Policy;
use crate::policy::trail::Trail;
use crate::vocab::target::UrlTarget;

use super::Value;
use super::chosen::Chosen;
use super::schema::{REPLACE, STRIP_PARAMS};

/// What a policy's `strip_params` and `replace` have become.
#[derive(Debug, Default)]
pub struct Keys {
    strip: Option<Chosen<Strip>>,
    replace: Option<Chosen<Box<[Replacement]>>>,
}

/// For what a URL is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// For the ledger's key alone.
    Key,
    /// For the fetch too: `rewrite: true`.
    Fetch,
}

/// Parameters that do not tell URLs apart.
#[derive(Debug)]
struct Strip {
    names: Box<[ParamName]>,
    reach: Reach,
}

/// A name of parameters, cut at its stars: one piece is the name itself.
#[derive(Debug)]
struct ParamName(Box<[Box<str>]>);

/// One item of `replace`.
#[derive(Debug)]
pub(in crate::policy) struct Replacement {
    pub(in crate::policy) regex: Regex,
    pub(in crate::policy) with: Box<str>,
    pub(in crate::policy) reach: Reach,
}

impl Keys {
    /// Prepares the options of a policy; `replacement` compiles an item of `replace`.
    pub(in crate::policy) fn of(
        policy: &Policy,
        replacement: impl Fn(&Value) -> Option<Replacement>,
    ) -> Self {
        let all = |value: &Value| {
            let Value::List(items) = value else {
                return None;
            };
            let all: Box<[Replacement]> = items.iter().filter_map(&replacement).collect();
            (!all.is_empty()).then_some(all)
        };
        Self {
            strip: Chosen::of(policy, STRIP_PARAMS, Strip::of),
            replace: Chosen::of(policy, REPLACE, all),
        }
    }

    /// Whether any URL is ever fetched in the place of another.
    fn rewrites(&self) -> bool {
        let by_name = self
            .strip
            .iter()
            .flat_map(Chosen::all)
            .any(|strip| strip.reach == Reach::Fetch);
        let by_regex = self.replace.iter().flat_map(Chosen::all).flatten();
        by_name
            || by_regex
                .map(|one| one.reach)
                .any(|reach| reach == Reach::Fetch)
    }

    /// What a URL becomes for the key, or for the fetch.
    fn applied<'t>(
        &self,
        policy: &Policy,
        trail: &Trail,
        url: &'t str,
        reach: Reach,
    ) -> Cow<'t, str> {
        let strip = self
            .strip
            .as_ref()
            .and_then(|strip| strip.now(policy, trail));
        let replace = self
            .replace
            .as_ref()
            .and_then(|replace| replace.now(policy, trail));
        let stripped = match strip.filter(|strip| strip.reach.covers(reach)) {
            Some(strip) => strip.strip(url),
            None => Cow::Borrowed(url),
        };
        let replace = replace
            .into_iter()
            .flatten()
            .filter(|one| one.reach.covers(reach));
        replace.fold(stripped, |url, one| one.apply(url))
    }
}

impl Reach {
    /// Whether what reaches so far has a part in this: what is fetched has one in both.
    pub(in crate::policy) fn covers(self, wanted: Self) -> bool {
        self == Self::Fetch || wanted == Self::Key
    }
}

impl Replacement {
    pub(in crate::policy) fn apply<'t>(&self, url: Cow<'t, str>) -> Cow<'t, str> {
        match self.regex.replace_all(&url, &*self.with) {
            Cow::Borrowed(_) => url,
            Cow::Owned(changed) => Cow::Owned(changed),
        }
    }
}

impl Strip {
    fn of(value: &Value) -> Option<Self> {
        let (names, reach) = if let Value::Map(entries) = value {
            let get = |key: &str| {
                entries
                    .iter()
                    .find(|(k, _)| **k == *key)
                    .map(|(_, value)| value)
            };
            let fetch = get("rewrite") == Some(&Value::Bool(true));
            (get("names")?, if fetch { Reach::Fetch } else { Reach::Key })
        } else {
            (value, Reach::Key)
        };
        let Value::List(names) = names else {
            return None;
        };
        let names: Box<[ParamName]> = names.iter().filter_map(ParamName::of).collect();
        (!names.is_empty()).then_some(Self { names, reach })
    }

    /// The URL without these parameters; the others stay as they are written, in their order.
    fn strip<'t>(&self, url: &'t str) -> Cow<'t, str> {
        let Some((front, query)) = url.split_once('?') else {
            return Cow::Borrowed(url);
        };
        let goes = |param: &&str| self.names.iter().any(|name| name.fits(&name_of(param)));
        if !query.split('&').any(|param| goes(&param)) {
            return Cow::Borrowed(url);
        }
        let kept: Vec<&str> = query.split('&').filter(|param| !goes(param)).collect();
        if kept.is_empty() {
            return Cow::Owned(front.to_owned());
        }
        Cow::Owned([front, "?", &kept.join("&")].concat())
    }
}

/// The name of a parameter as `param.NAME` reads it: percent-decoded once, `+` as a space.
fn name_of(param: &str) -> Cow<'_, str> {
    let name = param.split('=').next().unwrap_or(param);
    url::form_urlencoded::parse(name.as_bytes())
        .next()
        .map_or(Cow::Borrowed(""), |(name, _)| name)
}

impl ParamName {
    fn of(value: &Value) -> Option<Self> {
        let Value::Text(name) = value else {
            return None;
        };
        Some(Self(name.split('*').map(Box::from).collect()))
    }

    /// `*` stands for any run of characters, capital letters for themselves. Of an empty name nothing fits but `*`.
    fn fits(&self, name: &str) -> bool {
        let Some((first, rest)) = self.0.split_first() else {
            return false;
        };
        let Some((last, middle)) = rest.split_last() else {
            return !name.is_empty() && name == &**first;
        };
        let Some(mut name) = name.strip_prefix(&**first) else {
            return false;
        };
        for piece in middle {
            let Some((_, behind)) = name.split_once(&**piece) else {
                return false;
            };
            name = behind;
        }
        name.ends_with(&**last)
    }
}

impl Policy {
    /// Under which URL the ledger keeps this one: its canonical form after `strip_params` and `replace`. It need not be a
    /// URL any more.
    pub fn key_url<'t>(&self, trail: &Trail, target: &'t UrlTarget) -> Cow<'t, str> {
        self.keys.applied(self, trail, target.as_str(), Reach::Key)
    }

    /// Which URL is fetched in place of this one: what the parts with `rewrite: true` make of it. `None` if that is the
    /// same, or no URL that could be fetched.
    pub fn rewritten(&self, trail: &Trail, target: &UrlTarget) -> Option<UrlTarget> {
        match self
            .keys
            .applied(self, trail, target.as_str(), Reach::Fetch)
        {
            Cow::Borrowed(_) => None,
            Cow::Owned(url) => UrlTarget::parse(&url).ok().filter(|other| other != target),
        }
    }

    /// Whether it ever fetches a URL in the place of another.
    pub fn rewrites(&self) -> bool {
        self.rewrites
    }

    pub(in crate::policy) fn set_keys(&mut self, keys: Keys) {
        self.rewrites = keys.rewrites();
        self.keys = keys;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_run_of_characters() {
        for (name, params, other) in [
            ("sid", &["sid"][..], &["SID", "sid2", "xsid", ""][..]),
            ("utm_*", &["utm_", "utm_source"], &["utm", "xutm_a"]),
            ("*sid", &["sid", "phpsid"], &["side"]),
            ("a*b*c", &["abc", "a-b-c", "abbc"], &["ac", "acb", "abcd"]),
            ("a*a", &["aa", "aba"], &["a"]),
            ("*", &["", "x"], &[]),
        ] {
            let pattern = ParamName::of(&Value::Text(name.into())).unwrap();
            params
                .iter()
                .for_each(|param| assert!(pattern.fits(param), "{name} {param}"));
            other
                .iter()
                .for_each(|param| assert!(!pattern.fits(param), "{name} {param}"));
        }
    }

    #[test]
    fn what_is_not_stripped_stays_as_it_is_written() {
        let names = ["sid", "utm_*"].map(|name| Value::Text(name.into()));
        let strip = Strip::of(&Value::List(names.into())).unwrap();
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
            assert_eq!(strip.strip(url), expected, "{url}");
        }
    }
}
