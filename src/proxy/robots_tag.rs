//! `X-Robots-Tag` on origin answers: what the policy says, merged with what the origin says and never weaker.
//!
//! An origin's line that names an agent (`googlebot: nofollow`) is about that agent and stays as it is. Lines for
//! everybody become one, which stands first: a client that joins the lines would otherwise take what follows an agent's
//! name to be for that agent alone.

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::gate::effects::RobotsTag;

const X_ROBOTS_TAG: HeaderName = HeaderName::from_static("x-robots-tag");

/// Rules that have a value behind a colon; any other word before a colon is an agent's name.
const WITH_VALUE: [&str; 4] = ["unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"];

/// Adds what the policy asks for to an answer's fields.
pub fn merge(headers: &mut HeaderMap, tag: RobotsTag) {
    if !headers.contains_key(X_ROBOTS_TAG) {
        headers.insert(X_ROBOTS_TAG, HeaderValue::from_static(words(tag)));
        return;
    }
    let lines: Vec<HeaderValue> = headers.get_all(X_ROBOTS_TAG).iter().cloned().collect();
    let (general, named): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| !names_an_agent(line));
    let ours = HeaderValue::from_static(words(tag));
    // A line that is no text is nothing that a client could read; it is left where it was.
    headers.insert(X_ROBOTS_TAG, joined(tag, &general).unwrap_or(ours));
    for line in named {
        headers.append(X_ROBOTS_TAG, line);
    }
}

fn words(tag: RobotsTag) -> &'static str {
    match tag {
        RobotsTag::NoIndex => "noindex",
        RobotsTag::NoFollow => "nofollow",
        RobotsTag::Neither => "noindex, nofollow",
    }
}

/// Ours first, then what the origin says to everybody, without what ours says or contradicts.
fn joined(tag: RobotsTag, lines: &[HeaderValue]) -> Option<HeaderValue> {
    let mut line = words(tag).to_owned();
    let members = lines.iter().filter_map(|line| line.to_str().ok()).flat_map(|line| line.split(','));
    for member in members.map(str::trim).filter(|member| !member.is_empty() && !is_said(tag, member)) {
        line.push_str(", ");
        line.push_str(member);
    }
    HeaderValue::from_str(&line).ok()
}

fn is_said(tag: RobotsTag, member: &str) -> bool {
    let is = |words: &[&str]| words.iter().any(|word| member.eq_ignore_ascii_case(word));
    match tag {
        RobotsTag::NoIndex => is(&["noindex", "index", "all"]),
        RobotsTag::NoFollow => is(&["nofollow", "follow", "all"]),
        RobotsTag::Neither => is(&["noindex", "index", "nofollow", "follow", "all", "none"]),
    }
}

fn names_an_agent(line: &HeaderValue) -> bool {
    let Ok(line) = line.to_str() else { return true };
    line.split(',').any(|member| {
        let word = member.split_once(':').map(|(word, _)| word.trim());
        // The date behind `unavailable_after` may have commas and times in it, which no agent's name begins with.
        let is_name = |word: &str| word.starts_with(|c: char| c.is_ascii_alphabetic()) && !word.contains(' ');
        word.is_some_and(|word| {
            is_name(word) && !WITH_VALUE.iter().any(|known| word.eq_ignore_ascii_case(known))
        })
    })
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
        headers.get_all(X_ROBOTS_TAG).iter().map(|line| line.to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn the_origins_lines_are_merged_and_never_weakened() {
        use RobotsTag::{Neither, NoFollow, NoIndex};
        for (tag, origin, lines) in [
            (NoIndex, &[][..], &["noindex"][..]),
            (Neither, &[][..], &["noindex, nofollow"][..]),
            (NoIndex, &["noarchive"][..], &["noindex, noarchive"][..]),
            (NoIndex, &["nofollow", "max-snippet: 0"][..], &["noindex, nofollow, max-snippet: 0"][..]),
            (NoFollow, &["NoIndex"][..], &["nofollow, NoIndex"][..]),
            (NoFollow, &["none"][..], &["nofollow, none"][..]),
            (Neither, &["none"][..], &["noindex, nofollow"][..]),
            (NoIndex, &["index, follow"][..], &["noindex, follow"][..]),
            (NoFollow, &["all"][..], &["nofollow"][..]),
            (NoIndex, &["googlebot: nofollow"][..], &["noindex", "googlebot: nofollow"][..]),
            (
                NoFollow,
                &["otherbot: index, follow", "noarchive"][..],
                &["nofollow, noarchive", "otherbot: index, follow"][..],
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
