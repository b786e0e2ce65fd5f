//! The setting `logs.query`: how much of a URL's query the log shows.

use crate::model::words::words;

/// The text in place of a value, or of a whole query.
const REDACTED: &str = "redacted";

words! {
    /// The part of a URL's query that is shown. It applies wherever URLs of requests are shown: in the log, in the
    /// latest lines in memory, in the examples of shadow reports, and in spans.
    pub enum QueryVisibility {
        /// The whole query.
        Shown = "full",
        /// The names of parameters; their values are replaced by `redacted`. A parameter without `=` counts as a value.
        NamesOnly = "names",
        /// Nothing: the query is replaced by `?redacted`.
        Redacted = "none",
    }
}

impl QueryVisibility {
    /// Passes the parts of a URL that are shown, in order; none is empty.
    pub(crate) fn for_each_part<'u>(self, url: &'u str, mut show: impl FnMut(&'u str)) {
        let (before, query) = match (self, url.split_once('?')) {
            (Self::Shown, _) | (Self::NamesOnly | Self::Redacted, None) => return show(url),
            (Self::NamesOnly | Self::Redacted, Some(parts)) => parts,
        };
        show(before);
        show("?");
        if self == Self::Redacted {
            return show(REDACTED);
        }
        for (index, parameter) in query.split('&').enumerate() {
            if index > 0 {
                show("&");
            }
            if let Some((name, _)) = parameter.split_once('=') {
                if !name.is_empty() {
                    show(name);
                }
                show("=");
            }
            show(REDACTED);
        }
    }
}

/// Returns `true` if parts of the query of a shown URL may be missing.
pub(crate) fn is_redacted(url: &str) -> bool {
    url.split_once('?').is_some_and(|(_, query)| {
        query
            .split('&')
            .any(|parameter| parameter.rsplit('=').next() == Some(REDACTED))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_queries_are_replaced() {
        for (url, names, none) in [
            ("http://h/a", "http://h/a", "http://h/a"),
            (
                "http://h/a?k=v&l=w?x=y",
                "http://h/a?k=redacted&l=redacted",
                "http://h/a?redacted",
            ),
            (
                "http://h/a?s3cret&k=&=v&&b=1=2",
                "http://h/a?redacted&k=redacted&=redacted&redacted&b=redacted",
                "http://h/a?redacted",
            ),
            ("http://h/a?", "http://h/a?redacted", "http://h/a?redacted"),
        ] {
            for (query, shown) in [
                (QueryVisibility::Shown, url),
                (QueryVisibility::NamesOnly, names),
                (QueryVisibility::Redacted, none),
            ] {
                let mut parts = vec![];
                query.for_each_part(url, |part| parts.push(part));
                assert!(parts.iter().all(|part| !part.is_empty()), "{parts:?}");
                assert_eq!(parts.concat(), shown, "{query:?}");
                assert_eq!(is_redacted(shown), shown != url, "{shown}");
            }
        }
    }
}
