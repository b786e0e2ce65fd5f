//! The classes' shares: smooth weighted round robin, as nginx chooses its upstreams.
//!
//! At each grant every class in which somebody waits gains its weight, and the one that got the grant pays what all of
//! them gained; the next is who has the most. So a class with a tenth of the weights gets every tenth grant, not a
//! hundred in a row, and after as many grants as the weights add up to all are where they began. A class in which nobody
//! waits neither gains nor pays: what it had it still has when somebody comes.

use super::{PerClass, PriorityClass};

/// What each class has to its credit, in grants times the sum of weights.
#[derive(Debug, Default)]
pub(super) struct ClassShares {
    credit: PerClass<i64>,
}

impl ClassShares {
    /// The class whose turn it is among these; of equals the higher.
    pub(super) fn next_class(
        &self,
        waits: impl Fn(PriorityClass) -> bool,
    ) -> Option<PriorityClass> {
        let those = PriorityClass::ALL
            .into_iter()
            .rev()
            .filter(|class| waits(*class));
        those.max_by_key(|class| self.credit.get(*class) + i64::from(class.weight()))
    }

    /// One of `class` goes, while somebody waits in these.
    pub(super) fn charge(&mut self, class: PriorityClass, waits: impl Fn(PriorityClass) -> bool) {
        let mut gained = 0;
        for one in PriorityClass::ALL.into_iter().filter(|class| waits(*class)) {
            let weight = i64::from(one.weight());
            *self.credit.get_mut(one) += weight;
            gained += weight;
        }
        *self.credit.get_mut(class) -= gained;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the commit that brought it to nginx, with weights 5, 1, 1: a a b a c a a. Here 10, 1.
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

    /// However classes come and go, none gets far ahead of its share or behind it: the debt of one is the credit of the
    /// others, and a few rounds at the most.
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
            // Now and then another one has got the grant.
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
    fn one_that_is_alone_owes_nothing_for_it() {
        let mut shares = ClassShares::default();
        for _ in 0..1_000 {
            shares.charge(PriorityClass::Refresh, |class| {
                class == PriorityClass::Refresh
            });
        }
        assert_eq!(shares.credit.0, [0; 6]);
    }
}
