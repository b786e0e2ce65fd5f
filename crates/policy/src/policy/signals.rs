//! Statements about a document in response headers: usage preferences, robots directives and the
//! canonical URL.

use super::fact::{HeaderView, UsagePreference};
use crate::robots::robots_tag;
use crate::robots::usage::{UsageSyntax, find_preference};

/// Returns the preference for a purpose in the response headers; the strictest field line wins.
pub(crate) fn header_usage_preference(headers: &dyn HeaderView, name: &str) -> UsagePreference {
    let mut strictest = UsagePreference::Unset;
    for (header, syntax) in [
        ("content-usage", UsageSyntax::ContentUsage),
        ("content-signal", UsageSyntax::ContentSignal),
    ] {
        headers.for_each_line(header, &mut |line| {
            strictest = strictest.max(find_preference(syntax, line, name))
        });
    }
    strictest
}

/// Returns the directives in `X-Robots-Tag` that address a crawler; empty if there are none.
pub(crate) fn robots_tag_directives(headers: &dyn HeaderView, agent: &str) -> String {
    let mut directives = String::new();
    headers.for_each_line("x-robots-tag", &mut |line| {
        robots_tag::append_directives(&mut directives, line, agent)
    });
    directives
}

/// Returns the directives in a document's `<meta name="robots">` that address a crawler.
pub(crate) fn meta_robots_directives(content: &str, agent: &str) -> String {
    let mut directives = String::new();
    robots_tag::append_directives(&mut directives, content, agent);
    directives
}

/// Returns the target of the first `Link` member with `rel=canonical` (RFC 8288 section 3), as
/// written.
pub(crate) fn canonical_link(header: &str) -> Option<&str> {
    let mut rest = header;
    while let Some((_, after)) = rest.split_once('<') {
        let (target, after) = after.split_once('>')?;
        // A member ends at a comma outside quotes. Targets contain commas, parameters hardly ever
        // do.
        let end = after.find('<').unwrap_or(after.len());
        let (parameters, next) = after.split_at_checked(end)?;
        if parameters.split([';', ',']).any(is_canonical) {
            return Some(target.trim());
        }
        rest = next;
    }
    None
}

fn is_canonical(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else {
        return false;
    };
    let words = value.trim().trim_matches('"');
    name.trim().eq_ignore_ascii_case("rel")
        && words
            .split_ascii_whitespace()
            .any(|w| w.eq_ignore_ascii_case("canonical"))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    /// Header fields in order.
    struct SignalHeaders(&'static [(&'static str, &'static str)]);

    impl HeaderView for SignalHeaders {
        fn header(&self, name: &str) -> Option<Cow<'_, str>> {
            let values: Vec<&str> = self
                .0
                .iter()
                .filter(|(n, _)| *n == name)
                .map(|(_, v)| *v)
                .collect();
            (!values.is_empty()).then(|| values.join(", ").into())
        }

        fn for_each_line(&self, name: &str, see: &mut dyn FnMut(&str)) {
            self.0
                .iter()
                .filter(|(n, _)| *n == name)
                .for_each(|(_, value)| see(value));
        }
    }

    #[test]
    fn usage_of_both_headers() {
        for (fields, expected) in [
            (
                &[("content-usage", "train-ai=n, search=y")][..],
                UsagePreference::Deny,
            ),
            (
                &[
                    ("content-usage", "train-ai=n"),
                    ("content-usage", "train-ai=y"),
                ],
                UsagePreference::Deny,
            ),
            (
                &[("content-usage", "train-ai=n, train-ai=y")],
                UsagePreference::Allow,
            ),
            (
                &[
                    ("content-usage", "train-ai=y"),
                    ("content-signal", "ai-train=no"),
                ],
                UsagePreference::Deny,
            ),
            (
                &[("content-signal", "ai-train=yes")],
                UsagePreference::Allow,
            ),
            (&[("content-signal", "search=no")], UsagePreference::Unset),
            (&[], UsagePreference::Unset),
        ] {
            assert_eq!(
                header_usage_preference(&SignalHeaders(fields), "train-ai"),
                expected,
                "{fields:?}"
            );
        }
    }

    #[test]
    fn lines_of_the_tag_are_parsed_separately() {
        let fields = SignalHeaders(&[
            ("x-robots-tag", "other: noindex"),
            ("x-robots-tag", "nofollow, bot: none"),
        ]);
        assert_eq!(robots_tag_directives(&fields, "x"), "nofollow");
        assert_eq!(robots_tag_directives(&fields, "Bot"), "nofollow, none");
    }

    #[test]
    fn canonical_is_found_among_other_links() {
        let both = r#"<http://a/style,1.css>; rel=preload, <http://a/c>; rel="nofollow canonical""#;
        assert_eq!(canonical_link(both), Some("http://a/c"));
        assert_eq!(canonical_link("<http://a/>; rel=next"), None);
        assert_eq!(canonical_link("no link at all"), None);
        assert_eq!(canonical_link("<unclosed"), None);
    }
}
