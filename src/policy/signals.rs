//! What response headers say about a document: usage preferences and its canonical URL.

use super::fact::Preference;

/// The preference for one kind of use in a `Content-Usage` header (aipref), a structured dictionary such as
/// `train-ai=n, search=y`.
pub(in crate::policy) fn usage(header: &str, name: &str) -> Preference {
    let value = header.split(',').rev().find_map(|member| {
        let (key, value) = member.split_once('=')?;
        (key.trim() == name).then(|| value.split(';').next().unwrap_or("").trim())
    });
    match value {
        Some("y") => Preference::Allow,
        Some("n") => Preference::Deny,
        _ => Preference::Unset,
    }
}

/// The target of the first `Link` member with `rel=canonical` (RFC 8288 section 3), as written there.
pub(in crate::policy) fn canonical_link(header: &str) -> Option<&str> {
    let mut rest = header;
    while let Some((_, after)) = rest.split_once('<') {
        let (target, after) = after.split_once('>')?;
        // A member ends at a comma outside quotes; targets hold commas, parameters hardly ever do.
        let end = after.find('<').unwrap_or(after.len());
        let (parameters, next) = after.split_at_checked(end)?;
        if parameters.split([';', ',']).any(is_canonical) {
            return Some(target.trim());
        }
        rest = next;
    }
    None
}

/// Whether robots directives, of `X-Robots-Tag` or of a document, forbid indexing: `noindex`, or `none`. A directive for
/// one agent, `other-bot: noindex`, counts for the crawler of that name.
pub(in crate::policy) fn forbids_index(directives: &str, crawler: &str) -> bool {
    directives.split(',').any(|directive| {
        let (agent, directive) = directive.split_once(':').unwrap_or(("", directive));
        let agent = agent.trim();
        let concerns = matches!(agent, "" | "*" | "robots") || agent.eq_ignore_ascii_case(crawler);
        let word = directive.trim();
        concerns && (word.eq_ignore_ascii_case("noindex") || word.eq_ignore_ascii_case("none"))
    })
}

fn is_canonical(parameter: &str) -> bool {
    let Some((name, value)) = parameter.split_once('=') else { return false };
    let words = value.trim().trim_matches('"');
    name.trim().eq_ignore_ascii_case("rel")
        && words.split_ascii_whitespace().any(|w| w.eq_ignore_ascii_case("canonical"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_reads_the_last_member_of_a_name() {
        assert_eq!(usage("train-ai=n, search=y", "train-ai"), Preference::Deny);
        assert_eq!(usage("train-ai=n;x=1", "train-ai"), Preference::Deny);
        assert_eq!(usage("train-ai=n, train-ai=y", "train-ai"), Preference::Allow);
        assert_eq!(usage("", "search"), Preference::Unset);
        assert_eq!(usage("search=maybe", "search"), Preference::Unset);
    }

    #[test]
    fn directives_for_others_do_not_count() {
        for (directives, expected) in [
            ("noindex", true),
            ("nofollow, NoIndex", true),
            ("none", true),
            ("index, follow", false),
            ("other-bot: noindex", false),
            ("news-bot: noindex", true),
            ("unavailable_after: none at all", false),
            ("", false),
        ] {
            assert_eq!(forbids_index(directives, "news-bot"), expected, "{directives}");
        }
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
