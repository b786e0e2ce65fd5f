//! Texts in which `*` matches any text: values in filters of decisions, and names of parameters.

/// Text with at least one `*`; each `*` matches any text.
#[derive(Clone, Debug)]
pub struct TextGlob {
    /// The text before the first `*`.
    first: Box<str>,
    /// The texts between two `*`; none is empty.
    middle: Box<[Box<str>]>,
    /// The text after the last `*`.
    last: Box<str>,
}

impl TextGlob {
    /// Parses a pattern; `None` if it has no `*`.
    pub fn parse(pattern: &str) -> Option<Self> {
        let (first, rest) = pattern.split_once('*')?;
        let (between, last) = rest.rsplit_once('*').unwrap_or(("", rest));
        let middle = between.split('*').filter(|part| !part.is_empty());
        Some(Self {
            first: first.into(),
            middle: middle.map(Into::into).collect(),
            last: last.into(),
        })
    }

    /// Returns `true` if a text matches. Each part is matched at its first occurrence after the
    /// previous one: no backtracking, whatever the text is.
    pub fn matches(&self, text: &str) -> bool {
        let inner = text
            .strip_prefix(&*self.first)
            .and_then(|rest| rest.strip_suffix(&*self.last));
        let rest = self.middle.iter().try_fold(inner, |rest, part| {
            let (_, rest) = rest?.split_once(&**part)?;
            Some(Some(rest))
        });
        rest.flatten().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_stars_cost_no_more_than_few() {
        let stars = "*a".repeat(4_000);
        let text = "a".repeat(3_999);
        for (pattern, text, matches) in [
            (format!("{stars}*"), text.clone(), false),
            (format!("{stars}*"), format!("{text}b"), false),
            (format!("{stars}*"), format!("{text}ba"), true),
            (format!("{stars}b"), format!("{text}ab"), true),
            ("*".repeat(8_000), text, true),
        ] {
            let glob = TextGlob::parse(&pattern).unwrap();
            let found = (0..200).filter(|_| glob.matches(&text)).count();
            assert_eq!(found, if matches { 200 } else { 0 }, "{pattern}");
        }
        assert!(TextGlob::parse("**").unwrap().middle.is_empty());
    }
}
