//! Priorities: the values of the option, of `Crawl-Priority` and of `Priority` (RFC 9218).

/// The number of classes by which a request is shifted: from -2, towards the highest, to 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Priority(i8);

impl Priority {
    /// No shift.
    pub const NORMAL: Self = Self(0);

    /// Creates a priority. Returns `None` outside -2 to 2.
    pub fn new(steps: i8) -> Option<Self> {
        (-2..=2).contains(&steps).then_some(Self(steps))
    }

    /// Parses a value of the option `priority`; an unknown one is [`NORMAL`](Self::NORMAL).
    pub fn from_word(word: &str) -> Self {
        match word {
            "highest" => Self(-2),
            "higher" => Self(-1),
            "lower" => Self(1),
            "lowest" => Self(2),
            _ => Self::NORMAL,
        }
    }

    /// Parses the value of `Crawl-Priority`.
    pub fn from_number(text: &str) -> Option<Self> {
        Self::new(text.trim().parse().ok()?)
    }

    /// Parses the urgency in a value of `Priority` (RFC 9218 section 4.1): `u=0`, the most urgent,
    /// to `u=7`. A missing or invalid urgency must be ignored and gives `None`.
    pub fn from_urgency(text: &str) -> Option<Self> {
        // A dictionary (RFC 8941 section 3.2): the last member with a name counts; parameters have
        // no meaning here.
        let members = text
            .split(',')
            .filter_map(|member| member.split(';').next()?.split_once('='));
        let (_, urgency) = members.rev().find(|(name, _)| name.trim() == "u")?;
        match urgency.trim() {
            "0" => Some(Self(-2)),
            "1" => Some(Self(-1)),
            "2" | "3" | "4" => Some(Self::NORMAL),
            "5" | "6" => Some(Self(1)),
            "7" => Some(Self(2)),
            _ => None,
        }
    }

    pub(super) fn steps(self) -> i8 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crawlers_number_is_one_of_five() {
        for (text, steps) in [
            ("-2", Some(-2)),
            (" 1 ", Some(1)),
            ("+2", Some(2)),
            ("3", None),
            ("-3", None),
            ("high", None),
            ("", None),
        ] {
            assert_eq!(
                Priority::from_number(text).map(Priority::steps),
                steps,
                "{text:?}"
            );
        }
    }

    #[test]
    fn urgency_is_parsed_as_in_rfc_9218() {
        for (text, steps) in [
            ("u=0", Some(-2)),
            ("u=1, i", Some(-1)),
            ("i, u=2", Some(0)),
            ("u=3", Some(0)),
            ("u=4;x=1", Some(0)),
            ("i=?0,u=5", Some(1)),
            ("u=6", Some(1)),
            ("u=7, u=0", Some(-2)),
            (" u=7 ", Some(2)),
            ("i", None),
            ("u=8", None),
            ("u", None),
            ("u=-1", None),
            ("U=0", None),
            ("", None),
        ] {
            assert_eq!(
                Priority::from_urgency(text).map(Priority::steps),
                steps,
                "{text:?}"
            );
        }
    }

    #[test]
    fn every_word_of_a_policy_is_known() {
        for (word, steps) in [
            ("highest", -2),
            ("higher", -1),
            ("normal", 0),
            ("lower", 1),
            ("lowest", 2),
        ] {
            assert_eq!(Priority::from_word(word).steps(), steps, "{word}");
        }
    }
}
