//! Statements about a document in response headers: usage preferences, licenses, prices, robots
//! directives and the canonical URL.

use std::borrow::Cow;

use super::fact::{HeaderView, ResponseFacts, UsagePreference};
use crate::robots::robots_tag;
use crate::robots::usage::{UsageSyntax, find_preference, tdm_preference};

/// The media type of a license of Really Simple Licensing.
const LICENSE_TYPE: &str = "application/rsl+xml";
const PAYMENT_REQUIRED: u16 = 402;

/// Returns the preference for a purpose in the response headers; the strictest field line wins.
/// `agent` is the crawler's product token.
pub(crate) fn header_usage_preference(
    response: &ResponseFacts<'_>,
    agent: &str,
    name: &str,
) -> UsagePreference {
    let headers = response.headers;
    let mut strictest = UsagePreference::Unset;
    for (header, syntax) in [
        ("content-usage", UsageSyntax::ContentUsage),
        ("content-signal", UsageSyntax::ContentSignal),
    ] {
        headers.for_each_line(header, &mut |line| {
            strictest = strictest.max(find_preference(syntax, line, name))
        });
    }
    headers.for_each_line("tdm-reservation", &mut |line| {
        strictest = strictest.max(tdm_preference(line, name))
    });
    if name == "train-ai" && strictest != UsagePreference::Deny {
        let directives = robots_tag_directives(headers, agent);
        let is_image = response.content_type.starts_with("image/");
        if robots_tag::forbids_training(&directives, is_image) {
            return UsagePreference::Deny;
        }
    }
    strictest
}

/// Returns the price that the site asks for a page: `Crawler-Price` of a 402.
pub(crate) fn quoted_price<'a>(response: &ResponseFacts<'a>) -> Option<Cow<'a, str>> {
    if response.status == PAYMENT_REQUIRED {
        response.headers.header("crawler-price")
    } else {
        None
    }
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
    find_link(header, |parameters| has_relation(parameters, "canonical"))
}

/// Returns the target of the first `Link` member that is a license of Really Simple Licensing, as
/// written.
pub(crate) fn license_link(header: &str) -> Option<&str> {
    find_link(header, |parameters| {
        has_relation(parameters, "license") && has_type(parameters, LICENSE_TYPE)
    })
}

/// Returns the target of the first `Link` member whose parameters pass a test.
fn find_link(header: &str, test: impl Fn(&str) -> bool) -> Option<&str> {
    let mut rest = header;
    while let Some((_, after)) = rest.split_once('<') {
        let (target, after) = after.split_once('>')?;
        // A member ends at a comma outside quotes. Targets contain commas, parameters hardly ever
        // do.
        let end = after.find('<').unwrap_or(after.len());
        let (parameters, next) = after.split_at_checked(end)?;
        if test(parameters) {
            return Some(target.trim());
        }
        rest = next;
    }
    None
}

fn has_relation(parameters: &str, relation: &str) -> bool {
    parameter_values(parameters, "rel").any(|value| {
        value
            .split_ascii_whitespace()
            .any(|word| word.eq_ignore_ascii_case(relation))
    })
}

fn has_type(parameters: &str, media_type: &str) -> bool {
    parameter_values(parameters, "type").any(|value| value.eq_ignore_ascii_case(media_type))
}

/// Returns the values of a parameter, without quotes.
fn parameter_values<'a>(parameters: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    parameters
        .split([';', ','])
        .filter_map(|parameter| parameter.split_once('='))
        .filter(move |(key, _)| key.trim().eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::policy::fact::ContentAvailability;

    /// Header fields in order.
    struct SignalHeaders<'a>(&'a [(&'static str, &'static str)]);

    impl HeaderView for SignalHeaders<'_> {
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
            let headers = SignalHeaders(fields);
            let response = response(200, "text/html", &headers);
            assert_eq!(
                header_usage_preference(&response, "bot", "train-ai"),
                expected,
                "{fields:?}"
            );
        }
    }

    fn response<'a>(
        status: u16,
        content_type: &'a str,
        headers: &'a SignalHeaders<'a>,
    ) -> ResponseFacts<'a> {
        ResponseFacts {
            status,
            content_type,
            size: None,
            headers,
            content: ContentAvailability::Possible,
        }
    }

    #[test]
    fn reservations_and_directives_deny_training() {
        let deny = UsagePreference::Deny;
        let unset = UsagePreference::Unset;
        for (name, value, kind, train, tdm) in [
            ("tdm-reservation", "1", "text/html", deny, deny),
            ("tdm-reservation", "yes", "text/html", unset, unset),
            ("x-robots-tag", "noindex, NoAI", "text/html", deny, unset),
            ("x-robots-tag", "other: noai", "text/html", unset, unset),
            ("x-robots-tag", "bot: noai", "text/html", deny, unset),
            ("x-robots-tag", "noimageai", "text/html", unset, unset),
            ("x-robots-tag", "noimageai", "image/png", deny, unset),
            ("x-robots-tag", "noai: x", "text/html", unset, unset),
        ] {
            let fields = [(name, value)];
            let headers = SignalHeaders(&fields);
            let response = response(200, kind, &headers);
            let found = ["train-ai", "tdm", "search"]
                .map(|name| header_usage_preference(&response, "bot", name));
            assert_eq!(found, [train, tdm, unset], "{name}: {value}, {kind}");
        }
        let both = [("tdm-reservation", "0"), ("x-robots-tag", "noai")];
        let headers = SignalHeaders(&both);
        let response = response(200, "text/html", &headers);
        let found = ["train-ai", "tdm"].map(|n| header_usage_preference(&response, "bot", n));
        assert_eq!(found, [deny, UsagePreference::Allow]);
    }

    #[test]
    fn a_price_is_that_of_a_402() {
        let headers = SignalHeaders(&[("crawler-price", "USD 0.01")]);
        for (status, expected) in [(402, Some("USD 0.01")), (200, None), (403, None)] {
            let response = response(status, "", &headers);
            assert_eq!(quoted_price(&response).as_deref(), expected, "{status}");
        }
    }

    #[test]
    fn a_license_is_a_link_of_its_type() {
        for (link, expected) in [
            (
                r#"<https://a/l.xml>; rel="license"; type="application/rsl+xml""#,
                Some("https://a/l.xml"),
            ),
            (
                r#"<https://cc/by>; rel=license, </l>; type=Application/RSL+xml; rel="x License""#,
                Some("/l"),
            ),
            ("<https://cc/by>; rel=license", None),
            ("<https://a/l>; type=application/rsl+xml", None),
            ("", None),
        ] {
            assert_eq!(license_link(link), expected, "{link}");
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
