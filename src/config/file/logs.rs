//! `logs` of the configuration file.

use crate::config::settings::{Logs, OnFull};
use crate::vocab::problems::Problems;
use crate::yaml::read::{self, MapReader};

use super::{later, set};

/// What the file says of the decision log; its target is as written.
#[derive(Clone, Debug, PartialEq)]
pub struct LogsText {
    /// `stderr`, `stdout`, `none` or a path.
    pub decisions: String,
    /// The share of allowed requests that is logged.
    pub allows: f64,
    /// What happens when the log cannot keep up.
    pub on_full: OnFull,
    /// Whether queries are left out.
    pub redact_query: bool,
}

impl Default for LogsText {
    fn default() -> Self {
        let Logs { allows, on_full, redact_query, .. } = Logs::default();
        Self { decisions: "stderr".into(), allows, on_full, redact_query }
    }
}

pub(super) fn read(logs: &mut LogsText, mut map: MapReader<'_>, problems: &mut Problems) {
    let decisions = map.take("decisions").and_then(|n| read::spelling(n, problems));
    set(&mut logs.decisions, decisions.map(Into::into));
    set(&mut logs.allows, map.take("allows").and_then(|n| read::decimal(n, 0.0..=1.0, problems)));
    let words = OnFull::ALL.map(OnFull::as_str);
    let on_full = |word: &str| OnFull::ALL.into_iter().find(|o| o.as_str() == word);
    set(&mut logs.on_full, map.take("on_full").and_then(|n| read::word(n, &words, on_full, problems)));
    set(&mut logs.redact_query, map.take("redact_query").and_then(|n| read::boolean(n, problems)));
    later::check(&mut map, "logs", problems);
    map.finish(problems);
}
