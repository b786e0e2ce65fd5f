//! The limit of the work for a question. It is no time, so that answers are the same on every machine.

/// The work for one question: steps of single automata.
const WORK_PER_QUESTION: usize = 50_000_000;

/// The work that is left for a question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    left: usize,
}

impl Work {
    /// The reason of an answer if the work was not enough.
    pub(super) const TOO_MUCH: &str = "there are too many combinations of expressions";

    pub(super) fn for_question() -> Self {
        Self {
            left: WORK_PER_QUESTION,
        }
    }

    /// Takes some of the work; returns `false` if not enough is left.
    pub(super) fn spend(&mut self, amount: usize) -> bool {
        match self.left.checked_sub(amount) {
            Some(left) => self.left = left,
            None => self.left = 0,
        }
        self.left > 0
    }
}
