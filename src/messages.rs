//! The latest messages of the process, as on standard error, for the admin page: reloads, stops, sweeps, failures.
//!
//! Like the subscriber that fills it, the memory belongs to the process.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::LazyLock;
use std::time::SystemTime;

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use crate::clock::Clock;

/// The number of messages that are kept.
const MAX_MESSAGES: usize = 500;
/// The length of a message, in bytes; the rest is cut off.
const MAX_TEXT_BYTES: usize = 2_000;
/// The name under which `tracing` records the text of a message.
const TEXT_FIELD: &str = "message";

/// The parts of the proxy that messages are about, by the modules that write them; the first match applies.
const AREAS: [(&str, &str); 16] = [
    ("crawlgate::admin::stops", "stops"),
    ("crawlgate::admin::ledger", "ledger"),
    ("crawlgate::pipeline::sweep", "ledger"),
    ("crawlgate::pipeline::stop", "stops"),
    ("crawlgate::pipeline::admission", "hosts"),
    ("crawlgate::server::ledger", "ledger"),
    ("crawlgate::server::feed", "ledger"),
    ("crawlgate::server::reload", "policy"),
    ("crawlgate::server::authority", "tls"),
    ("crawlgate::server::origin_roots", "tls"),
    ("crawlgate::store", "ledger"),
    ("crawlgate::feed", "ledger"),
    ("crawlgate::tls", "tls"),
    ("crawlgate::proxy::connect", "tls"),
    ("crawlgate::metrics::log", "log"),
    ("crawlgate::otlp", "spans"),
];
/// The area of all other messages.
const OTHER_AREA: &str = "process";

static RECENT: LazyLock<RecentMessages> = LazyLock::new(RecentMessages::default);

/// Returns the messages of this process.
pub(crate) fn recent() -> &'static RecentMessages {
    &RECENT
}

/// The latest messages, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct RecentMessages(Mutex<MessageQueue>);

#[derive(Debug, Default)]
struct MessageQueue {
    messages: VecDeque<LogMessage>,
    /// The number of the latest message.
    last_id: u64,
}

/// A message of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogMessage {
    /// Its number, from 1.
    pub(crate) id: u64,
    pub(crate) at: SystemTime,
    /// `error`, `warn` or `info`.
    pub(crate) level: &'static str,
    /// The part of the proxy that it is about.
    pub(crate) area: &'static str,
    /// The text, and after it its fields in parentheses: `(name=value, …)`.
    pub(crate) text: String,
}

impl RecentMessages {
    /// Returns the messages that are kept and have a higher number than this.
    pub(crate) fn after(&self, id: u64) -> Vec<LogMessage> {
        let queue = self.0.lock();
        let newer = queue.messages.iter().filter(|message| message.id > id);
        newer.cloned().collect()
    }

    fn add(&self, at: SystemTime, level: &'static str, area: &'static str, text: String) {
        let mut queue = self.0.lock();
        queue.last_id += 1;
        let id = queue.last_id;
        if queue.messages.len() == MAX_MESSAGES {
            queue.messages.pop_front();
        }
        queue.messages.push_back(LogMessage {
            id,
            at,
            level,
            area,
            text,
        });
    }
}

/// Keeps each message of a subscriber, but those of the levels debug and trace.
pub(crate) struct MessageLayer {
    clock: Clock,
}

impl MessageLayer {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock }
    }
}

impl<S: Subscriber> Layer<S> for MessageLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let level = match *metadata.level() {
            Level::ERROR => "error",
            Level::WARN => "warn",
            Level::INFO => "info",
            _ => return,
        };
        let mut text = MessageText::default();
        event.record(&mut text);
        let area = area_of(metadata.target());
        recent().add(self.clock.wall_time(), level, area, text.finish());
    }
}

fn area_of(target: &str) -> &'static str {
    let found = AREAS.iter().find(|(module, _)| target.starts_with(module));
    found.map_or(OTHER_AREA, |(_, area)| area)
}

/// The text of a message, while its fields are visited.
#[derive(Default)]
struct MessageText {
    text: String,
    fields: String,
}

impl MessageText {
    /// Begins a field with its name.
    fn begin_field(&mut self, field: &Field) {
        let separator = if self.fields.is_empty() { "" } else { ", " };
        let _ = write!(self.fields, "{separator}{}=", field.name());
    }

    fn finish(mut self) -> String {
        if !self.fields.is_empty() {
            let _ = write!(self.text, " ({})", self.fields);
        }
        let end = self.text.floor_char_boundary(MAX_TEXT_BYTES);
        self.text.truncate(end);
        self.text
    }
}

impl Visit for MessageText {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == TEXT_FIELD {
            self.text.push_str(value);
        } else {
            self.begin_field(field);
            self.fields.push_str(value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let target = if field.name() == TEXT_FIELD {
            &mut self.text
        } else {
            self.begin_field(field);
            &mut self.fields
        };
        let _ = write!(target, "{value:?}");
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn messages_are_kept_with_their_fields_and_area() {
        let subscriber = tracing_subscriber::registry().with(MessageLayer::new(Clock::system()));
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(target: "crawlgate::server::reload", before = "a1", number = 3, "policy {} is active", "x");
            tracing::debug!(target: "crawlgate::server::reload", "only for developers");
            tracing::warn!(target: "crawlgate::admin::stops", "{}", "é".repeat(MAX_TEXT_BYTES));
        });
        let kept = recent().after(0);
        let shown: Vec<_> = kept
            .iter()
            .map(|message| (message.level, message.area, message.text.len()))
            .collect();
        let first = "policy x is active (before=a1, number=3)";
        assert_eq!(
            shown,
            [
                ("info", "policy", first.len()),
                ("warn", "stops", MAX_TEXT_BYTES)
            ]
        );
        assert_eq!(
            kept.first().map(|message| message.text.as_str()),
            Some(first)
        );
        let last = kept.last().map_or(0, |message| message.id);
        assert_eq!(recent().after(last), []);
    }

    #[test]
    fn the_oldest_messages_are_dropped() {
        let messages = RecentMessages::default();
        for number in 0..=MAX_MESSAGES {
            messages.add(
                SystemTime::UNIX_EPOCH,
                "info",
                OTHER_AREA,
                number.to_string(),
            );
        }
        let kept = messages.after(0);
        assert_eq!(kept.len(), MAX_MESSAGES);
        assert_eq!(kept.first().map(|message| message.text.as_str()), Some("1"));
    }
}
