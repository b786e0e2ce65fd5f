//! The encoding of an event.

use prost::Message;

use crate::ledger::event::{LedgerEvent, LedgerEventKind, LedgerEventReason};
use crate::ledger::record::UnixMillis;

#[derive(Clone, PartialEq, Message)]
struct EventMessage {
    #[prost(uint64, tag = "1")]
    at: u64,
    #[prost(uint32, tag = "2")]
    kind: u32,
    #[prost(uint32, tag = "3")]
    why: u32,
    #[prost(string, tag = "4")]
    crawler: String,
    #[prost(string, tag = "5")]
    url: String,
    #[prost(uint32, optional, tag = "6")]
    code: Option<u32>,
    #[prost(uint32, optional, tag = "7")]
    status: Option<u32>,
    #[prost(string, optional, tag = "8")]
    rule: Option<String>,
    #[prost(string, tag = "9")]
    revision: String,
}

/// The time of an [`EventMessage`]; the other fields are skipped.
#[derive(Clone, PartialEq, Message)]
struct EventTimeMessage {
    #[prost(uint64, tag = "1")]
    at: u64,
}

/// Encodes an event.
pub(crate) fn encode_event(event: &LedgerEvent) -> Vec<u8> {
    let message = EventMessage {
        at: event.at.0,
        kind: kind_number(event.kind),
        why: reason_number(event.reason),
        crawler: event.crawler.to_string(),
        url: event.url.to_string(),
        code: event.code.map(u32::from),
        status: event.status.map(u32::from),
        rule: event.rule.as_deref().map(str::to_owned),
        revision: event.revision.to_string(),
    };
    message.encode_to_vec()
}

/// Decodes an event; `None` if the bytes are not one, or of a kind or reason that a later version has added.
pub(crate) fn decode_event(bytes: &[u8]) -> Option<LedgerEvent> {
    let message = EventMessage::decode(bytes).ok()?;
    Some(LedgerEvent {
        at: UnixMillis(message.at),
        kind: LedgerEventKind::ALL
            .into_iter()
            .find(|kind| kind_number(*kind) == message.kind)?,
        reason: reason_from_number(message.why)?,
        crawler: message.crawler.into(),
        url: message.url.into(),
        code: message.code.and_then(|code| code.try_into().ok()),
        status: message.status.and_then(|status| status.try_into().ok()),
        rule: message.rule.map(Into::into),
        revision: message.revision.into(),
    })
}

/// Decodes only the time of an event; `None` if the bytes are not one.
pub(crate) fn decode_time(bytes: &[u8]) -> Option<UnixMillis> {
    let message = EventTimeMessage::decode(bytes).ok()?;
    Some(UnixMillis(message.at))
}

/// Returns the number of a kind, which is independent of the order in the documentation.
pub(crate) fn kind_number(kind: LedgerEventKind) -> u32 {
    match kind {
        LedgerEventKind::Removal => 1,
        LedgerEventKind::PermanentError => 2,
        LedgerEventKind::Moved => 3,
        LedgerEventKind::Restored => 4,
    }
}

/// Returns the reason with a number; `None` if a later version has added it.
pub(super) fn reason_from_number(number: u32) -> Option<LedgerEventReason> {
    LedgerEventReason::ALL
        .into_iter()
        .find(|reason| reason_number(*reason) == number)
}

pub(super) fn reason_number(reason: LedgerEventReason) -> u32 {
    match reason {
        LedgerEventReason::Excluded => 1,
        LedgerEventReason::PermanentError => 2,
        LedgerEventReason::TemporaryErrors => 3,
        LedgerEventReason::OtherSpace => 4,
        LedgerEventReason::RobotsTxt => 5,
        LedgerEventReason::Noindex => 6,
        LedgerEventReason::Noncanonical => 7,
        LedgerEventReason::Duplicate => 8,
        LedgerEventReason::TooLarge => 9,
        LedgerEventReason::Allowed => 10,
        LedgerEventReason::Fetched => 11,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_and_reason_round_trips() {
        for (kind, why) in LedgerEventKind::ALL
            .into_iter()
            .flat_map(|kind| LedgerEventReason::ALL.map(|why| (kind, why)))
        {
            let event = LedgerEvent {
                at: UnixMillis(5),
                kind,
                reason: why,
                crawler: "news".into(),
                url: "http://h.test/".into(),
                code: Some(760),
                status: None,
                rule: Some("r".into()),
                revision: "0".into(),
            };
            assert_eq!(decode_time(&encode_event(&event)), Some(UnixMillis(5)));
            assert_eq!(decode_event(&encode_event(&event)), Some(event));
        }
    }
}
