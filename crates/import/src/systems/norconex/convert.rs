//! The conversion of a configuration: what all crawlers share is of the document, the rest of their spaces.

use crate::draft::{
    ConditionDraft, GroupDraft, GuardDraft, OptionDrafts, PolicyDraft, RuleDraft, RuleIds,
    RuleItem, SpaceDraft, to_slug,
};
use crate::input::ImportInput;
use crate::report::{MissingPart, PartNeed, Report};
use crate::settings::{CrawlerProposal, SettingsDraft};

use super::filters::{FilterStage, HeaderNames};
use super::read::{
    DOCUMENT_FILTERS, METADATA_FILTERS, REFERENCE_FILTERS, find, headers_prefix, read_filters,
    read_scope, read_valid_statuses,
};
use super::session::{NorconexVersion, Session};
use super::tree::Setting;

/// Writes the settings that all crawlers share, or those of one crawler.
pub(super) struct UnitWriter<'w, 't> {
    pub report: &'w mut Report,
    pub ids: &'w mut RuleIds,
    pub input: &'w ImportInput<'w>,
    pub version: NorconexVersion,
    /// The settings to write.
    pub settings: Vec<&'t Setting>,
    /// All settings of a crawler that has these.
    pub effective: Vec<&'t Setting>,
    pub options: OptionDrafts,
    pub rules: Vec<RuleItem>,
}

/// Converts a session.
pub(super) fn convert_session(
    session: &Session<'_>,
    input: &ImportInput<'_>,
    report: &mut Report,
) -> (PolicyDraft, SettingsDraft) {
    let mut ids = RuleIds::default();
    let mut policy = PolicyDraft {
        name: policy_name(session, input),
        ..PolicyDraft::default()
    };
    for setting in session.overridden() {
        for part in setting.parts() {
            report.dead(part, "each crawler has its own");
        }
    }
    let first = session.crawlers.first().copied();
    let effective = first.map(|crawler| session.effective(crawler));
    let mut shared = UnitWriter {
        report,
        ids: &mut ids,
        input,
        version: session.version,
        settings: session.shared(),
        effective: effective.unwrap_or_default(),
        options: OptionDrafts::default(),
        rules: Vec::new(),
    };
    shared.options.set("disposition", "allow");
    shared.write_frame(session);
    shared.write_defaults(session);
    shared.write();
    (policy.options, policy.rules) = (shared.options, shared.rules);
    let mut settings = SettingsDraft::default();
    for crawler in &session.crawlers {
        let mut unit = UnitWriter {
            report,
            ids: &mut ids,
            input,
            version: session.version,
            settings: session.own(crawler),
            effective: session.effective(crawler),
            options: OptionDrafts::default(),
            rules: Vec::new(),
        };
        unit.write();
        let scope = read_scope(&unit.effective, input);
        let name = session.crawler_name(crawler);
        let mut space = SpaceDraft {
            name: space_name(&name, &policy.spaces),
            options: unit.options,
            rules: unit.rules,
            seeds: scope.starts.into_iter().map(|start| start.url).collect(),
            ..SpaceDraft::default()
        };
        if space.name != name {
            space.notes.push(name);
        }
        if session.crawlers.len() > 1 {
            space.crawlers.push(space.name.clone());
            settings.crawlers.push(CrawlerProposal {
                name: space.name.clone(),
                keys: vec![("profile".to_owned(), "norconex".into())],
                ..CrawlerProposal::default()
            });
        }
        policy.spaces.push(space);
    }
    if session.crawlers.len() == 1 {
        let note = "Norconex does not name itself in its User-Agent.";
        settings
            .settings
            .push(("profile".to_owned(), "norconex".into(), note.to_owned()));
    }
    (policy, settings)
}

fn policy_name(session: &Session<'_>, input: &ImportInput<'_>) -> String {
    let id = session.root.value(&["id"]);
    to_slug(input.name.as_deref().or(id).unwrap_or("norconex"))
}

/// Returns the name of a crawler as a space, which no other has.
fn space_name(name: &str, others: &[SpaceDraft]) -> String {
    let slug = to_slug(name);
    let numbers = (2..).map(|number| format!("{slug}-{number}"));
    let mut names = std::iter::once(slug.clone()).chain(numbers);
    names
        .find(|name| others.iter().all(|other| other.name != *name))
        .unwrap_or(slug)
}

impl UnitWriter<'_, '_> {
    /// Writes the settings in the order in which the crawler asks its questions.
    fn write(&mut self) {
        self.write_depth();
        self.write_robots();
        self.write_checksums();
        self.write_spoiled();
        self.write_normalizer();
        self.write_fetchers();
        self.write_scope();
        let names = HeaderNames {
            prefix: headers_prefix(&self.effective),
        };
        self.write_filter_list(&REFERENCE_FILTERS, FilterStage::Reference, &names);
        self.write_delay();
        self.write_recrawl();
        self.write_filter_list(&METADATA_FILTERS, FilterStage::Metadata, &names);
        self.write_filter_list(&DOCUMENT_FILTERS, FilterStage::Document, &names);
        self.write_others();
    }

    /// Writes a list of filters as a group with its name.
    fn write_filter_list(&mut self, names: &[&str], stage: FilterStage, headers: &HeaderNames) {
        let Some(setting) = find(&self.settings, names) else {
            return;
        };
        let filters = read_filters(&self.settings, names, self.version);
        if filters.is_empty() {
            self.unrelated(setting, "an empty list");
            return;
        }
        let id = self.ids.next(&setting.name);
        let guard = match stage {
            FilterStage::Metadata => {
                let statuses = read_valid_statuses(&self.effective);
                let statuses = statuses.iter().map(u16::to_string);
                GuardDraft::When(ConditionDraft::is("status", statuses))
            }
            FilterStage::Reference | FilterStage::Document => GuardDraft::Always,
        };
        let rules = self.write_filters(&filters, stage, headers);
        let need = match stage {
            FilterStage::Reference => PartNeed::Url,
            FilterStage::Metadata | FilterStage::Document => PartNeed::Response,
        };
        self.report.converted(setting.part, id.as_str(), need);
        let group = GroupDraft {
            guard,
            rules,
            ..GroupDraft::default()
        };
        let rule = RuleDraft::group(id, group);
        self.rules
            .push(rule.with_about(setting.comment.clone()).into());
    }

    pub(super) fn converted(&mut self, setting: &Setting, name: &str, need: PartNeed) {
        for part in setting.parts() {
            self.report.converted(part, name, need);
        }
    }

    pub(super) fn unrelated(&mut self, setting: &Setting, why: &str) {
        for part in setting.parts() {
            self.report.unrelated(part, why);
        }
    }

    pub(super) fn not_converted(
        &mut self,
        setting: &Setting,
        why: &str,
        failure: MissingPart,
        instead: Option<&str>,
    ) {
        for part in setting.parts() {
            self.report.not_converted(part, why, failure, instead);
        }
    }

    /// Writes what is on in a crawler that does not mention it.
    fn write_defaults(&mut self, session: &Session<'_>) {
        let lacks = |names: &[&str]| {
            let crawlers = session.crawlers.iter();
            let mut settings = crawlers.map(|crawler| session.effective(crawler));
            settings.any(|settings| find(&settings, names).is_none())
        };
        let note = |text: &str| Some(format!("by default in Norconex: {text}"));
        if lacks(&["robotsTxt", "robotsTxtProvider"]) {
            self.options
                .set_with_note("robots.obey", true, note("robots.txt is obeyed"));
        }
        if lacks(&["robotsMeta", "robotsMetaProvider"]) {
            let note = note("noindex is obeyed, after the links are extracted");
            self.options.set_with_note("noindex", "links", note);
        }
        let is_first = self.version == NorconexVersion::V1;
        if lacks(&["canonicalLinkDetector"]) && !is_first {
            let note = note("a page that names another URL as canonical is rejected");
            self.options.set_with_note("noncanonical", "reject", note);
        }
        if lacks(&super::index::CHECKSUMMERS) {
            let note = note("checksums of the head and of the document");
            self.options.set_with_note("unmodified", "reject", note);
        }
        if lacks(&["spoiledReferenceStrategizer"]) && !is_first {
            let note = note("bad pages are deleted, bad statuses and errors the second time");
            self.options.set_with_note("removal", "norconex", note);
        }
        if lacks(&["delay", "delayResolver"]) {
            let note = note("3 seconds between two pages of the crawler; here of a host");
            self.options.set_with_note("politeness.delay", "3s", note);
            self.options.set("politeness.jitter", "none");
        }
    }

    /// Lists what is around the crawlers.
    fn write_frame(&mut self, session: &Session<'_>) {
        let root = session.root;
        self.report.unrelated(root.part, "the frame");
        if let Some(id) = root.get(&["id"]) {
            self.report
                .unrelated(id.part, "names of the policy and its spaces");
        }
        let crawlers = root.get(&["crawlers"]);
        for setting in crawlers.into_iter().chain(session.defaults) {
            self.report.unrelated(setting.part, "the frame");
        }
        for crawler in crawlers.into_iter().flat_map(Setting::elements) {
            self.report.unrelated(crawler.part, "a space");
            for name in crawler.children.iter() {
                if matches!(name.name.as_str(), "id" | "class") {
                    self.report
                        .unrelated(name.part, "names of the policy and its spaces");
                }
            }
        }
        for setting in session.frame() {
            self.write_other(setting);
        }
    }
}
