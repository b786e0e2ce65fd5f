//! The report of an import: what became of each part of the source.

mod schema;

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json, json};

use crate::input::Place;

/// The parts of a source, in its order, each with what became of it.
///
/// A reader adds every element, attribute and line of the source before it is converted, so that none can
/// be forgotten: a part without an outcome is not converted when the report is finished.
#[derive(Debug, Default)]
pub struct Report {
    parts: Vec<ReportedPart>,
}

/// The index of a part in its report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartId(usize);

/// A part of the source.
#[derive(Clone, Debug)]
pub struct ReportedPart {
    pub place: Place,
    /// Its text, with secrets replaced.
    pub text: String,
    /// The number of lines of the source that it is in the place of, if they are counted and not listed.
    pub lines: u32,
    outcome: Option<PartOutcome>,
}

/// The outcome of a part.
#[derive(Clone, Debug, PartialEq)]
pub enum PartOutcome {
    Converted(PartTarget),
    /// It is converted, but means the same only under an assumption.
    Assumed {
        target: PartTarget,
        assumption: String,
        effect: AssumptionEffect,
    },
    NotConverted {
        why: String,
        failure: MissingPart,
        /// The nearest thing that can be written by hand.
        instead: Option<String>,
    },
    /// It is none of a policy's business: threads, storage, parsing, output.
    Unrelated {
        why: String,
    },
    /// It can never decide.
    Dead {
        why: String,
    },
}

/// The result of a converted part.
#[derive(Clone, Debug, PartialEq)]
pub struct PartTarget {
    /// The id of a rule, a list (`lists.NAME`) or an option (`politeness.delay`).
    pub name: String,
    pub need: PartNeed,
}

/// The knowledge that a part needs to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartNeed {
    Host,
    Url,
    /// The head of the response.
    Response,
    Document,
    Ledger,
}

/// The difference from the source if an assumption does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AssumptionEffect {
    RefusesMore,
    RefusesLess,
    /// Either is possible, or the effect is not about refusals.
    Either,
}

/// The consequence of a part that is not converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingPart {
    /// An exclusion is missing: what it excluded is allowed.
    LetsThrough,
    /// An inclusion is missing: what it included is refused.
    KeepsOut,
    /// Refusals do not change.
    OtherSetting,
}

/// The five lists of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReportList {
    Converted,
    Assumed,
    NotConverted,
    Unrelated,
    Dead,
}

impl Report {
    /// Adds a part of the source, whose outcome is not known yet.
    pub fn add(&mut self, place: Place, text: impl Into<String>) -> PartId {
        self.add_lines(place, text, 1)
    }

    /// Adds lines of the source that have the same outcome, as one part: they are counted and not listed.
    pub fn add_lines(&mut self, place: Place, text: impl Into<String>, lines: u32) -> PartId {
        let id = PartId(self.parts.len());
        self.parts.push(ReportedPart {
            place,
            text: text.into(),
            lines,
            outcome: None,
        });
        id
    }

    /// Replaces the text of a part that has a secret.
    pub fn set_text(&mut self, part: PartId, text: impl Into<String>) {
        if let Some(part) = self.parts.get_mut(part.0) {
            part.text = text.into();
        }
    }

    /// Sets the outcome of a part. The last one counts.
    pub fn set(&mut self, part: PartId, outcome: PartOutcome) {
        if let Some(part) = self.parts.get_mut(part.0) {
            part.outcome = Some(outcome);
        }
    }

    /// Sets the outcome of a part that became a rule, a list or an option.
    pub fn converted(&mut self, part: PartId, name: impl Into<String>, need: PartNeed) {
        let name = name.into();
        self.set(part, PartOutcome::Converted(PartTarget { name, need }));
    }

    /// Sets the outcome of a part that is converted under an assumption.
    pub fn assumed(
        &mut self,
        part: PartId,
        target: PartTarget,
        assumption: impl Into<String>,
        effect: AssumptionEffect,
    ) {
        let assumption = assumption.into();
        let outcome = PartOutcome::Assumed {
            target,
            assumption,
            effect,
        };
        self.set(part, outcome);
    }

    /// Sets the outcome of a part that is not converted.
    pub fn not_converted(
        &mut self,
        part: PartId,
        why: impl Into<String>,
        failure: MissingPart,
        instead: Option<&str>,
    ) {
        let outcome = PartOutcome::NotConverted {
            why: why.into(),
            failure,
            instead: instead.map(str::to_owned),
        };
        self.set(part, outcome);
    }

    /// Sets the outcome of a part that is none of a policy's business.
    pub fn unrelated(&mut self, part: PartId, why: impl Into<String>) {
        self.set(part, PartOutcome::Unrelated { why: why.into() });
    }

    /// Sets the outcome of a part that can never decide.
    pub fn dead(&mut self, part: PartId, why: impl Into<String>) {
        self.set(part, PartOutcome::Dead { why: why.into() });
    }

    /// Lists the parts that became a rule as converted to another one.
    pub(crate) fn rename_target(&mut self, rule: &str, other: &str) {
        for part in &mut self.parts {
            if let Some(PartOutcome::Converted(target)) = &mut part.outcome
                && target.name == rule
            {
                other.clone_into(&mut target.name);
            }
        }
    }

    /// Lists the parts that became a rule as dead.
    pub(crate) fn set_dead(&mut self, rule: &str, why: &str) {
        for part in &mut self.parts {
            let target = part.outcome.as_ref().and_then(PartOutcome::target);
            if target.is_some_and(|target| target.name == rule) {
                let why = why.to_owned();
                part.outcome = Some(PartOutcome::Dead { why });
            }
        }
    }

    /// Lists the parts that became a rule as not converted.
    pub(crate) fn set_invalid(&mut self, rule: &str, why: &str, failure: MissingPart) {
        for part in &mut self.parts {
            let target = part.outcome.as_ref().and_then(PartOutcome::target);
            if target.is_some_and(|target| target.name == rule) {
                part.outcome = Some(PartOutcome::NotConverted {
                    why: why.to_owned(),
                    failure,
                    instead: None,
                });
            }
        }
    }

    /// Returns a part.
    pub fn part(&self, part: PartId) -> Option<&ReportedPart> {
        self.parts.get(part.0)
    }

    /// Returns `true` if a part has an outcome already.
    pub fn is_set(&self, part: PartId) -> bool {
        self.part(part).is_some_and(|part| part.outcome.is_some())
    }

    /// Returns `true` if a part acts in the policy.
    pub fn is_converted(&self, part: PartId) -> bool {
        let list = self.part(part).and_then(ReportedPart::list);
        matches!(list, Some(ReportList::Converted | ReportList::Assumed))
    }

    /// Returns the parts in the order of the source.
    pub fn parts(&self) -> &[ReportedPart] {
        &self.parts
    }

    /// Returns the parts in one of the lists.
    pub fn list(&self, list: ReportList) -> impl Iterator<Item = &ReportedPart> {
        let parts = self.parts.iter();
        parts.filter(move |part| part.list() == Some(list))
    }

    /// Returns `true` if all of the source is converted or is none of a policy's business.
    pub fn is_complete(&self) -> bool {
        self.list(ReportList::NotConverted).next().is_none()
    }

    /// Returns the assumption under which a rule, a list or an option was made.
    pub fn assumption_of(&self, name: &str) -> Option<(&str, AssumptionEffect)> {
        self.parts.iter().find_map(|part| match &part.outcome {
            Some(PartOutcome::Assumed {
                target,
                assumption,
                effect,
            }) if target.name == name => Some((assumption.as_str(), *effect)),
            _ => None,
        })
    }

    /// Ends the report: parts that nobody converted are listed as not converted.
    pub(crate) fn finish(&mut self) {
        for part in &mut self.parts {
            part.outcome
                .get_or_insert_with(|| PartOutcome::NotConverted {
                    why: "not known to this importer".to_owned(),
                    failure: MissingPart::LetsThrough,
                    instead: None,
                });
        }
    }

    /// Returns the report as JSON: the five lists, each part with its place.
    pub fn to_json(&self) -> Json {
        let mut lists = Map::new();
        for list in ReportList::ALL {
            let parts = self.list(list).map(ReportedPart::to_json);
            lists.insert(list.as_str().to_owned(), parts.collect());
        }
        let count: u32 = self.parts.iter().map(|part| part.lines).sum();
        json!({ "report": 1, "parts": count, "lists": lists })
    }

    /// Returns the JSON Schema of [`Report::to_json`].
    pub fn json_schema() -> Json {
        schema::json_schema()
    }

    /// Returns the report as text: the numbers, then each part that a person should look at.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for list in ReportList::ALL {
            let count: u32 = self.list(list).map(|part| part.lines).sum();
            text.push_str(&format!("{count:>6} {}\n", list.title()));
        }
        for list in [
            ReportList::NotConverted,
            ReportList::Assumed,
            ReportList::Dead,
        ] {
            let parts: Vec<&ReportedPart> = self.list(list).collect();
            if !parts.is_empty() {
                text.push_str(&format!("\n{}:\n", list.title()));
            }
            push_parts(&mut text, &parts);
        }
        text
    }
}

/// More parts than this with the same outcome are counted.
const MAX_SHOWN: usize = 5;

/// Writes parts. Neighbours with the same outcome share its sentences. Of all with the same outcome
/// only the first ones are written.
fn push_parts(text: &mut String, parts: &[&ReportedPart]) {
    let mut counts: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    for run in parts.chunk_by(|one, next| one.outcome == next.outcome) {
        let Some(first) = run.first() else { continue };
        let sentences = first.sentences();
        let count = counts.entry(sentences.clone()).or_default();
        let shown = run.len().min(MAX_SHOWN.saturating_sub(*count));
        *count += run.len();
        for part in run.iter().take(shown) {
            text.push_str(&format!("  {}: {}\n", part.place, one_line(&part.text)));
        }
        for sentence in sentences.iter().filter(|_| shown > 0) {
            text.push_str(&format!("      {sentence}\n"));
        }
    }
    for (sentences, count) in counts.iter().filter(|(_, count)| **count > MAX_SHOWN) {
        let first = sentences.first().map(String::as_str).unwrap_or_default();
        text.push_str(&format!("  … and {} more: {first}\n", count - MAX_SHOWN));
    }
}

impl ReportedPart {
    /// Returns the outcome; `None` before the report is finished.
    pub fn outcome(&self) -> Option<&PartOutcome> {
        self.outcome.as_ref()
    }

    /// Returns the list that it is in; `None` before the report is finished.
    pub fn list(&self) -> Option<ReportList> {
        self.outcome.as_ref().map(PartOutcome::list)
    }

    fn to_json(&self) -> Json {
        let mut json = json!({ "place": self.place.to_string(), "text": self.text });
        if let Some(json) = json.as_object_mut().filter(|_| self.lines != 1) {
            json.insert("lines".to_owned(), json!(self.lines));
        }
        let details = self.outcome.as_ref().map(PartOutcome::to_json);
        if let (Some(json), Some(details)) = (json.as_object_mut(), details) {
            json.extend(details);
        }
        json
    }

    /// Returns the sentences that tell the outcome.
    fn sentences(&self) -> Vec<String> {
        let outcome = self.outcome.as_ref();
        outcome.map(PartOutcome::to_sentences).unwrap_or_default()
    }
}

/// Shortens a text to one line of at most 100 characters.
fn one_line(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() <= 100 {
        return line;
    }
    line.chars().take(99).chain(['…']).collect()
}

impl PartOutcome {
    /// Returns what the part became.
    pub fn target(&self) -> Option<&PartTarget> {
        match self {
            Self::Converted(target) | Self::Assumed { target, .. } => Some(target),
            Self::NotConverted { .. } | Self::Unrelated { .. } | Self::Dead { .. } => None,
        }
    }

    fn list(&self) -> ReportList {
        match self {
            Self::Converted(_) => ReportList::Converted,
            Self::Assumed { .. } => ReportList::Assumed,
            Self::NotConverted { .. } => ReportList::NotConverted,
            Self::Unrelated { .. } => ReportList::Unrelated,
            Self::Dead { .. } => ReportList::Dead,
        }
    }

    fn to_json(&self) -> Map<String, Json> {
        let json = match self {
            Self::Converted(target) => {
                json!({ "became": target.name, "stage": target.need.as_str() })
            }
            Self::Assumed {
                target,
                assumption,
                effect,
            } => json!({
                "became": target.name,
                "stage": target.need.as_str(),
                "assumption": assumption,
                "effect": effect.as_str(),
            }),
            Self::NotConverted {
                why,
                failure,
                instead,
            } => json!({ "why": why, "fails": failure.as_str(), "instead": instead }),
            Self::Unrelated { why } | Self::Dead { why } => json!({ "why": why }),
        };
        json.as_object().cloned().unwrap_or_default()
    }

    fn to_sentences(&self) -> Vec<String> {
        match self {
            Self::Converted(target) => vec![format!("became {}", target.name)],
            Self::Assumed {
                target,
                assumption,
                effect,
            } => vec![
                format!("became {}, assuming that {assumption}", target.name),
                effect.sentence().to_owned(),
            ],
            Self::NotConverted {
                why,
                failure,
                instead,
            } => {
                let mut sentences = vec![format!("{why}: {}", failure.sentence())];
                sentences.extend(
                    instead
                        .as_ref()
                        .map(|instead| format!("instead: {instead}")),
                );
                sentences
            }
            Self::Unrelated { why } | Self::Dead { why } => vec![why.clone()],
        }
    }
}

impl ReportList {
    /// All lists, in the order of the report.
    pub const ALL: [Self; 5] = [
        Self::Converted,
        Self::Assumed,
        Self::NotConverted,
        Self::Unrelated,
        Self::Dead,
    ];

    /// Returns the key in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Converted => "converted",
            Self::Assumed => "assumed",
            Self::NotConverted => "not_converted",
            Self::Unrelated => "unrelated",
            Self::Dead => "dead",
        }
    }

    /// Returns the meaning of the list, for the schema.
    fn description(self) -> &'static str {
        match self {
            Self::Converted => "Parts that became a rule, a list or an option.",
            Self::Assumed => "Parts that mean the same only under an assumption.",
            Self::NotConverted => "Parts that are missing in the policy.",
            Self::Unrelated => "Parts that are none of a policy's business.",
            Self::Dead => "Parts that can never decide.",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Converted => "converted",
            Self::Assumed => "converted with an assumption",
            Self::NotConverted => "not converted",
            Self::Unrelated => "not a policy's business",
            Self::Dead => "dead: can never decide",
        }
    }
}

impl PartNeed {
    const ALL: [Self; 5] = [
        Self::Host,
        Self::Url,
        Self::Response,
        Self::Document,
        Self::Ledger,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Url => "url",
            Self::Response => "response",
            Self::Document => "document",
            Self::Ledger => "ledger",
        }
    }
}

impl AssumptionEffect {
    const ALL: [Self; 3] = [Self::RefusesMore, Self::RefusesLess, Self::Either];

    fn as_str(self) -> &'static str {
        match self {
            Self::RefusesMore => "refuses_more",
            Self::RefusesLess => "refuses_less",
            Self::Either => "either",
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::RefusesMore => "otherwise the policy refuses more than the source",
            Self::RefusesLess => "otherwise the policy refuses less than the source",
            Self::Either => "otherwise the policy differs from the source",
        }
    }
}

impl MissingPart {
    const ALL: [Self; 3] = [Self::LetsThrough, Self::KeepsOut, Self::OtherSetting];

    fn as_str(self) -> &'static str {
        match self {
            Self::LetsThrough => "lets_through",
            Self::KeepsOut => "keeps_out",
            Self::OtherSetting => "other",
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Self::LetsThrough => "without it more is allowed than before",
            Self::KeepsOut => "without it less is allowed than before",
            Self::OtherSetting => "what is refused does not change",
        }
    }
}
