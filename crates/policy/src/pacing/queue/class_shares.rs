//! The classes' shares of the grants, by smooth weighted round-robin as in nginx's choice of
//! upstreams.
//!
//! At each grant every class with waiting requests gains its weight, and the class of the grant
//! pays the sum; the next is the class with the greatest credit. So a class with a tenth of the
//! weights gets every tenth grant instead of a hundred in a row, and after as many grants as the
//! sum of the weights all credits are back to their initial values. The credit of a class without
//! waiting requests does not change.

use super::{PerClass, PriorityClass};

/// The credit of each class, in grants times the sum of the weights.
#[derive(Debug, Default)]
pub(super) struct ClassShares {
    credit: PerClass<i64>,
}

impl ClassShares {
    /// Returns the class whose turn it is among those with waiting requests; the higher one of
    /// equals.
    pub(super) fn next_class(
        &self,
        has_waiters: impl Fn(PriorityClass) -> bool,
    ) -> Option<PriorityClass> {
        PriorityClass::ALL
            .into_iter()
            .rev()
            .filter(|class| has_waiters(*class))
            .max_by_key(|class| self.credit.get(*class) + i64::from(class.weight()))
    }

    /// Charges a grant to `class`.
    pub(super) fn charge(
        &mut self,
        class: PriorityClass,
        has_waiters: impl Fn(PriorityClass) -> bool,
    ) {
        let mut total_gain = 0;
        for waiting_class in PriorityClass::ALL
            .into_iter()
            .filter(|class| has_waiters(*class))
        {
            let weight = i64::from(waiting_class.weight());
            *self.credit.get_mut(waiting_class) += weight;
            total_gain += weight;
        }
        *self.credit.get_mut(class) -= total_gain;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example in nginx's commit has weights 5, 1, 1: a a b a c a a. Here they are 10 and 1.
    #[test]
    fn a_class_is_not_served_in_bursts() {
        let waits = |class| matches!(class, PriorityClass::Follow | PriorityClass::Refresh);
        let mut shares = ClassShares::default();
        let mut refreshed = vec![];
        for grant in 0..33 {
            let class = shares.next_class(waits).unwrap();
            shares.charge(class, waits);
            if class == PriorityClass::Refresh {
                refreshed.push(grant);
            }
        }
        assert_eq!(refreshed, [5, 16, 27]);
    }

    /// However classes come and go, none gets far ahead of its share or far below it: the debt of
    /// one is the credit of the others, at most a few rounds.
    #[test]
    fn credits_stay_within_bounds() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut shares = ClassShares::default();
        let mut waiting = 0_u32;
        for _ in 0..200_000 {
            if waiting == 0 || rng.u8(..) < 60 {
                waiting = rng.u32(1..64);
            }
            let waits = |class: PriorityClass| waiting & (1 << class as u32) != 0;
            let best = shares.next_class(waits).unwrap();
            // Sometimes the grant goes to another class.
            let other = PriorityClass::ALL
                .into_iter()
                .find(|class| waits(*class))
                .unwrap();
            shares.charge(if rng.u8(..) < 5 { other } else { best }, waits);
            assert_eq!(shares.credit.0.iter().sum::<i64>(), 0);
            assert!(
                shares
                    .credit
                    .0
                    .iter()
                    .all(|credit| credit.abs() < 6 * 13_111),
                "{shares:?}"
            );
        }
    }

    #[test]
    fn a_class_that_waits_alone_accumulates_no_debt() {
        let mut shares = ClassShares::default();
        for _ in 0..1_000 {
            shares.charge(PriorityClass::Refresh, |class| {
                class == PriorityClass::Refresh
            });
        }
        assert_eq!(shares.credit.0, [0; 6]);
    }
}
