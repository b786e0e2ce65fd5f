//! The limit of the work for a question. It is no time, so that answers are the same on every machine.

/// The work for one question: steps of single automata.
const WORK_PER_QUESTION: usize = 50_000_000;

/// The work that is left for a question, and for the questions that belong together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
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
            left: WORK_PER_QUESTION,
            left_together: None,
        }
    }

    /// The work for questions that together take at most as much as this number of them.
    pub(super) fn for_questions(number: usize) -> Self {
        let together = WORK_PER_QUESTION.saturating_mul(number);
        Self {
            left: WORK_PER_QUESTION.min(together),
            left_together: Some(together),
        }
    }

    /// Begins the next question.
    pub(super) fn begin_question(&mut self) {
        let together = self.left_together.unwrap_or(usize::MAX);
        self.left = WORK_PER_QUESTION.min(together);
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
        match self.left_together {
            Some(0) => Self::USED_UP,
            Some(_) | None => Self::TOO_MUCH,
        }
    }

    /// Returns `true` if a reason is that of an answer for which the work was not enough.
    pub(super) fn is_limit(reason: &str) -> bool {
        [Self::TOO_MUCH, Self::USED_UP].contains(&reason)
    }
}
