//! `X-Robots-Tag` and `<meta name="robots">`: which of their words are for a crawler. What is done about them is the
//! policy's business.
//!
//! A line holds words for everybody; an agent's name with a colon makes what follows it in that line that agent's alone,
//! up to the next name: `noarchive, googlebot: noindex, nofollow, otherbot: none`.

/// Words of a line with the same addressee.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectiveGroup<'a> {
    /// The agent that they are for; none if they are for everybody.
    pub agent: Option<&'a str>,
    /// The words, without the agent's name.
    pub directives: &'a str,
    /// The words and, before them, the name.
    pub source: &'a str,
}

/// Words that may have a value behind a colon, or that are taken for none of an agent's name if they have.
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

/// The word whose value is a date, in which commas may stand.
const DATE_DIRECTIVE: &str = "unavailable_after";

/// The runs of a line, in order; empty ones are left out.
pub fn directive_groups(line: &str) -> impl Iterator<Item = DirectiveGroup<'_>> {
    let mut rest = Some(line);
    std::iter::from_fn(move || {
        loop {
            let here = rest.take()?;
            let end = group_end(here);
            let (run, after) = here.split_at_checked(end).unwrap_or((here, ""));
            rest = after.strip_prefix(',');
            let run = DirectiveGroup::parse(run);
            if !run.directives.is_empty() {
                return Some(run);
            }
        }
    })
}

/// Adds to the words that are for a crawler, which goes by this product token, those of another line; all joined by
/// `", "`.
pub fn append_directives(words: &mut String, line: &str, agent: &str) {
    for run in directive_groups(line).filter(|run| run.applies_to(agent)) {
        if !words.is_empty() {
            words.push_str(", ");
        }
        words.push_str(run.directives);
    }
}

/// Whether words forbid indexing.
pub fn forbids_index(words: &str) -> bool {
    let is = |word: &str| word.eq_ignore_ascii_case("noindex") || word.eq_ignore_ascii_case("none");
    split_directives(words).any(is)
}

/// The words of a run, each with its value.
pub fn split_directives(words: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(words);
    let each = std::iter::from_fn(move || {
        let here = rest.take()?;
        let (member, after) = here
            .split_at_checked(directive_end(here))
            .unwrap_or((here, ""));
        rest = after.strip_prefix(',');
        Some(member.trim())
    });
    each.filter(|member| !member.is_empty())
}

impl<'a> DirectiveGroup<'a> {
    fn parse(text: &'a str) -> Self {
        let whole = text.trim_matches(|c: char| c == ',' || c.is_whitespace());
        match agent_name(whole) {
            Some(agent) => {
                let words = whole.split_once(':').map_or("", |(_, words)| words.trim());
                Self {
                    agent: Some(agent),
                    directives: words,
                    source: whole,
                }
            }
            None => Self {
                agent: None,
                directives: whole,
                source: whole,
            },
        }
    }

    /// Whether the words are for a crawler. `robots` and `*` stand for all.
    pub fn applies_to(&self, agent: &str) -> bool {
        let Some(named) = self.agent else { return true };
        let all = named == "*" || named.eq_ignore_ascii_case("robots");
        all || named.eq_ignore_ascii_case(agent)
    }
}

/// Up to the comma before the next agent's name.
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

/// Up to the comma that ends a member; that in a date does not.
fn directive_end(text: &str) -> usize {
    let comma = |from: usize| {
        text.get(from..)
            .and_then(|rest| rest.find(','))
            .map(|at| from + at)
    };
    let Some(first) = comma(0) else {
        return text.len();
    };
    let member = text.get(..first).unwrap_or(text);
    let is_date = |member: &str| {
        // An agent's name may stand before it.
        let mut parts = member.rsplit(':').map(str::trim);
        let day = parts.next().unwrap_or_default();
        let key = parts.next().unwrap_or_default();
        key.eq_ignore_ascii_case(DATE_DIRECTIVE) && !day.contains(|c: char| c.is_ascii_digit())
    };
    let goes_on = text
        .get(first + 1..)
        .is_some_and(|rest| rest.trim_start().starts_with(|c: char| c.is_ascii_digit()));
    if is_date(member) && goes_on {
        comma(first + 1).unwrap_or(text.len())
    } else {
        first
    }
}

/// The agent's name that a text begins with: a product token, or `*`, before a colon.
fn agent_name(text: &str) -> Option<&str> {
    let end = text.find([':', ','])?;
    let (name, rest) = text.split_at_checked(end)?;
    let name = name.trim();
    let token = name == "*" || crate::robots::product_token::is_product_token(name);
    (token
        && rest.starts_with(':')
        && !DIRECTIVES
            .iter()
            .any(|word| name.eq_ignore_ascii_case(word)))
    .then_some(name)
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
