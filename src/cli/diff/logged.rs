//! The requests of a decision log, each with the number of times that it was made.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::path::PathBuf;

use serde_json::{Value as Json, json};

use crate::cli::Exit;
use crate::cli::args::DiffArgs;
use crate::cli::console::{report_invalid, report_io_error, warn};
use crate::cli::decisions::reader::{DecisionConsumer, DecisionLogReader};
use crate::cli::decisions::{read_whole_log, since::Since};
use crate::cli::inputs;
use crate::clock::Clock;
use crate::config::load::Overrides;
use crate::metrics::log::entry::{LogEntry, LogField, LogValue};
use crate::metrics::log::query::is_redacted;
use crate::policy::cases::CaseFacts;

use super::requests::{DiffRequest, DiffRequests};

/// The maximum number of different requests, which are kept in memory.
const MAX_REQUESTS: usize = 1_000_000;
/// The number of lines in a generation of [`RepeatableLines`]: the proxy remembers as many for a minute.
const MAX_RECENT: usize = 65_536;

/// The lines of a log that cannot be compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOutLines {
    /// Lines whose URL is not logged: tunnels, and what the option `record` or `logs.query` hides.
    pub(super) without_url: usize,
    /// Lines of requests beyond [`MAX_REQUESTS`].
    pub(super) beyond_limit: usize,
}

/// Reads the requests of the log, and of its rotated files.
pub(super) fn from_log(args: &DiffArgs) -> Result<DiffRequests, Exit> {
    let path = match &args.log {
        Some(Some(path)) => path.clone(),
        Some(None) | None => configured_log(args)?,
    };
    let since = args
        .since
        .map(|since: Since| since.to_timestamp(Clock::system().wall_time()));
    let mut reader = DecisionLogReader::new(LogRequests::default(), &[], since);
    read_whole_log(&path, &mut reader).map_err(|error| report_io_error(&error))?;
    if let Some(summary) = reader.unreadable_summary() {
        warn(&summary);
    }
    Ok(reader.consumer.into_requests())
}

fn configured_log(args: &DiffArgs) -> Result<PathBuf, Exit> {
    let overrides = Overrides {
        config: args.source.proxy.config.clone(),
        ..Overrides::default()
    };
    let logs = inputs::load_quietly(&overrides)?.settings.logs;
    if let Some(path) = logs.readable_file() {
        return Ok(path.to_owned());
    }
    Err(report_invalid(match logs.destination.file() {
        Some(_) => {
            &"logs.format is squid, which lacks fields: set it to json, or name a log with --log FILE"
        }
        None => &"logs.decisions is not a file: set it to one, or name a log with --log FILE",
    }))
}

/// The facts of a request that the log has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct LoggedRequest {
    crawler: Box<str>,
    method: Box<str>,
    url: Box<str>,
    /// The response's status and content type, if the policy allowed the request.
    response: Option<(u16, Box<str>)>,
}

/// Collects the requests, the same ones together.
#[derive(Debug, Default)]
struct LogRequests {
    indexes: HashMap<LoggedRequest, usize>,
    counts: Vec<usize>,
    recent: RepeatableLines,
    left_out: LeftOutLines,
}

/// The lines whose repetitions may follow, which are logged without their URL: decisions and the indexes of their requests.
#[derive(Debug, Default)]
struct RepeatableLines {
    latest: HashMap<Box<str>, usize>,
    older: HashMap<Box<str>, usize>,
}

impl RepeatableLines {
    fn record(&mut self, decision: Box<str>, index: usize) {
        if self.latest.len() == MAX_RECENT {
            self.older = std::mem::take(&mut self.latest);
        }
        self.latest.insert(decision, index);
    }

    fn find(&self, decision: &str) -> Option<usize> {
        self.latest
            .get(decision)
            .or_else(|| self.older.get(decision))
            .copied()
    }
}

impl LogRequests {
    fn count(&mut self, request: LoggedRequest) -> Option<usize> {
        let next = self.counts.len();
        let index = match self.indexes.entry(request) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) if next < MAX_REQUESTS => {
                self.counts.push(0);
                *new.insert(next)
            }
            Entry::Vacant(_) => {
                self.left_out.beyond_limit += 1;
                return None;
            }
        };
        if let Some(count) = self.counts.get_mut(index) {
            *count += 1;
        }
        Some(index)
    }

    fn into_requests(self) -> DiffRequests {
        let mut requests: Vec<(LoggedRequest, usize)> = self.indexes.into_iter().collect();
        requests.sort_by_key(|(_, index)| *index);
        let mut all = DiffRequests {
            left_out: Some(self.left_out),
            ..DiffRequests::default()
        };
        for ((request, _), count) in requests.into_iter().zip(self.counts) {
            match request.to_facts() {
                Ok(facts) => all.requests.push(DiffRequest {
                    facts,
                    profile: None,
                    count,
                }),
                // Logged as it was received, such as a URL that the proxy refused to parse.
                Err(_) => {
                    if let Some(left_out) = &mut all.left_out {
                        left_out.without_url += count;
                    }
                }
            }
        }
        all
    }
}

impl LoggedRequest {
    /// Returns `None` if the line has no URL that can be evaluated.
    fn from_entry(entry: &LogEntry<'_>) -> Option<Self> {
        let url = entry.text(LogField::Url);
        if url.is_empty() || is_redacted(&url) {
            return None;
        }
        let status = entry.value(LogField::OriginStatus).number();
        Some(Self {
            crawler: entry.text(LogField::Crawler).into(),
            method: entry.text(LogField::Method).into(),
            url: url.into(),
            response: status
                .map(|status| (status as u16, entry.text(LogField::ContentType).into())),
        })
    }

    fn to_facts(&self) -> Result<CaseFacts, String> {
        let mut facts = CaseFacts::for_url(&self.url)?;
        facts.set("crawler", &json!(self.crawler))?;
        facts.set("method", &json!(self.method))?;
        if let Some((status, content_type)) = &self.response {
            facts.set("status", &Json::from(*status))?;
            if !content_type.is_empty() {
                facts.set("content_type", &json!(content_type))?;
            }
        }
        Ok(facts)
    }
}

impl DecisionConsumer for LogRequests {
    fn fields(&self) -> Vec<LogField> {
        vec![
            LogField::Decision,
            LogField::Crawler,
            LogField::Method,
            LogField::Url,
            LogField::OriginStatus,
            LogField::ContentType,
            LogField::RepeatOf,
        ]
    }

    fn accept(&mut self, _line: &[u8], entry: &LogEntry<'_>) -> io::Result<()> {
        if let LogValue::Text(repeated) = entry.value(LogField::RepeatOf)
            && let Some(count) = self
                .recent
                .find(repeated)
                .and_then(|index| self.counts.get_mut(index))
        {
            *count += 1;
            return Ok(());
        }
        let Some(request) = LoggedRequest::from_entry(entry) else {
            self.left_out.without_url += 1;
            return Ok(());
        };
        // Only what was refused or failed is repeated without its URL.
        let may_have_repetitions =
            &*entry.text(LogField::Verdict) == "reject" || request.response.is_none();
        if let Some(index) = self.count(request)
            && may_have_repetitions
        {
            self.recent
                .record(entry.text(LogField::Decision).into(), index);
        }
        Ok(())
    }
}
