//! An event.

use prost::Message;

use crate::ledger::event::{Event, EventKind, Why};
use crate::ledger::record::At;

use super::short;

#[derive(Clone, PartialEq, Message)]
struct EventForm {
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

/// Of an [`EventForm`], when it was: the rest is passed over.
#[derive(Clone, PartialEq, Message)]
struct TimeForm {
    #[prost(uint64, tag = "1")]
    at: u64,
}

/// What an event is written as.
pub(in crate::store::ledger) fn write(event: &Event) -> Vec<u8> {
    let form = EventForm {
        at: event.at.0,
        kind: match event.kind {
            EventKind::Removal => 1,
            EventKind::PermanentError => 2,
            EventKind::Moved => 3,
        },
        why: match event.why {
            Why::Excluded => 1,
            Why::PermanentError => 2,
            Why::TemporaryErrors => 3,
            Why::OtherSpace => 4,
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
pub(in crate::store::ledger) fn read(bytes: &[u8]) -> Option<Event> {
    let form = EventForm::decode(bytes).ok()?;
    Some(Event {
        at: At(form.at),
        kind: match form.kind {
            1 => EventKind::Removal,
            2 => EventKind::PermanentError,
            3 => EventKind::Moved,
            _ => return None,
        },
        why: match form.why {
            1 => Why::Excluded,
            2 => Why::PermanentError,
            3 => Why::TemporaryErrors,
            4 => Why::OtherSpace,
            _ => return None,
        },
        crawler: form.crawler.into(),
        url: form.url.into(),
        code: short(form.code.map(u64::from)),
        status: short(form.status.map(u64::from)),
        rule: form.rule.map(Into::into),
        revision: form.revision.into(),
    })
}

/// When an event was; nothing if it is not one.
pub(in crate::store::ledger) fn time_of(bytes: &[u8]) -> Option<At> {
    TimeForm::decode(bytes).ok().map(|form| At(form.at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_and_reason_is_read_as_it_is_written() {
        for (kind, why) in EventKind::ALL
            .into_iter()
            .flat_map(|kind| Why::ALL.map(|why| (kind, why)))
        {
            let event = Event {
                at: At(5),
                kind,
                why,
                crawler: "news".into(),
                url: "http://h.test/".into(),
                code: Some(760),
                status: None,
                rule: Some("r".into()),
                revision: "0".into(),
            };
            assert_eq!(time_of(&write(&event)), Some(At(5)));
            assert_eq!(read(&write(&event)), Some(event));
        }
    }
}
