//! Translates the crawl rules of other systems into crawlgate policies.
//!
//! [`import`] reads the files of one system and returns a policy as text, a [`Report`] that accounts for
//! every part of the source, and a proposal of the settings that are not policy. Nothing is guessed: what
//! cannot be said exactly is in the report, with the way in which it fails.
//!
//! The crate opens no file: files are read through a [`FileSystem`].

use std::collections::BTreeMap;

use comparison::Comparison;
use crawlgate_policy::Policy;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use serde_json::{Map, Value as Json};

pub use crawlgate_policy::FileSystem;
pub use internal::comparison::Divergence;
pub use internal::input::{ImportError, ImportInput, MAX_RULE_FILE, Place, SourcePath};
pub use internal::reference::{SourceEvaluator, SourceRequest, SourceVerdict};
pub use internal::report::{
    AssumptionEffect, MissingPart, PartNeed, PartOutcome, PartTarget, Report, ReportList,
    ReportedPart,
};
pub use internal::system::System;

/// The modules of the importers. They are not covered by semantic versioning.
#[doc(hidden)]
#[path = "."]
pub mod internal {
    pub mod case;
    pub mod comparison;
    pub mod compile;
    pub mod conversion;
    pub mod dead;
    pub mod decisive;
    pub mod draft;
    pub mod duration;
    pub mod expression;
    pub mod input;
    pub mod probe;
    pub mod reference;
    pub mod report;
    pub mod search;
    pub mod settings;
    pub mod system;
    pub mod systems;
    pub mod xml;
    pub mod yaml;
}

// Modules name each other by these short paths.
use internal::{
    case, comparison, compile, conversion, dead, decisive, draft, duration, expression, input,
    probe, reference, report, search, settings, systems, xml, yaml,
};

/// A translated source.
pub struct Import {
    /// The files of the policy: `policy.yaml`, `lists/NAME.txt`, `seeds/SPACE.txt`.
    pub files: BTreeMap<String, String>,
    /// The policy as one document, with all lists in it.
    pub text: String,
    /// A proposal of the settings that are not policy.
    pub settings: String,
    /// The outcome of each part of the source.
    pub report: Report,
    /// Requests on which the policy and the source's system differ though the report announces no
    /// assumption: each is a defect of the importer.
    pub divergences: Vec<Divergence>,
    /// Decides as the source's system does.
    pub evaluator: Box<dyn SourceEvaluator>,
    policy: Policy,
}

impl Import {
    /// Compares the verdicts of the policy and of the source's system on a request: a URL with the facts that a case
    /// of a policy has, such as `crawler`, `method` or `content_type`.
    pub fn compare(
        &self,
        url: &str,
        facts: &Map<String, Json>,
    ) -> Result<Option<Divergence>, ImportError> {
        let mut known = CaseFacts::for_url(url)
            .map_err(|error| ImportError::invalid(&Place::start(url), error))?;
        for (key, value) in facts {
            known
                .set(key, value)
                .map_err(|error| ImportError::invalid(&Place::start(url), error))?;
        }
        let comparison = Comparison {
            policy: &self.policy,
            report: &self.report,
            evaluator: &*self.evaluator,
        };
        comparison.compare(url, facts)
    }
}

/// Translates the files of one system.
pub fn import(system: System, input: &ImportInput<'_>) -> Result<Import, ImportError> {
    let conversion::Conversion {
        mut policy,
        mut report,
        settings,
        evaluator,
    } = system.convert(input)?;
    if report.parts().is_empty() && !system.reads_empty_files() {
        let path = input.paths.first();
        let place = Place::start(path.map_or("-", |path| path.path.as_str()));
        let message = format!(
            "nothing to import: no rule of {} is in the file",
            system.name()
        );
        return Err(ImportError::invalid(&place, message));
    }
    report.finish();
    let live = dead::remove_dead_rules(&mut policy, &mut report)?;
    let comparison = Comparison {
        policy: &live.policy,
        report: &report,
        evaluator: &*evaluator,
    };
    let divergences = case::add_cases(&mut policy, &comparison, live.requests)?;
    Ok(Import {
        files: policy.to_files(),
        text: policy.to_text(),
        policy: live.policy,
        settings: settings.to_yaml(),
        report,
        divergences,
        evaluator,
    })
}
