//! The limit of the work for a question. It is no time, so that answers are the same on every machine.

/// The work for one question: steps of single automata.
const WORK_PER_QUESTION: usize = 50_000_000;

/// The work that is left for a question, and for the questions that belong together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// The work that was left for the question when it began.
    allowed: usize,
    /// The work that is left for the question.
    left: usize,
    /// The work that is left for all questions; `None` if they are not limited together.
    left_together: Option<usize>,
}

impl Work {
    /// The reason of an answer if the work for the question was not enough.
    pub(super) const TOO_MUCH: &str = "there are too many combinations of expressions";
    /// The reason of an answer if the work for all questions was not enough.
    pub(super) const USED_UP: &str = "other questions have used up the work for all of them";

    /// The work for a question on its own.
    pub(super) fn for_question() -> Self {
        Self {
            allowed: WORK_PER_QUESTION,
            left: WORK_PER_QUESTION,
            left_together: None,
        }
    }

    /// The work for questions that together take at most as much as this number of them.
    pub(super) fn for_questions(number: usize) -> Self {
        Self {
            left_together: Some(WORK_PER_QUESTION.saturating_mul(number)),
            ..Self::for_question()
        }
    }

    /// Begins the next question.
    pub(super) fn begin_question(&mut self) {
        let together = self.left_together.unwrap_or(usize::MAX);
        self.allowed = WORK_PER_QUESTION.min(together);
        self.left = self.allowed;
    }

    /// Takes some of the work; returns `false` if not enough is left.
    pub(super) fn spend(&mut self, amount: usize) -> bool {
        self.left = self.left.saturating_sub(amount);
        if let Some(together) = &mut self.left_together {
            *together = together.saturating_sub(amount);
        }
        self.left > 0
    }

    /// The reason of an answer for which the work is not enough.
    pub(super) fn limit_reason(&self) -> &'static str {
        if self.allowed < WORK_PER_QUESTION {
            Self::USED_UP
        } else {
            Self::TOO_MUCH
        }
    }

    /// Returns `true` if a reason is that of an answer for which the work was not enough.
    pub(super) fn is_limit(reason: &str) -> bool {
        [Self::TOO_MUCH, Self::USED_UP].contains(&reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_limited_on_their_own_and_together() {
        let mut work = Work::for_questions(2);
        assert!(work.spend(WORK_PER_QUESTION - 1));
        assert!(!work.spend(1));
        assert_eq!(work.limit_reason(), Work::TOO_MUCH);
        work.begin_question();
        assert!(work.spend(WORK_PER_QUESTION - 1));
        work.begin_question();
        assert!(!work.spend(1));
        assert_eq!(work.limit_reason(), Work::USED_UP);

        let mut alone = Work::for_question();
        for _ in 0..3 {
            alone.begin_question();
            assert!(!alone.spend(WORK_PER_QUESTION));
            assert_eq!(alone.limit_reason(), Work::TOO_MUCH);
        }
    }
}
