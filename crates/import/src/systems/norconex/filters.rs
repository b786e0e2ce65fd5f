//! Filters of references, metadata and documents as rules.

use fancy_regex::Regex;

use crate::draft::{ConditionDraft, GroupDraft, GuardDraft, RuleDraft, RuleItem};
use crate::report::{AssumptionEffect, MissingPart, PartId, PartNeed, PartTarget};

use super::convert::UnitWriter;
use super::matcher::translate;
use super::model::{MatchMethod, NorconexFilter, NorconexFilterKind, TextMatcher};

/// The stage of a list of filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilterStage {
    Reference,
    Metadata,
    Document,
}

/// The context of the filters of a crawler.
#[derive(Clone, Debug, Default)]
pub(super) struct HeaderNames {
    /// The prefix of the names under which headers are stored.
    pub prefix: Option<String>,
}

/// A filter as a condition, with the stage of its facts.
struct FilterCondition {
    condition: ConditionDraft,
    need: PartNeed,
    assumption: Option<(String, AssumptionEffect)>,
}

impl UnitWriter<'_, '_> {
    /// Converts a list of filters: each that excludes is a rule, those that include are one rule together.
    pub(super) fn write_filters(
        &mut self,
        filters: &[NorconexFilter],
        stage: FilterStage,
        names: &HeaderNames,
    ) -> Vec<RuleItem> {
        let translated: Vec<_> = filters
            .iter()
            .map(|filter| (filter, self.translate_filter(filter, stage, names)))
            .collect();
        let includes = translated
            .iter()
            .filter(|(filter, result)| !filter.excludes && result.is_ok());
        let has_includes = includes.count() > 0;
        let include_id = has_includes.then(|| self.ids.next(stage.include_id()));
        let mut rules = Vec::new();
        let mut included = Vec::new();
        let mut place = None;
        for (filter, result) in translated {
            match result {
                Ok(condition) if filter.excludes => {
                    let id = self.ids.next(&format!("{}-{}", filter.class, filter.line));
                    self.set_converted(filter, &id, &condition);
                    let rule = stage.excluding_rule(id, condition.condition);
                    rules.push(rule.with_about(filter.comment.clone()).into());
                }
                Ok(condition) => {
                    if let Some(id) = &include_id {
                        self.set_converted(filter, id, &condition);
                    }
                    place.get_or_insert(rules.len());
                    included.push((filter, condition.condition));
                }
                Err(why) if filter.excludes && never_fits(filter) => {
                    for part in filter.parts.iter().chain(&filter.unknown) {
                        self.report.dead(*part, &*why);
                    }
                    let comment = format!("dead: line {}: {}: {why}", filter.line, filter.class);
                    rules.push(RuleItem::Comment(comment));
                }
                Err(why) => {
                    let comment = self.set_not_converted(filter, &why, has_includes);
                    rules.push(RuleItem::Comment(comment));
                }
            }
        }
        if let (Some(id), Some(place)) = (include_id, place) {
            rules.insert(place, include_rule(id, &included, stage).into());
        }
        rules
    }

    fn set_converted(&mut self, filter: &NorconexFilter, id: &str, condition: &FilterCondition) {
        for part in &filter.parts {
            match &condition.assumption {
                Some((assumption, effect)) => {
                    let target = PartTarget {
                        name: id.to_owned(),
                        need: condition.need,
                    };
                    self.report.assumed(*part, target, assumption, *effect);
                }
                None => self.report.converted(*part, id, condition.need),
            }
        }
        for part in dead_extensions(filter) {
            self.report.dead(part, DOTTED);
        }
        for part in &filter.unknown {
            let failure = if filter.excludes {
                MissingPart::LetsThrough
            } else {
                MissingPart::KeepsOut
            };
            self.report
                .not_converted(*part, UNKNOWN_SETTING, failure, None);
        }
    }

    fn set_not_converted(
        &mut self,
        filter: &NorconexFilter,
        why: &str,
        has_includes: bool,
    ) -> String {
        let failure = if !filter.excludes && has_includes {
            MissingPart::KeepsOut
        } else {
            MissingPart::LetsThrough
        };
        let instead = if filter.excludes {
            "a rule with `forbid`"
        } else {
            "a condition in the rule with `require`"
        };
        for part in filter.parts.iter().chain(&filter.unknown) {
            self.report
                .not_converted(*part, why, failure, Some(instead));
        }
        let action = if filter.excludes {
            "exclude"
        } else {
            "include"
        };
        format!(
            "not converted: line {}: {} ({action}): {why}",
            filter.line, filter.class
        )
    }

    fn translate_filter(
        &self,
        filter: &NorconexFilter,
        stage: FilterStage,
        names: &HeaderNames,
    ) -> Result<FilterCondition, String> {
        match &filter.kind {
            NorconexFilterKind::Reference(matcher) => reference_condition(matcher),
            NorconexFilterKind::Extension {
                extensions,
                ignore_case,
                ..
            } => extension_condition(extensions, *ignore_case),
            NorconexFilterKind::Segments {
                count,
                duplicate,
                separator,
            } => segment_condition(*count, *duplicate, separator),
            NorconexFilterKind::Metadata { .. } if stage == FilterStage::Reference => {
                Err("metadata is not known before the fetch, so it does nothing there".to_owned())
            }
            NorconexFilterKind::Metadata { field, value } => {
                metadata_condition(field, value, names)
            }
            NorconexFilterKind::Unknown => Err(format!("the class {} is not known", filter.class)),
        }
    }
}

impl FilterStage {
    fn include_id(self) -> &'static str {
        match self {
            Self::Reference => "referenceFilters-include",
            Self::Metadata => "metadataFilters-include",
            Self::Document => "documentFilters-include",
        }
    }

    /// A page that a document filter refuses gives its links; others are not fetched, or not passed on.
    fn excluding_rule(self, id: String, condition: ConditionDraft) -> RuleDraft {
        match self {
            Self::Reference | Self::Metadata => RuleDraft::forbid(id, condition),
            Self::Document => links_only(id, GuardDraft::When(condition)),
        }
    }
}

fn links_only(id: String, guard: GuardDraft) -> RuleDraft {
    let mut group = GroupDraft {
        guard,
        then: Some("exclude-but-scan"),
        ..GroupDraft::default()
    };
    group.set.set("enforce_index", "strip");
    RuleDraft::group(id, group)
}

fn include_rule(
    id: String,
    included: &[(&NorconexFilter, ConditionDraft)],
    stage: FilterStage,
) -> RuleDraft {
    let conditions = included.iter().map(|(_, condition)| condition.clone());
    let condition = ConditionDraft::any(conditions.collect());
    let mut rule = match stage {
        FilterStage::Reference | FilterStage::Metadata => RuleDraft::require(id, condition),
        FilterStage::Document => links_only(id, GuardDraft::Unless(condition)),
    };
    let lines = included.iter().map(|(filter, _)| filter.line.to_string());
    let lines: Vec<String> = lines.collect();
    let word = if lines.len() == 1 { "line" } else { "lines" };
    rule.notes
        .push(format!("onMatch=\"include\": {word} {}", lines.join(", ")));
    let comments = included
        .iter()
        .filter_map(|(filter, _)| filter.comment.as_deref());
    let comments: Vec<&str> = comments.collect();
    if !comments.is_empty() {
        rule.about = Some(comments.join("; "));
    }
    rule
}

fn found(condition: ConditionDraft, need: PartNeed) -> FilterCondition {
    FilterCondition {
        condition,
        need,
        assumption: None,
    }
}

fn reference_condition(matcher: &TextMatcher) -> Result<FilterCondition, String> {
    if matcher.pattern.trim().is_empty() {
        return Ok(found(ConditionDraft::Always, PartNeed::Url));
    }
    let translated = translate(matcher, "url")?;
    Ok(FilterCondition {
        condition: translated.condition,
        need: PartNeed::Url,
        assumption: translated.assumption,
    })
}

/// The extension is what follows the last dot of the last segment, so one with a dot never fits.
fn extension_condition(
    extensions: &[String],
    ignore_case: bool,
) -> Result<FilterCondition, String> {
    if extensions.is_empty() {
        return Ok(found(ConditionDraft::Always, PartNeed::Url));
    }
    if let Some(variable) = extensions
        .iter()
        .find_map(|extension| super::matcher::unresolved_variable(extension))
    {
        return Err(format!("the variable `{variable}` is not known"));
    }
    let possible = extensions.iter().filter(|extension| is_possible(extension));
    let possible: Vec<&str> = possible.map(String::as_str).collect();
    if possible.is_empty() {
        return Err(DOTTED.to_owned());
    }
    let dotted = extensions.iter().find(|extension| !is_possible(extension));
    let assumption = dotted.map(|dotted| {
        let text = format!("`{dotted}` is not to fit: {DOTTED}");
        (text, AssumptionEffect::Either)
    });
    let condition = if ignore_case {
        ConditionDraft::is("ext", possible)
    } else {
        let suffixes = possible.iter().map(|extension| format!(".{extension}"));
        ConditionDraft::test("path", "suffix", suffixes)
    };
    Ok(FilterCondition {
        assumption,
        ..found(condition, PartNeed::Url)
    })
}

const UNKNOWN_SETTING: &str =
    "no filter of Norconex is known to have this setting, or this value of it";
const DOTTED: &str = "an extension is what follows the last dot, so one with a dot never fits";

fn is_possible(extension: &str) -> bool {
    !extension.contains(['.', '/'])
}

/// Returns `true` for a filter all of whose extensions have a dot.
fn never_fits(filter: &NorconexFilter) -> bool {
    match &filter.kind {
        NorconexFilterKind::Extension { extensions, .. } => {
            !extensions.is_empty() && !extensions.iter().any(|extension| is_possible(extension))
        }
        NorconexFilterKind::Reference(_)
        | NorconexFilterKind::Segments { .. }
        | NorconexFilterKind::Metadata { .. }
        | NorconexFilterKind::Unknown => false,
    }
}

/// Returns the parts that have extensions that never fit, and no others.
fn dead_extensions(filter: &NorconexFilter) -> Vec<PartId> {
    let NorconexFilterKind::Extension {
        extensions, parts, ..
    } = &filter.kind
    else {
        return Vec::new();
    };
    let words = || extensions.iter().zip(parts);
    let is_live = |part: &PartId| words().any(|(word, other)| other == part && is_possible(word));
    let dead = words().map(|(_, part)| *part);
    dead.filter(|part| *part != filter.part && !is_live(part))
        .collect()
}

fn segment_condition(
    count: u32,
    duplicate: bool,
    separator: &str,
) -> Result<FilterCondition, String> {
    if separator != "/" {
        return Err(format!(
            "segments are counted between slashes, not between `{separator}`"
        ));
    }
    if count == 0 {
        return Ok(found(ConditionDraft::Always, PartNeed::Url));
    }
    let kind = if duplicate { "repeats" } else { "segments" };
    let condition = ConditionDraft::test("path", kind, [format!("[{count}:]")]);
    Ok(found(condition, PartNeed::Url))
}

fn metadata_condition(
    field: &TextMatcher,
    value: &TextMatcher,
    names: &HeaderNames,
) -> Result<FilterCondition, String> {
    if field.pattern.trim().is_empty() || value.pattern.trim().is_empty() {
        return Ok(found(ConditionDraft::Always, PartNeed::Response));
    }
    if field.partial || field.negate || field.unsupported.is_some() {
        return Err("a policy names each header".to_owned());
    }
    let fields: Vec<&str> = match field.method {
        MatchMethod::Basic => vec![field.pattern.trim()],
        MatchMethod::Csv => field.pattern.split(',').map(str::trim).collect(),
        MatchMethod::Wildcard | MatchMethod::Regex => {
            return Err("a policy names each header, and has no pattern for names".to_owned());
        }
    };
    let mut conditions = Vec::new();
    let mut need = PartNeed::Url;
    let mut assumption = None;
    for name in fields {
        let (field, is_header) = field_of(name, names)?;
        let translated = translate(value, &field)?;
        let mut condition = translated.condition;
        if is_header {
            need = PartNeed::Response;
            if fits_empty(value) {
                // A header that is absent has no value that could fit.
                let absent = ConditionDraft::is(&field, [""]);
                condition = ConditionDraft::all(vec![condition, absent.negated()]);
            }
        }
        assumption = assumption.or(translated.assumption);
        conditions.push(condition);
    }
    Ok(FilterCondition {
        condition: ConditionDraft::any(conditions),
        need,
        assumption,
    })
}

/// Returns the field of a policy for one of metadata, and `true` if it may be absent.
fn field_of(name: &str, names: &HeaderNames) -> Result<(String, bool), String> {
    match name {
        "document.contentType" | "collector.content-type" => {
            return Ok(("content_type".to_owned(), true));
        }
        "document.reference" => return Ok(("url".to_owned(), false)),
        _ => {}
    }
    let is_own = ["document.", "collector.", "crawler.", "importer."]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    if is_own {
        return Err(format!("the field {name} is the crawler's own"));
    }
    let header = match &names.prefix {
        Some(prefix) => name
            .strip_prefix(prefix.as_str())
            .ok_or_else(|| format!("headers are stored as {prefix}…, so {name} is none"))?,
        None => name,
    };
    let is_token = !header.is_empty()
        && header
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c));
    if !is_token {
        return Err(format!("{name} is no name of a header"));
    }
    Ok((format!("header.{header}"), true))
}

/// Returns `true` if the value of an absent header, which is empty in a policy, would fit.
fn fits_empty(matcher: &TextMatcher) -> bool {
    let fits = match matcher.method {
        MatchMethod::Basic | MatchMethod::Csv => false,
        MatchMethod::Wildcard => matcher.pattern.chars().all(|c| c == '*'),
        MatchMethod::Regex => {
            let regex = Regex::new(&format!("^(?:{})$", matcher.pattern));
            regex.is_ok_and(|regex| regex.is_match("").unwrap_or(true))
        }
    };
    fits != matcher.negate
}
