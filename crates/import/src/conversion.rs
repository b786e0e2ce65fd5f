//! The result of an importer.

use crate::draft::PolicyDraft;
use crate::reference::SourceEvaluator;
use crate::report::Report;
use crate::settings::SettingsDraft;

/// The result of reading and translating a source, by the importer of its system.
pub struct Conversion {
    pub policy: PolicyDraft,
    pub report: Report,
    pub settings: SettingsDraft,
    /// Decides as the source's system does, by the parts of the source that were converted.
    pub evaluator: Box<dyn SourceEvaluator>,
}
