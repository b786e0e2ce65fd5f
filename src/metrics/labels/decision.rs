//! The labels of decisions: stage, verdict and reason, and the combinations that are exported from the start.

use crate::model::reason::Reason;
use crate::model::stage::Stage;

use super::VerdictLabel;

/// The label of the reason of a client that left before a decision.
pub const CLIENT_LEFT: &str = "client_left";
/// The number of reasons, including [`CLIENT_LEFT`].
pub(crate) const REASON_COUNT: usize = Reason::ALL.len() + 1;

/// Returns the `reason` label; `None` is a client that left before a decision.
pub(crate) fn reason_label(reason: Option<Reason>) -> &'static str {
    reason.map_or(CLIENT_LEFT, Reason::as_str)
}

/// Returns the index of a decision in a crawler's table of decision counters.
pub(crate) fn decision_index(stage: Stage, verdict: VerdictLabel, reason: Option<Reason>) -> usize {
    let reason = reason.map_or(Reason::ALL.len(), Reason::index);
    (stage as usize * VerdictLabel::ALL.len() + verdict as usize) * REASON_COUNT + reason
}

pub(crate) fn decision_from_index(index: usize) -> Option<(Stage, VerdictLabel, Option<Reason>)> {
    let stage_and_verdict = index / REASON_COUNT;
    let reason = index % REASON_COUNT;
    let verdict = *VerdictLabel::ALL.get(stage_and_verdict % VerdictLabel::ALL.len())?;
    let stage = *Stage::ALL.get(stage_and_verdict / VerdictLabel::ALL.len())?;
    Some((stage, verdict, Reason::ALL.get(reason).copied()))
}

/// The number of such indexes.
pub(crate) const DECISION_COUNT: usize = Stage::ALL.len() * VerdictLabel::ALL.len() * REASON_COUNT;

/// Returns the common decisions, which are exported as 0 until they occur; others appear when they occur.
pub(crate) fn possible_decisions() -> impl Iterator<Item = (Stage, VerdictLabel, Option<Reason>)> {
    let rejects = Reason::ALL.into_iter().flat_map(|reason| {
        let stages = reason.row().stages.iter();
        stages.map(move |stage| (*stage, VerdictLabel::Reject, Some(reason)))
    });
    let causes = [Some(Reason::Rule), Some(Reason::Default)];
    let allows = [Stage::Destination, Stage::Upstream, Stage::Response]
        .into_iter()
        .flat_map(move |stage| causes.map(move |cause| (stage, VerdictLabel::Allow, cause)));
    let shadows = [Stage::Request, Stage::Destination, Stage::Response]
        .map(|stage| (stage, VerdictLabel::ShadowReject, Some(Reason::Rule)));
    let left =
        [Stage::Destination, Stage::Upstream].map(|stage| (stage, VerdictLabel::Allow, None));
    rejects.chain(allows).chain(shadows).chain(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_place_of_the_table_is_taken_once() {
        let mut places = BTreeSet::new();
        for stage in Stage::ALL {
            for verdict in VerdictLabel::ALL {
                for reason in Reason::ALL.into_iter().map(Some).chain([None]) {
                    let place = decision_index(stage, verdict, reason);
                    assert_eq!(decision_from_index(place), Some((stage, verdict, reason)));
                    assert!(places.insert(place));
                }
            }
        }
        assert_eq!(
            (places.len(), places.last()),
            (DECISION_COUNT, Some(&(DECISION_COUNT - 1)))
        );
    }

    #[test]
    fn every_reason_can_occur_somewhere() {
        for reason in Reason::ALL {
            assert!(
                possible_decisions().any(|(_, _, r)| r == Some(reason)),
                "{reason:?}"
            );
        }
    }
}
