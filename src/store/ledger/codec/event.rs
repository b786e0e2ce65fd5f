//! An event.

use prost::Message;

use crate::ledger::event::{LedgerEvent, LedgerEventKind, LedgerEventReason};
use crate::ledger::record::UnixMillis;

use super::to_u16;

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

/// Of an [`EventMessage`], when it was: the rest is passed over.
#[derive(Clone, PartialEq, Message)]
struct EventTimeMessage {
    #[prost(uint64, tag = "1")]
    at: u64,
}

/// What an event is written as.
pub(crate) fn encode_event(event: &LedgerEvent) -> Vec<u8> {
    let form = EventMessage {
        at: event.at.0,
        kind: match event.kind {
            LedgerEventKind::Removal => 1,
            LedgerEventKind::PermanentError => 2,
            LedgerEventKind::Moved => 3,
        },
        why: match event.reason {
            LedgerEventReason::Excluded => 1,
            LedgerEventReason::PermanentError => 2,
            LedgerEventReason::TemporaryErrors => 3,
            LedgerEventReason::OtherSpace => 4,
        },
        crawler: event.crawler.to_string(),
        url: event.url.to_string(),
        code: event.code.map(u32::from),
        status: event.status.map(u32::from),
        rule: event.rule.as_deref().map(str::to_owned),
        revision: event.revision.to_string(),
    };
    form.encode_to_vec()
}

/// Reads it; nothing if it is not one.
pub(crate) fn decode_event(bytes: &[u8]) -> Option<LedgerEvent> {
    let form = EventMessage::decode(bytes).ok()?;
    Some(LedgerEvent {
        at: UnixMillis(form.at),
        kind: match form.kind {
            1 => LedgerEventKind::Removal,
            2 => LedgerEventKind::PermanentError,
            3 => LedgerEventKind::Moved,
            _ => return None,
        },
        reason: match form.why {
            1 => LedgerEventReason::Excluded,
            2 => LedgerEventReason::PermanentError,
            3 => LedgerEventReason::TemporaryErrors,
            4 => LedgerEventReason::OtherSpace,
            _ => return None,
        },
        crawler: form.crawler.into(),
        url: form.url.into(),
        code: to_u16(form.code.map(u64::from)),
        status: to_u16(form.status.map(u64::from)),
        rule: form.rule.map(Into::into),
        revision: form.revision.into(),
    })
}

/// When an event was; nothing if it is not one.
pub(crate) fn decode_time(bytes: &[u8]) -> Option<UnixMillis> {
    EventTimeMessage::decode(bytes)
        .ok()
        .map(|form| UnixMillis(form.at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_and_reason_is_read_as_it_is_written() {
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
