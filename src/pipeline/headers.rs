//! Views of a header map.

use std::borrow::Cow;

use http::header::{AsHeaderName, HeaderMap, HeaderName, HeaderValue};

use crate::policy::fact::HeaderView;

/// Iterates over the first value of each field. One pass over the few fields of a request costs less than several
/// lookups.
pub fn first_values(headers: &HeaderMap) -> impl Iterator<Item = (&HeaderName, &HeaderValue)> {
    let mut last: Option<&HeaderName> = None;
    // The values of one name are adjacent.
    headers
        .iter()
        .filter(move |(name, _)| last.replace(*name) != Some(*name))
}

/// A header map as the policy sees it: the values of a field joined, bytes that are not UTF-8 replaced.
pub struct JoinedHeaders<'a>(pub &'a HeaderMap);

impl<'a> JoinedHeaders<'a> {
    /// Returns all values of a field, joined by `", "`; `None` if it is absent.
    pub fn joined(&self, name: impl AsHeaderName) -> Option<Cow<'a, str>> {
        let mut values = self
            .0
            .get_all(name)
            .iter()
            .map(|v| String::from_utf8_lossy(v.as_bytes()));
        let first = values.next()?;
        Some(values.fold(first, |all, next| Cow::Owned(format!("{all}, {next}"))))
    }
}

impl HeaderView for JoinedHeaders<'_> {
    fn header(&self, name: &str) -> Option<Cow<'_, str>> {
        self.joined(name)
    }

    fn for_each_line(&self, name: &str, see: &mut dyn FnMut(&str)) {
        self.0
            .get_all(name)
            .iter()
            .for_each(|value| see(&String::from_utf8_lossy(value.as_bytes())));
    }
}
