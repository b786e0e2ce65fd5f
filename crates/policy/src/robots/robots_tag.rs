//! `X-Robots-Tag` and `<meta name="robots">`: the directives that address a crawler. The policy
//! decides their effect.
//!
//! A line contains directives for all crawlers. The name of an agent with a colon makes the
//! directives after it, up to the next name, apply to that agent only:
//! `noarchive, googlebot: noindex, nofollow, otherbot: none`.

/// The directives of a line with the same addressee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectiveGroup<'a> {
    /// The addressed agent; `None` for all crawlers.
    pub agent: Option<&'a str>,
    /// The directives, without the agent's name.
    pub directives: &'a str,
    /// The directives, with the agent's name before them.
    pub source: &'a str,
}

/// Directives, which may have a value after a colon. They are never names of agents.
const DIRECTIVES: [&str; 18] = [
    "unavailable_after",
    "max-snippet",
    "max-image-preview",
    "max-video-preview",
    "all",
    "index",
    "follow",
    "noindex",
    "nofollow",
    "none",
    "noarchive",
    "nosnippet",
    "nocache",
    "noimageindex",
    "notranslate",
    "indexifembedded",
    "noai",
    "noimageai",
];

/// The directive whose value is a date, which may contain commas.
const DATE_DIRECTIVE: &str = "unavailable_after";

/// Returns the groups of a line, in order, without empty ones.
pub fn directive_groups(line: &str) -> impl Iterator<Item = DirectiveGroup<'_>> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        loop {
            let text = rest.take()?;
            let (group, after) = text.split_at_checked(group_end(text)).unwrap_or((text, ""));
            rest = after.strip_prefix(',');
            let group = DirectiveGroup::parse(group);
            if !group.directives.is_empty() {
                return Some(group);
            }
        }
    })
}

/// Appends the directives of a line that address a crawler, given by its product token; all joined
/// by `", "`.
pub fn append_directives(directives: &mut String, line: &str, agent: &str) {
    for group in directive_groups(line).filter(|group| group.applies_to(agent)) {
        if !directives.is_empty() {
            directives.push_str(", ");
        }
        directives.push_str(group.directives);
    }
}

/// Returns `true` if directives forbid indexing.
pub fn forbids_index(directives: &str) -> bool {
    has_directive(directives, "noindex") || has_directive(directives, "none")
}

/// Returns `true` if directives forbid following links.
pub fn forbids_follow(directives: &str) -> bool {
    has_directive(directives, "nofollow") || has_directive(directives, "none")
}

/// Returns `true` if directives forbid to train models with a resource. `noimageai` is about images.
pub fn forbids_training(directives: &str, is_image: bool) -> bool {
    has_directive(directives, "noai") || is_image && has_directive(directives, "noimageai")
}

fn has_directive(directives: &str, name: &str) -> bool {
    split_directives(directives).any(|directive| directive.eq_ignore_ascii_case(name))
}

/// Returns the directives in a text, each with its value.
pub fn split_directives(directives: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(directives);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let (directive, after) = text
            .split_at_checked(directive_end(text))
            .unwrap_or((text, ""));
        rest = after.strip_prefix(',');
        Some(directive.trim())
    })
    .filter(|directive| !directive.is_empty())
}

impl<'a> DirectiveGroup<'a> {
    fn parse(text: &'a str) -> Self {
        let source = text.trim_matches(|c: char| c == ',' || c.is_whitespace());
        let agent = agent_name(source);
        let directives = match agent {
            Some(_) => source.split_once(':').map_or("", |(_, rest)| rest.trim()),
            None => source,
        };
        Self {
            agent,
            directives,
            source,
        }
    }

    /// Returns `true` if the directives address a crawler. `robots` and `*` address all.
    pub fn applies_to(&self, agent: &str) -> bool {
        self.agent.is_none_or(|name| {
            name == "*" || name.eq_ignore_ascii_case("robots") || name.eq_ignore_ascii_case(agent)
        })
    }
}

/// Returns the position of the comma before the next agent's name.
fn group_end(text: &str) -> usize {
    let mut end = directive_end(text);
    while let Some(next) = text.get(end..).and_then(|rest| rest.strip_prefix(',')) {
        if agent_name(next).is_some() {
            break;
        }
        end += 1 + directive_end(next);
    }
    end
}

/// Returns the position of the comma that ends a directive. A comma in a date does not end it.
fn directive_end(text: &str) -> usize {
    let Some(first) = text.find(',') else {
        return text.len();
    };
    let (directive, rest) = text.split_at_checked(first).unwrap_or((text, ""));
    let rest = rest.strip_prefix(',').unwrap_or(rest);
    let digit_follows = rest.trim_start().starts_with(|c: char| c.is_ascii_digit());
    if ends_in_weekday(directive) && digit_follows {
        rest.find(',').map_or(text.len(), |at| first + 1 + at)
    } else {
        first
    }
}

/// Returns `true` for `unavailable_after: Friday`, possibly after an agent's name: the comma after
/// it is in the date.
fn ends_in_weekday(directive: &str) -> bool {
    let mut parts = directive.rsplit(':').map(str::trim);
    let day = parts.next().unwrap_or_default();
    let key = parts.next().unwrap_or_default();
    key.eq_ignore_ascii_case(DATE_DIRECTIVE) && !day.contains(|c: char| c.is_ascii_digit())
}

/// Returns the agent's name at the beginning of a text: a product token or `*`, before a colon.
fn agent_name(text: &str) -> Option<&str> {
    let end = text.find([':', ','])?;
    let (name, rest) = text.split_at_checked(end)?;
    let name = name.trim();
    let is_token = name == "*" || crate::robots::product_token::is_product_token(name);
    let is_directive = DIRECTIVES
        .iter()
        .any(|directive| name.eq_ignore_ascii_case(directive));
    (is_token && rest.starts_with(':') && !is_directive).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: &[(&str, &str)]) {
        let found: Vec<_> = directive_groups(line)
            .map(|run| (run.agent.unwrap_or(""), run.directives))
            .collect();
        assert_eq!(found, expected, "{line:?}");
    }

    #[test]
    fn lines() {
        check("", &[]);
        check(" , ,", &[]);
        check("noindex", &[("", "noindex")]);
        check("noindex, nofollow", &[("", "noindex, nofollow")]);
        check(
            "googlebot: noindex, nofollow",
            &[("googlebot", "noindex, nofollow")],
        );
        check(
            "googlebot: noindex, nofollow, otherbot: none",
            &[("googlebot", "noindex, nofollow"), ("otherbot", "none")],
        );
        check(
            "noarchive , Foo-Bot : none,, *:nosnippet",
            &[("", "noarchive"), ("Foo-Bot", "none"), ("*", "nosnippet")],
        );
        check("360Spider: none", &[("360Spider", "none")]);
        check("two words: none", &[("", "two words: none")]);
        check("bot:", &[]);
        check("bot:, none", &[("bot", ", none")]);
        check(
            "max-snippet: 0, noindex: yes",
            &[("", "max-snippet: 0, noindex: yes")],
        );
        for date in [
            "25 Jun 2010 15:00:00 PST",
            "Friday, 25-Jun-10 15:00:00 GMT",
            "2010-06-25T15:00:00Z",
        ] {
            let line = format!("unavailable_after: {date}, bot: none");
            check(
                &line,
                &[("", &format!("unavailable_after: {date}")), ("bot", "none")],
            );
            let line = format!("bot: unavailable_after: {date}, noindex");
            check(
                &line,
                &[("bot", &format!("unavailable_after: {date}, noindex"))],
            );
            let found: Vec<_> = split_directives(line.strip_prefix("bot:").unwrap()).collect();
            assert_eq!(found.last(), Some(&"noindex"), "{found:?}");
            assert_eq!(found.len(), 2);
        }
    }

    #[test]
    fn only_what_is_for_the_agent_counts() {
        for (lines, words, forbids) in [
            (&["noindex"][..], "noindex", true),
            (&["nofollow,  NoIndex"], "nofollow,  NoIndex", true),
            (&["none"], "none", true),
            (&["index, follow"], "index, follow", false),
            (&["other-bot: noindex"], "", false),
            (&["News-Bot: noindex"], "noindex", true),
            (&["robots: noindex"], "noindex", true),
            (&["googlebot: noindex, nofollow, otherbot: none"], "", false),
            (&["googlebot: noindex", "nofollow"], "nofollow", false),
            (
                &["googlebot: none, news-bot: noarchive", "nosnippet"],
                "noarchive, nosnippet",
                false,
            ),
            (
                &["unavailable_after: none at all"],
                "unavailable_after: none at all",
                false,
            ),
            (&[], "", false),
        ] {
            let mut found = String::new();
            lines
                .iter()
                .for_each(|line| append_directives(&mut found, line, "news-bot"));
            assert_eq!(
                (&*found, forbids_index(&found)),
                (words, forbids),
                "{lines:?}"
            );
        }
    }
}
