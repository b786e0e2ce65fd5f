//! Start URLs, and how far a crawl goes away from them.

use std::collections::BTreeSet;

use crate::draft::{ConditionDraft, RuleDraft};
use crate::report::{AssumptionEffect, MissingPart, PartId, PartNeed, PartTarget};

use super::convert::UnitWriter;
use super::model::UrlScope;
use super::read::{
    SCOPE_RESOLVERS, STARTS, StartKind, is_start_url, read_scope, read_urls_file, start_kind,
};
use super::tree::Setting;

const FLAGS: [&str; 5] = [
    "stayOnDomain",
    "includeSubdomains",
    "stayOnPort",
    "stayOnProtocol",
    "stayOnSitemap",
];

impl UnitWriter<'_, '_> {
    pub(super) fn write_scope(&mut self) {
        let own: Vec<&Setting> = self.settings.clone();
        let own = own.into_iter().filter(|setting| {
            STARTS.contains(&setting.name.as_str())
                || SCOPE_RESOLVERS.contains(&setting.name.as_str())
        });
        let own: Vec<&Setting> = own.collect();
        if own.is_empty() {
            return;
        }
        let scope = read_scope(&self.effective, self.input);
        let condition = scope_condition(&scope);
        let id = condition.as_ref().map(|_| self.ids.next("scope"));
        for setting in &own {
            self.write_starts(setting, id.as_deref());
            self.write_flags(setting, &scope, id.as_deref());
        }
        if let (Some(id), Some(condition)) = (id, condition) {
            let about = "within the scope of the start URLs".to_owned();
            let rule = RuleDraft::require(id, condition).with_about(Some(about));
            self.rules.push(rule.into());
        }
    }

    /// Reports start URLs: they are the seeds of the space, and give the scope.
    fn write_starts(&mut self, setting: &Setting, scope: Option<&str>) {
        self.report.unrelated(setting.part, "a list of start URLs");
        for attribute in &setting.children {
            if !FLAGS.contains(&attribute.name.as_str()) {
                self.unrelated(attribute, "of the crawler's own start");
            }
        }
        let seeds = |part: PartId, writer: &mut Self| match scope {
            Some(id) => writer.report.converted(part, id, PartNeed::Host),
            None => writer.report.converted(part, "seeds", PartNeed::Url),
        };
        let is_list = setting.name == "startReferences" && setting.elements().next().is_none();
        if is_list && !setting.text.is_empty() {
            seeds(setting.part, self);
        }
        if !STARTS.contains(&setting.name.as_str()) {
            return;
        }
        let failure = match scope {
            Some(_) => MissingPart::KeepsOut,
            None => MissingPart::OtherSetting,
        };
        let elements: Vec<&Setting> = setting.elements().collect();
        for start in elements {
            if FLAGS.contains(&start.name.as_str()) {
                continue;
            }
            match start_kind(setting, start) {
                StartKind::Url if !is_start_url(&start.text) => {
                    let why = "not a URL of HTTP or HTTPS";
                    self.not_converted(start, why, failure, Some("--seeds FILE"));
                }
                StartKind::Url => seeds(start.part, self),
                StartKind::File if read_urls_file(&start.text, self.input).is_some() => {
                    seeds(start.part, self);
                }
                StartKind::File | StartKind::Other if self.input.seeds.is_some() => {
                    self.unrelated(start, "the start URLs were given");
                }
                StartKind::File => {
                    let why = "the file is not in the directory of the configuration";
                    self.not_converted(start, why, failure, Some("--seeds FILE"));
                }
                StartKind::Other => {
                    let why = "the start URLs are known to the crawler only";
                    self.not_converted(start, why, failure, Some("--seeds FILE"));
                }
            }
        }
    }

    fn write_flags(&mut self, setting: &Setting, scope: &UrlScope, id: Option<&str>) {
        let assumption = scope_assumption(scope);
        for flag in &setting.children {
            if !FLAGS.contains(&flag.name.as_str()) {
                continue;
            }
            let is_set = flag.text.eq_ignore_ascii_case("true");
            match (flag.name.as_str(), is_set, id) {
                (_, false, _) => self.unrelated(flag, "off"),
                ("stayOnSitemap", true, _) => {
                    let why = "the sitemap is known to the crawler only";
                    self.not_converted(flag, why, MissingPart::LetsThrough, None);
                }
                ("includeSubdomains", true, _) if scope.stay_on_domain.is_none() => {
                    self.unrelated(flag, "without stayOnDomain it does nothing");
                }
                (_, true, Some(id)) => match assumption {
                    Some(assumption) => {
                        let target = PartTarget {
                            name: id.to_owned(),
                            need: PartNeed::Host,
                        };
                        let effect = AssumptionEffect::RefusesLess;
                        self.report.assumed(flag.part, target, assumption, effect);
                    }
                    None => self.report.converted(flag.part, id, PartNeed::Host),
                },
                (_, true, None) => {
                    let why = "no start URL is known";
                    let instead = Some("--seeds FILE");
                    self.not_converted(flag, why, MissingPart::LetsThrough, instead);
                }
            }
        }
    }
}

/// Returns what the scope assumes: it counts from the start URLs, and in Norconex from the page with the link.
fn scope_assumption(scope: &UrlScope) -> Option<&'static str> {
    let sites = scope
        .starts
        .iter()
        .map(|start| (&start.scheme, &start.host, start.port));
    let sites: BTreeSet<_> = sites.collect();
    let is_one_site = sites.len() == 1 && scope.include_subdomains.is_none();
    (!is_one_site).then_some(
        "a link from one site of the scope to another is followed, too; Norconex compares it with the page \
         that has the link",
    )
}

/// Returns the condition of the scope; `None` if the crawl may go anywhere.
fn scope_condition(scope: &UrlScope) -> Option<ConditionDraft> {
    let stays = scope.stay_on_domain.is_some()
        || scope.stay_on_port.is_some()
        || scope.stay_on_protocol.is_some();
    if !stays || scope.starts.is_empty() {
        return None;
    }
    let schemes = scope.stay_on_protocol.is_some();
    let ports = scope.stay_on_port.is_some();
    let sites = scope.starts.iter().map(|start| {
        let scheme = schemes.then_some(start.scheme.as_str());
        (scheme, ports.then_some(start.port))
    });
    let sites: BTreeSet<_> = sites.collect();
    let alternatives = sites.into_iter().map(|(scheme, port)| {
        let mut parts = Vec::new();
        if scope.stay_on_domain.is_some() {
            let starts = scope.starts.iter().filter(|start| {
                scheme.is_none_or(|scheme| start.scheme == scheme)
                    && port.is_none_or(|port| start.port == port)
            });
            let mut hosts: Vec<&str> = Vec::new();
            for start in starts {
                if !hosts.contains(&start.host.as_str()) {
                    hosts.push(&start.host);
                }
            }
            let field = match scope.include_subdomains {
                Some(_) => "domain",
                None => "host",
            };
            parts.push(ConditionDraft::is(field, hosts));
        }
        parts.extend(scheme.map(|scheme| ConditionDraft::is("scheme", [scheme])));
        parts.extend(port.map(|port| ConditionDraft::is("port", [port.to_string()])));
        ConditionDraft::all(parts)
    });
    Some(ConditionDraft::any(alternatives.collect()))
}
