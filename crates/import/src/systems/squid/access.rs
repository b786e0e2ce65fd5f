//! Conversion of the access lines: the first that fits decides, without one the opposite of the last.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::draft::{
    ConditionDraft, GroupDraft, PolicyDraft, RuleDraft, RuleIds, RuleItem, to_slug,
};
use crate::report::{AssumptionEffect, MissingPart, PartNeed, PartTarget, Report};
use crate::settings::{CrawlerProposal, SettingsDraft};
use crate::systems::squid::acl::{AclConverter, CONNECT_IS_HTTPS, ConvertedAcl, Term, is_everyone};
use crate::systems::squid::network::SquidRange;
use crate::systems::squid::{AccessLine, SquidAcl, SquidSource, sample};

pub(super) fn convert(
    source: &SquidSource,
    policy: &mut PolicyDraft,
    settings: &mut SettingsDraft,
    report: &mut Report,
) {
    let used = used_acls(source);
    let crawlers = crawlers_of(source, &used);
    let mut converter = AccessConverter {
        source,
        acls: AclConverter::new(source, &crawlers),
        ids: RuleIds::default(),
        report,
        uses: BTreeMap::new(),
    };
    let (disposition, note) = converter.disposition();
    policy
        .options
        .set_with_note("disposition", disposition, note);
    policy.rules = converter.requests();
    let replies = converter.replies();
    policy.rules.extend(replies);
    let uses = std::mem::take(&mut converter.uses);
    policy.lists = std::mem::take(&mut converter.acls.lists);
    report_acls(source, &uses, &used, report);
    add_crawlers(source, &crawlers, settings);
    let names = settings.crawlers.iter();
    let names: Vec<String> = names.map(|crawler| crawler.name.clone()).collect();
    policy.examples = sample::samples(source, &names);
}

/// Returns the names of the `acl`s that access lines use.
fn used_acls(source: &SquidSource) -> BTreeSet<&str> {
    let lines = source.requests.iter().chain(&source.replies);
    let uses = lines.flat_map(|line| &line.acls);
    uses.map(|acl| acl.name.as_str()).collect()
}

/// Returns the ranges of addresses of a `src` acl, if all its values are addresses and not everyone's.
fn client_ranges(acl: &SquidAcl) -> Option<Vec<SquidRange>> {
    if acl.kind != "src" || acl.problem.is_some() {
        return None;
    }
    let ranges = acl.values.iter().map(|value| {
        let ranges = SquidRange::parse(&value.text);
        ranges.filter(|_| !is_everyone(&value.text))
    });
    let ranges: Option<Vec<Vec<SquidRange>>> = ranges.collect();
    ranges.map(|ranges| ranges.concat())
}

/// Returns the crawlers whose requests fit each `acl` about clients, by the name of the `acl`.
///
/// A client is one crawler, that of the smallest network. So an `acl` also has the crawlers whose networks
/// lie within its own.
pub(super) fn crawlers_of(
    source: &SquidSource,
    used: &BTreeSet<&str>,
) -> BTreeMap<String, Vec<String>> {
    let acls: Vec<&SquidAcl> = source
        .acls
        .iter()
        .filter(|acl| used.contains(acl.name.as_str()))
        .collect();
    let mut found = BTreeMap::new();
    for acl in &acls {
        if acl.kind == "proxy_auth" && acl.problem.is_none() {
            let users = acl.values.iter().filter(|value| value.text != "REQUIRED");
            let names: Vec<String> = users.map(|user| to_slug(&user.text)).collect();
            if !names.is_empty() {
                found.insert(acl.name.clone(), names);
            }
        }
        let Some(ranges) = client_ranges(acl).filter(|ranges| !ranges.is_empty()) else {
            continue;
        };
        let mut names = vec![to_slug(&acl.name)];
        for other in &acls {
            let inner = client_ranges(other).filter(|inner| !inner.is_empty());
            let is_within = inner.is_some_and(|inner| {
                other.name != acl.name
                    && inner
                        .iter()
                        .all(|one| ranges.iter().any(|range| range.contains(*one)))
            });
            if is_within {
                names.push(to_slug(&other.name));
            }
        }
        names.sort();
        names.dedup();
        found.insert(acl.name.clone(), names);
    }
    found
}

fn add_crawlers(
    source: &SquidSource,
    crawlers: &BTreeMap<String, Vec<String>>,
    settings: &mut SettingsDraft,
) {
    for acl in source
        .acls
        .iter()
        .filter(|acl| crawlers.contains_key(&acl.name))
    {
        let note = acl.about.clone();
        match client_ranges(acl) {
            Some(ranges) => {
                let networks = ranges.into_iter().flat_map(SquidRange::to_networks);
                let networks: Vec<String> = networks.collect();
                settings.crawlers.push(CrawlerProposal {
                    name: to_slug(&acl.name),
                    notes: note.into_iter().collect(),
                    keys: vec![("sources".to_owned(), json!(networks))],
                });
            }
            None => {
                for value in acl.values.iter().filter(|value| value.text != "REQUIRED") {
                    let name = to_slug(&value.text);
                    if settings.crawlers.iter().any(|crawler| crawler.name == name) {
                        continue;
                    }
                    let auth = json!({ "user": value.text, "password_hash": "made by `crawlgate password`" });
                    settings.crawlers.push(CrawlerProposal {
                        name,
                        notes: note.iter().cloned().collect(),
                        keys: vec![("auth".to_owned(), auth)],
                    });
                }
            }
        }
    }
}

/// The reason why a line is dead.
const NEVER: &str = "it fits no request of a crawler";

/// The assumption about `http_reply_access` without `ssl_bump`.
const REPLIES_OF_HTTP: &str =
    "it is meant for responses of https as well, which squid without ssl_bump does not see";

struct AccessConverter<'a> {
    source: &'a SquidSource,
    acls: AclConverter<'a>,
    ids: RuleIds,
    report: &'a mut Report,
    /// The outcome of each `acl`: a rule or a list, or the reason why it did not.
    uses: BTreeMap<String, Result<PartTarget, (String, MissingPart)>>,
}

/// An access line as conditions.
struct ConvertedAccess<'a> {
    line: &'a AccessLine,
    id: String,
    /// Tests of what is known at the request; empty if there is none.
    request: Vec<ConditionDraft>,
    /// Tests of the address.
    address: Vec<ConditionDraft>,
    /// With `ssl_bump`: the line is about tunnels that are intercepted.
    connect: bool,
}

impl ConvertedAccess<'_> {
    fn condition(&self) -> ConditionDraft {
        let mut parts = self.request.clone();
        parts.extend(self.address.iter().cloned());
        all_of(parts)
    }

    /// Returns `true` if it fits every request.
    fn is_always(&self) -> bool {
        self.request.is_empty() && self.address.is_empty() && !self.connect
    }
}

fn all_of(parts: Vec<ConditionDraft>) -> ConditionDraft {
    if parts.is_empty() {
        ConditionDraft::Always
    } else {
        ConditionDraft::all(parts)
    }
}

/// An access line, or a comment in the place of one that is not converted.
enum LineItem<'a> {
    Line(ConvertedAccess<'a>),
    Comment(String),
}

impl<'a> AccessConverter<'a> {
    /// Returns the outcome for requests that no line fits: the opposite of the last line.
    fn disposition(&self) -> (&'static str, Option<String>) {
        let lines = &self.source.requests;
        let (allows, note) = match lines.last() {
            None => (
                false,
                "no http_access line: squid refuses everything".to_owned(),
            ),
            Some(last) if is_all(last) => {
                let number = self.line_number(last);
                (last.allows, format!("line {number}: the last one, for all"))
            }
            Some(last) => {
                let number = self.line_number(last);
                (
                    !last.allows,
                    format!("the opposite of the last line ({number})"),
                )
            }
        };
        (if allows { "allow" } else { "disallow" }, Some(note))
    }

    fn line_number(&self, line: &AccessLine) -> u32 {
        let part = self.report.part(line.part);
        part.map_or(0, |part| part.place.line)
    }

    fn requests(&mut self) -> Vec<RuleItem> {
        let mut lines: &[AccessLine] = &self.source.requests;
        if let Some((last, others)) = lines.split_last()
            && is_all(last)
        {
            self.report
                .converted(last.part, "disposition", PartNeed::Host);
            lines = others;
        }
        let items: Vec<LineItem<'_>> = lines
            .iter()
            .filter_map(|line| self.convert_line(line, false))
            .collect();
        let default_refuses = self.disposition().0 == "disallow";
        let mut rules = Vec::new();
        let mut filters = Vec::new();
        let converted: Vec<&ConvertedAccess<'_>> = items
            .iter()
            .filter_map(|item| match item {
                LineItem::Line(line) => Some(line),
                LineItem::Comment(_) => None,
            })
            .collect();
        let mut index = 0;
        for item in &items {
            match item {
                LineItem::Comment(text) => rules.push(RuleItem::Comment(text.clone())),
                LineItem::Line(line) => {
                    let before = converted.get(..index).unwrap_or_default();
                    index += 1;
                    let after = converted.get(index..).unwrap_or_default();
                    match (line.address.is_empty(), line.line.allows) {
                        (true, _) => rules.extend(request_rule(line, before)),
                        (false, false) => filters.push(address_filter(line, before)),
                        (false, true) => {
                            rules.extend(request_rule(line, before));
                            filters.push(address_guard(line, before, after, default_refuses));
                        }
                    }
                }
            }
        }
        let mut result = Vec::new();
        let is_rule = |item: &RuleItem| matches!(item, RuleItem::Rule(_));
        if !rules.iter().any(is_rule) {
            result.append(&mut rules);
        } else {
            let group = GroupDraft {
                first: true,
                rules,
                ..GroupDraft::default()
            };
            result.push(RuleDraft::group(self.ids.next("http_access"), group).into());
        }
        result.extend(filters.into_iter().map(RuleItem::from));
        result
    }

    /// Converts `http_reply_access`: a filter for each line that refuses, except for what lines before it
    /// allow.
    fn replies(&mut self) -> Vec<RuleItem> {
        let lines = &self.source.replies;
        let Some(last) = lines.last() else {
            return Vec::new();
        };
        // Lines after one for all are never reached; that line itself needs no filter if it allows.
        let mut rules = Vec::new();
        let mut allowing: Vec<ConditionDraft> = Vec::new();
        let mut pending = Vec::new();
        for line in lines {
            match self.convert_line(line, true) {
                None => {}
                Some(LineItem::Comment(text)) => rules.push(RuleItem::Comment(text)),
                Some(LineItem::Line(converted)) if line.allows => {
                    allowing.push(converted.condition());
                    pending.push(line);
                }
                Some(LineItem::Line(converted)) => {
                    rules.push(reply_filter(&converted, &allowing).into());
                    pending.clear();
                }
            }
        }
        if last.allows && !is_all(last) {
            let id = self.ids.next("reply-default");
            let about = "the opposite of the last line of http_reply_access".to_owned();
            let mut rest = RuleDraft::require(id.as_str(), ConditionDraft::any(allowing));
            rest.stage = Some("response");
            rules.push(rest.with_about(Some(about)).into());
            for line in lines.iter().filter(|line| line.allows) {
                if !self.report.is_converted(line.part) {
                    continue;
                }
                if self.source.bumps {
                    self.report
                        .converted(line.part, id.as_str(), PartNeed::Response);
                } else {
                    let target = PartTarget {
                        name: id.clone(),
                        need: PartNeed::Response,
                    };
                    let effect = AssumptionEffect::RefusesMore;
                    self.report
                        .assumed(line.part, target, REPLIES_OF_HTTP, effect);
                }
            }
        } else {
            for line in pending {
                let why = "no line of http_reply_access after it refuses anything";
                self.report.dead(line.part, why);
            }
        }
        rules
    }

    fn convert_line(&mut self, line: &'a AccessLine, reply: bool) -> Option<LineItem<'a>> {
        let mut converted = Vec::new();
        for acl in &line.acls {
            match self.acls.convert(&acl.name) {
                Ok(found) => converted.push((acl.negated, found)),
                Err(why) => return Some(self.not_converted(line, &why)),
            }
        }
        let mut result = ConvertedAccess {
            line,
            id: self.ids.next(&id_of(line)),
            request: Vec::new(),
            address: Vec::new(),
            connect: false,
        };
        for (negated, acl) in &converted {
            if let Err(why) = self.add_term(&mut result, *negated, acl) {
                if why == NEVER {
                    self.report.dead(line.part, why);
                } else {
                    self.report.unrelated(line.part, why);
                }
                self.remember(
                    line,
                    &converted,
                    Err((why.to_owned(), MissingPart::OtherSetting)),
                );
                return None;
            }
        }
        if self.source.bumps && result.connect && !line.allows {
            result
                .request
                .insert(0, ConditionDraft::is("scheme", ["https"]));
        }
        let target = self.report_line(&result, &converted, reply);
        self.remember(line, &converted, Ok(target));
        Some(LineItem::Line(result))
    }

    /// Adds a term to a line. The error is the reason why the line fits no request.
    fn add_term(
        &self,
        line: &mut ConvertedAccess<'_>,
        negated: bool,
        acl: &ConvertedAcl,
    ) -> Result<(), &'static str> {
        match (&acl.term, negated) {
            (Term::Always, false) | (Term::Never | Term::Manager, true) => {}
            (Term::Always, true) | (Term::Never, false) => return Err(NEVER),
            (Term::Manager, false) => {
                return Err("it is about squid's own pages for its manager");
            }
            (Term::Connect, negated) if self.source.bumps => line.connect |= !negated,
            (Term::Connect, negated) => {
                let scheme = if negated { "http" } else { "https" };
                line.request.push(ConditionDraft::is("scheme", [scheme]));
            }
            (Term::Test(condition), negated) => {
                line.request.push(negate_if(condition, negated));
            }
            (Term::Address(condition), negated) => {
                line.address.push(negate_if(condition, negated));
            }
        }
        Ok(())
    }

    fn report_line(
        &mut self,
        line: &ConvertedAccess<'_>,
        acls: &[(bool, ConvertedAcl)],
        reply: bool,
    ) -> PartTarget {
        let needs = acls.iter().map(|(_, acl)| acl.need);
        let least = if reply {
            PartNeed::Response
        } else {
            PartNeed::Host
        };
        let target = PartTarget {
            name: line.id.clone(),
            need: needs.max().unwrap_or(least).max(least),
        };
        let mut assumptions: Vec<String> = Vec::new();
        for assumption in acls.iter().flat_map(|(_, acl)| &acl.assumptions) {
            if !assumptions.contains(assumption) {
                assumptions.push(assumption.clone());
            }
        }
        let about_connect = acls
            .iter()
            .any(|(_, acl)| matches!(acl.term, Term::Connect));
        if about_connect && !self.source.bumps {
            let assumption = CONNECT_IS_HTTPS.to_owned();
            if !assumptions.contains(&assumption) {
                assumptions.push(assumption);
            }
        }
        if reply && !self.source.bumps {
            assumptions.push(REPLIES_OF_HTTP.to_owned());
        }
        if line.connect && line.line.allows {
            assumptions.push(
                "its tunnels are intercepted, so that the other lines judge what is requested inside"
                    .to_owned(),
            );
        }
        if assumptions.is_empty() {
            self.report
                .converted(line.line.part, target.name.as_str(), target.need);
        } else {
            self.report.assumed(
                line.line.part,
                target.clone(),
                assumptions.join("; "),
                AssumptionEffect::Either,
            );
        }
        target
    }

    fn not_converted(&mut self, line: &'a AccessLine, why: &str) -> LineItem<'a> {
        let failure = if line.allows {
            MissingPart::KeepsOut
        } else {
            MissingPart::LetsThrough
        };
        self.report.not_converted(line.part, why, failure, None);
        for acl in &line.acls {
            let reason = Err((why.to_owned(), failure));
            self.uses.entry(acl.name.clone()).or_insert(reason);
        }
        let text = self.report.part(line.part).map(|part| part.text.clone());
        LineItem::Comment(format!(
            "not converted: {why}\n{}",
            text.unwrap_or_default()
        ))
    }

    /// Keeps what the `acl`s of a line became. A list or a rule counts more than a reason.
    fn remember(
        &mut self,
        line: &AccessLine,
        acls: &[(bool, ConvertedAcl)],
        outcome: Result<PartTarget, (String, MissingPart)>,
    ) {
        for (used, (_, acl)) in line.acls.iter().zip(acls) {
            let outcome = match (acl.lists.first(), &outcome) {
                (Some(list), Ok(target)) => Ok(PartTarget {
                    name: format!("lists.{list}"),
                    need: target.need,
                }),
                _ => outcome.clone(),
            };
            let known = self.uses.get(&used.name);
            if known.is_none_or(Result::is_err) {
                self.uses.insert(used.name.clone(), outcome);
            }
        }
    }
}

fn negate_if(condition: &ConditionDraft, negated: bool) -> ConditionDraft {
    if negated {
        condition.clone().negated()
    } else {
        condition.clone()
    }
}

fn is_all(line: &AccessLine) -> bool {
    line.acls
        .iter()
        .all(|acl| acl.name == "all" && !acl.negated)
}

fn id_of(line: &AccessLine) -> String {
    let mut id = if line.allows { "allow" } else { "deny" }.to_owned();
    for acl in &line.acls {
        id.push_str(if acl.negated { "-not-" } else { "-" });
        id.push_str(&acl.name);
    }
    id
}

/// Creates the rule of a line that is decided at the request, by the lines before it.
fn request_rule(line: &ConvertedAccess<'_>, before: &[&ConvertedAccess<'_>]) -> Option<RuleItem> {
    // With interception a CONNECT that is allowed says nothing about the requests inside of the tunnel.
    if line.connect && line.line.allows {
        let text = format!(
            "{}: allows tunnels; the requests inside are judged by the other lines",
            line.id
        );
        return Some(RuleItem::Comment(text));
    }
    let mut request = line.request.clone();
    if line.connect {
        for allowed in before
            .iter()
            .filter(|other| other.connect && other.line.allows)
        {
            request.push(all_of(allowed.request.clone()).negated());
        }
    }
    let then = if line.line.allows {
        "allow"
    } else {
        "disallow"
    };
    let rule = RuleDraft::when(line.id.as_str(), all_of(request), then);
    Some(rule.with_about(line.line.about.clone()).into())
}

/// Returns the conditions under which none of the lines before one has allowed the request.
fn not_allowed_before(before: &[&ConvertedAccess<'_>]) -> Vec<ConditionDraft> {
    let allowing = before
        .iter()
        .filter(|line| line.line.allows && !line.connect);
    let conditions: Vec<ConditionDraft> = allowing.map(|line| line.condition()).collect();
    match conditions.is_empty() {
        true => Vec::new(),
        false => vec![ConditionDraft::any(conditions).negated()],
    }
}

/// Creates the filter of a line that refuses by the address.
fn address_filter(line: &ConvertedAccess<'_>, before: &[&ConvertedAccess<'_>]) -> RuleDraft {
    let mut parts = line.request.clone();
    parts.extend(line.address.iter().cloned());
    parts.extend(not_allowed_before(before));
    RuleDraft::forbid(line.id.as_str(), all_of(parts)).with_about(line.line.about.clone())
}

/// Creates the filter that takes back what a line allows by the address, where the address is another one.
fn address_guard(
    line: &ConvertedAccess<'_>,
    before: &[&ConvertedAccess<'_>],
    after: &[&ConvertedAccess<'_>],
    default_refuses: bool,
) -> RuleDraft {
    let mut parts = line.request.clone();
    parts.push(all_of(line.address.clone()).negated());
    parts.extend(not_allowed_before(before));
    match refused_by(after, default_refuses) {
        Some(ConditionDraft::Always) => {}
        Some(refused) => parts.push(refused),
        // Nothing after it refuses: the filter never holds.
        None => parts.push(ConditionDraft::Always.negated()),
    }
    let id = format!("{}-address", line.id);
    let about = "the address must be one of those above".to_owned();
    RuleDraft::forbid(id, all_of(parts)).with_about(Some(about))
}

/// Returns the condition under which lines refuse a request; `None` if they never do.
fn refused_by(lines: &[&ConvertedAccess<'_>], default_refuses: bool) -> Option<ConditionDraft> {
    let mut refused = default_refuses.then_some(ConditionDraft::Always);
    for line in lines
        .iter()
        .rev()
        .filter(|line| !(line.connect && line.line.allows))
    {
        let fits = line.condition();
        refused = match (line.line.allows, refused) {
            (true, None) => None,
            (true, Some(ConditionDraft::Always)) => Some(fits.negated()),
            (true, Some(rest)) => Some(ConditionDraft::all(vec![fits.negated(), rest])),
            (false, _) if line.is_always() => Some(ConditionDraft::Always),
            (false, Some(ConditionDraft::Always)) => Some(ConditionDraft::Always),
            (false, None) => Some(fits),
            (false, Some(rest)) => Some(ConditionDraft::any(vec![fits, rest])),
        };
    }
    refused
}

/// Creates the filter of a line of `http_reply_access` that refuses.
fn reply_filter(line: &ConvertedAccess<'_>, allowing: &[ConditionDraft]) -> RuleDraft {
    let mut parts = line.request.clone();
    parts.extend(line.address.iter().cloned());
    if !allowing.is_empty() {
        parts.push(ConditionDraft::any(allowing.to_vec()).negated());
    }
    let mut rule = RuleDraft::forbid(line.id.as_str(), all_of(parts));
    rule.stage = Some("response");
    rule.with_about(line.line.about.clone())
}

/// Sets the outcome of the lines of each `acl`.
fn report_acls(
    source: &SquidSource,
    uses: &BTreeMap<String, Result<PartTarget, (String, MissingPart)>>,
    used: &BTreeSet<&str>,
    report: &mut Report,
) {
    for acl in &source.acls {
        for part in &acl.parts {
            match uses.get(&acl.name) {
                Some(Ok(target)) if looks_up(acl) => {
                    let target = PartTarget {
                        name: if target.name.starts_with("lists.") {
                            target.name.clone()
                        } else {
                            format!("{}.when", target.name)
                        },
                        need: target.need,
                    };
                    report.assumed(
                        *part,
                        target,
                        "URLs have names of hosts (squid looks up the name of an address)",
                        AssumptionEffect::Either,
                    );
                }
                Some(Ok(target)) => {
                    report.converted(*part, target.name.as_str(), target.need);
                }
                Some(Err((why, MissingPart::OtherSetting))) => {
                    report.unrelated(*part, why.as_str());
                }
                Some(Err((why, failure))) => {
                    report.not_converted(*part, why.as_str(), *failure, None);
                }
                None if used.contains(acl.name.as_str()) => {
                    report.unrelated(*part, "the line that uses it is the disposition");
                }
                None => report.unrelated(*part, "no http_access or http_reply_access line uses it"),
            }
        }
    }
}

/// Returns `true` if squid looks up the name of an address that a URL has as its host.
fn looks_up(acl: &SquidAcl) -> bool {
    matches!(acl.kind.as_str(), "dstdomain" | "dstdom_regex") && !acl.no_lookup
}
