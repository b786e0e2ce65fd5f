//! Merges the policy's `X-Robots-Tag` with the origin's. The result is never weaker than either.
//!
//! Directives of the origin for a named agent (`googlebot: nofollow`) concern that agent and are
//! kept as they are. Directives for all agents become one line, which comes first: a client that
//! joins the lines would otherwise apply whatever follows an agent's name to that agent only.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::pipeline::header_effects::RobotsTag;
use crate::robots::robots_tag::{directive_groups, split_directives};

const X_ROBOTS_TAG: HeaderName = HeaderName::from_static("x-robots-tag");

/// Adds the policy's tag to a response's fields.
pub fn merge(headers: &mut HeaderMap, tag: RobotsTag) {
    if !headers.contains_key(X_ROBOTS_TAG) {
        headers.insert(X_ROBOTS_TAG, HeaderValue::from_static(directives(tag)));
        return;
    }
    let lines: Vec<HeaderValue> = headers.get_all(X_ROBOTS_TAG).iter().cloned().collect();
    // A line that is not text cannot be parsed by a client; it is kept as it is.
    let (texts, others): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.to_str().is_ok());
    let texts: Vec<&str> = texts
        .into_iter()
        .filter_map(|line| line.to_str().ok())
        .collect();
    let added = HeaderValue::from_static(directives(tag));
    headers.insert(X_ROBOTS_TAG, join_general(tag, &texts).unwrap_or(added));
    let named = texts.into_iter().filter_map(agent_directives);
    for line in named.chain(others.into_iter().cloned()) {
        headers.append(X_ROBOTS_TAG, line);
    }
}

/// Returns the directives for all agents.
pub(super) fn directives(tag: RobotsTag) -> &'static str {
    match tag {
        RobotsTag::NoIndex => "noindex",
        RobotsTag::NoFollow => "nofollow",
        RobotsTag::Neither => "noindex, nofollow",
    }
}

/// Joins the policy's directives and the origin's directives for all agents, without those that the
/// policy's repeat or contradict.
fn join_general(tag: RobotsTag, lines: &[&str]) -> Option<HeaderValue> {
    let mut line = directives(tag).to_owned();
    let general = lines
        .iter()
        .flat_map(|line| directive_groups(line))
        .filter(|run| run.agent.is_none());
    for member in general
        .flat_map(|run| split_directives(run.directives))
        .filter(|member| !is_covered(tag, member))
    {
        line.push_str(", ");
        line.push_str(member);
    }
    HeaderValue::from_str(&line).ok()
}

/// Returns the directives of a line for named agents, if there are any.
fn agent_directives(line: &str) -> Option<HeaderValue> {
    let named: Vec<&str> = directive_groups(line)
        .filter(|run| run.agent.is_some())
        .map(|run| run.source)
        .collect();
    HeaderValue::from_str(&named.join(", "))
        .ok()
        .filter(|_| !named.is_empty())
}

fn is_covered(tag: RobotsTag, member: &str) -> bool {
    let covered: &[&str] = match tag {
        RobotsTag::NoIndex => &["noindex", "index", "all"],
        RobotsTag::NoFollow => &["nofollow", "follow", "all"],
        RobotsTag::Neither => &["noindex", "index", "nofollow", "follow", "all", "none"],
    };
    covered.iter().any(|word| member.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(tag: RobotsTag, origin: &[&str]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for line in origin {
            headers.append(X_ROBOTS_TAG, HeaderValue::from_str(line).unwrap());
        }
        merge(&mut headers, tag);
        headers
            .get_all(X_ROBOTS_TAG)
            .iter()
            .map(|line| String::from_utf8_lossy(line.as_bytes()).into_owned())
            .collect()
    }

    #[test]
    fn the_origins_lines_are_merged_and_never_weakened() {
        use RobotsTag::{Neither, NoFollow, NoIndex};
        for (tag, origin, lines) in [
            (NoIndex, &[][..], &["noindex"][..]),
            (Neither, &[][..], &["noindex, nofollow"][..]),
            (NoIndex, &["noarchive"][..], &["noindex, noarchive"][..]),
            (
                NoIndex,
                &["nofollow", "max-snippet: 0"][..],
                &["noindex, nofollow, max-snippet: 0"][..],
            ),
            (NoFollow, &["NoIndex"][..], &["nofollow, NoIndex"][..]),
            (NoFollow, &["none"][..], &["nofollow, none"][..]),
            (Neither, &["none"][..], &["noindex, nofollow"][..]),
            (NoIndex, &["index, follow"][..], &["noindex, follow"][..]),
            (NoFollow, &["all"][..], &["nofollow"][..]),
            (
                NoIndex,
                &["googlebot: nofollow"][..],
                &["noindex", "googlebot: nofollow"][..],
            ),
            (
                NoFollow,
                &["otherbot: index, follow", "noarchive"][..],
                &["nofollow, noarchive", "otherbot: index, follow"][..],
            ),
            (
                NoIndex,
                &[
                    "index, nosnippet, googlebot: none, noarchive, other: all",
                    "\u{e4}",
                ][..],
                &[
                    "noindex, nosnippet",
                    "googlebot: none, noarchive, other: all",
                    "\u{e4}",
                ][..],
            ),
            (
                NoIndex,
                &["unavailable_after: Friday, 25-Jun-10 15:00:00 GMT"][..],
                &["noindex, unavailable_after: Friday, 25-Jun-10 15:00:00 GMT"][..],
            ),
        ] {
            assert_eq!(merged(tag, origin), lines, "{tag:?} {origin:?}");
        }
    }
}
