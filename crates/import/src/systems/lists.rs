//! Lists: of domains, hosts files, SURTs, adblock filters, MediaWiki's spam blacklists, and ignore sets of
//! ArchiveBot and grab-site. Each file becomes a few lists and one rule or a few.
//!
//! The format is recognized by the lines, or given as `--var format=NAME`. The files say what is refused, or
//! with `--var action=allow` what alone is allowed.

pub mod adblock;
mod adblock_conversion;
mod expressions;
mod format;
mod plain;

use serde_json::Map;

use crate::conversion::Conversion;
use crate::draft::{ConditionDraft, ListDraft, PolicyDraft, RuleDraft, RuleIds, RuleItem, to_slug};
use crate::input::{ImportError, ImportInput, MAX_RULE_FILE, Place, SourceText};
use crate::reference::lists::{EvaluatedList, ListEvaluator};
use crate::report::Report;
use crate::settings::SettingsDraft;

pub use format::ListFormat;

/// Lists with more items than this are not searched for cases: examples are made from the items.
const MAX_SEARCHED: usize = 300;

/// The effect of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListAction {
    Forbid,
    Allow,
}

pub(crate) fn recognize(beginning: &[u8]) -> bool {
    // The items of a YAML list may look like a list of URLs and expressions.
    !crate::systems::browsertrix::recognize(beginning)
        && format::recognize(&String::from_utf8_lossy(beginning)).is_some()
}

pub(crate) fn convert(input: &ImportInput<'_>) -> Result<Conversion, ImportError> {
    let action = match input.variable("action") {
        None | Some("forbid") => ListAction::Forbid,
        Some("allow") => ListAction::Allow,
        Some(other) => {
            let message = format!("--var action={other}: write forbid or allow");
            return Err(ImportError::invalid(&Place::start("-"), message));
        }
    };
    let mut import = ListImport {
        report: Report::default(),
        ids: RuleIds::default(),
        policy: PolicyDraft::default(),
        action,
        sources: Vec::new(),
        filters: Vec::new(),
    };
    for path in &input.paths {
        let source = input.read_text(&path.path, MAX_RULE_FILE)?;
        let format = chosen_format(input, &source)?;
        let slug = file_slug(&path.path);
        let name = path.crawler.as_deref().map_or(slug, to_slug);
        import.add_file(&name, format, &source, input)?;
    }
    import.finish(input)
}

fn chosen_format(input: &ImportInput<'_>, source: &SourceText) -> Result<ListFormat, ImportError> {
    let start = Place::start(&source.file);
    if let Some(name) = input.variable("format") {
        return ListFormat::from_name(name).ok_or_else(|| {
            let names = ListFormat::ALL.map(ListFormat::name).join(", ");
            ImportError::invalid(&start, format!("--var format={name}: write one of {names}"))
        });
    }
    format::recognize(&source.text).ok_or_else(|| {
        let message = "the format of this list is not clear: give it as --var format=NAME";
        ImportError::invalid(&start, message)
    })
}

/// Makes a name of the file's name without directory and extension.
fn file_slug(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let name = name
        .split('.')
        .next()
        .filter(|name| !name.is_empty())
        .unwrap_or(name);
    to_slug(name)
}

/// The lists and rules so far.
pub(crate) struct ListImport {
    pub report: Report,
    pub ids: RuleIds,
    pub policy: PolicyDraft,
    pub action: ListAction,
    pub sources: Vec<EvaluatedList>,
    /// The filters of adblock lists, by the names of their files.
    pub filters: Vec<(String, Vec<adblock::AdblockFilter>)>,
}

impl ListImport {
    fn add_file(
        &mut self,
        name: &str,
        format: ListFormat,
        source: &SourceText,
        input: &ImportInput<'_>,
    ) -> Result<(), ImportError> {
        match format {
            ListFormat::Domains => self.add_domains(name, source),
            ListFormat::Hosts => self.add_hosts(name, source),
            ListFormat::Surts => self.add_surts(name, source),
            ListFormat::Adblock if self.action == ListAction::Allow => {
                let message =
                    "filters are not a list of what is allowed: leave out --var action=allow";
                return Err(ImportError::invalid(&Place::start(&source.file), message));
            }
            ListFormat::Adblock => self.add_filters(name, source),
            ListFormat::SpamBlacklist => self.add_spam_blacklist(name, source),
            ListFormat::IgnoreSet => self.add_ignore_set(name, source, input)?,
        }
        Ok(())
    }

    /// Adds a list, and returns its name.
    pub(crate) fn add_list(
        &mut self,
        name: &str,
        kind: &'static str,
        items: Vec<String>,
    ) -> String {
        let is_taken = |name: &str| self.policy.lists.iter().any(|list| list.name == name);
        let mut unique = name.to_owned();
        for number in 2.. {
            if !is_taken(&unique) {
                break;
            }
            unique = format!("{name}-{number}");
        }
        self.policy.lists.push(ListDraft {
            name: unique.clone(),
            notes: Vec::new(),
            kind,
            items,
        });
        unique
    }

    /// Adds the rule of a file that has one condition.
    pub(crate) fn add_rule(
        &mut self,
        id: String,
        condition: ConditionDraft,
        about: Option<String>,
    ) {
        let rule = match self.action {
            ListAction::Forbid => RuleDraft::forbid(id, condition),
            ListAction::Allow => RuleDraft::when(id, condition, "allow"),
        };
        self.policy.rules.push(rule.with_about(about).into());
    }

    /// Adds a comment in the place of a rule.
    pub(crate) fn add_note(&mut self, note: impl Into<String>) {
        self.policy.rules.push(RuleItem::Comment(note.into()));
    }

    /// Adds a URL for the cases.
    pub(crate) fn add_example(&mut self, url: impl Into<String>) {
        self.policy.examples.push((url.into(), Map::new()));
    }

    fn finish(mut self, input: &ImportInput<'_>) -> Result<Conversion, ImportError> {
        self.convert_filters();
        let first = input
            .paths
            .first()
            .map_or("lists", |path| path.path.as_str());
        let name = input.name.clone().unwrap_or_else(|| file_slug(first));
        self.policy.name = to_slug(&name);
        let disposition = match self.action {
            ListAction::Forbid => "allow",
            ListAction::Allow => "disallow",
        };
        self.policy.options.set("disposition", disposition);
        self.policy.search_skipped = self
            .policy
            .lists
            .iter()
            .any(|list| list.items.len() > MAX_SEARCHED);
        self.add_example("http://www.example.com/");
        let evaluator = ListEvaluator::new(self.action, self.sources);
        Ok(Conversion {
            policy: self.policy,
            report: self.report,
            settings: SettingsDraft::default(),
            evaluator: Box::new(evaluator),
        })
    }
}
