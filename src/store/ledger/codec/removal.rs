//! The encoding of a pending removal and of its cause.

use prost::Message;

use crate::ledger::record::UnixMillis;
use crate::ledger::removal::{PendingRemoval, RemovalCause, RemovalCauseKind};

use super::event::{reason_from_number, reason_number};

#[derive(Clone, PartialEq, Message)]
struct CauseMessage {
    #[prost(uint32, tag = "1")]
    kind: u32,
    /// The revision of a policy, or a host.
    #[prost(string, tag = "2")]
    subject: String,
}

#[derive(Clone, PartialEq, Message)]
struct PendingRemovalMessage {
    #[prost(uint64, tag = "1")]
    since: u64,
    #[prost(message, optional, tag = "2")]
    cause: Option<CauseMessage>,
    #[prost(uint32, tag = "3")]
    why: u32,
    #[prost(uint32, optional, tag = "4")]
    status: Option<u32>,
    #[prost(string, optional, tag = "5")]
    rule: Option<String>,
    #[prost(string, tag = "6")]
    revision: String,
    #[prost(string, optional, tag = "7")]
    user_agent: Option<String>,
}

pub(super) fn encode_pending(pending: &PendingRemoval) -> Vec<u8> {
    let message = PendingRemovalMessage {
        since: pending.since.0,
        cause: Some(cause_message(&pending.cause)),
        why: reason_number(pending.reason),
        status: pending.status.map(u32::from),
        rule: pending.rule.as_deref().map(str::to_owned),
        revision: pending.revision.to_string(),
        user_agent: pending.user_agent.as_deref().map(str::to_owned),
    };
    message.encode_to_vec()
}

/// Decodes a pending removal; `None` if the bytes are not one, or of a cause that a later version
/// has added. The URL then stays in the index until it is observed again.
pub(super) fn decode_pending(bytes: &[u8]) -> Option<PendingRemoval> {
    let message = PendingRemovalMessage::decode(bytes).ok()?;
    Some(PendingRemoval {
        since: UnixMillis(message.since),
        cause: cause_from_message(message.cause?)?,
        reason: reason_from_number(message.why)?,
        status: message.status.and_then(|status| status.try_into().ok()),
        rule: message.rule.map(Into::into),
        revision: message.revision.into(),
        user_agent: message.user_agent.map(Into::into),
    })
}

/// Returns the number of a kind, which never changes.
pub(crate) fn kind_number(kind: RemovalCauseKind) -> u32 {
    match kind {
        RemovalCauseKind::Policy => 1,
        RemovalCauseKind::RobotsTxt => 2,
        RemovalCauseKind::Noindex => 3,
    }
}

fn cause_message(cause: &RemovalCause) -> CauseMessage {
    let (kind, subject) = match cause {
        RemovalCause::Page => (0, ""),
        RemovalCause::Policy { revision } => (1, &**revision),
        RemovalCause::RobotsTxt { host } => (2, &**host),
        RemovalCause::Noindex { host } => (3, &**host),
    };
    CauseMessage {
        kind,
        subject: subject.to_owned(),
    }
}

fn cause_from_message(message: CauseMessage) -> Option<RemovalCause> {
    let subject = message.subject.into();
    match message.kind {
        0 => Some(RemovalCause::Page),
        1 => Some(RemovalCause::Policy { revision: subject }),
        2 => Some(RemovalCause::RobotsTxt { host: subject }),
        3 => Some(RemovalCause::Noindex { host: subject }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use crate::ledger::event::LedgerEventReason;

    use super::*;

    #[test]
    fn every_cause_round_trips() {
        let host = || "h.test".into();
        for cause in [
            RemovalCause::Policy {
                revision: "3f9c2a1b".into(),
            },
            RemovalCause::RobotsTxt { host: host() },
            RemovalCause::Noindex { host: host() },
            RemovalCause::Page,
        ] {
            let pending = PendingRemoval {
                since: UnixMillis(7),
                cause,
                reason: LedgerEventReason::Excluded,
                status: Some(200),
                rule: Some("r".into()),
                revision: "0".into(),
                user_agent: Some("a/1".into()),
            };
            assert_eq!(decode_pending(&encode_pending(&pending)), Some(pending));
        }
        assert_eq!(decode_pending(&[0xff; 5]), None);
    }
}
