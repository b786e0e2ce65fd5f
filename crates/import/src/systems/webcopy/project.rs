//! The options of a project: hosts, limits, and those that are none of a policy's business.

use serde_json::json;

use crawlgate_policy::UrlTarget;

use crate::draft::{ConditionDraft, PolicyDraft, RuleDraft, RuleIds};
use crate::duration::from_millis;
use crate::input::ImportInput;
use crate::report::{AssumptionEffect, MissingPart, PartId, PartNeed, PartTarget, Report};
use crate::systems::urls::check_host;

use super::options::{MODES, NUMBERS, PROJECT_WORDS, ProjectWord, UNRELATED, WebCopyReach};
use super::source::{WebCopyDepth, WebCopyProject, WebCopyScope};
use super::tree::{NbtTag, NbtValue};
use super::words::{normalized, variable_of};

/// Converts the options of a project.
pub(super) struct ProjectConversion<'c> {
    pub report: &'c mut Report,
    pub parts: &'c [PartId],
    pub input: &'c ImportInput<'c>,
    pub policy: &'c mut PolicyDraft,
    pub ids: &'c mut RuleIds,
    pub project: WebCopyProject,
    reach: Option<WebCopyReach>,
}

impl<'c> ProjectConversion<'c> {
    pub(super) fn new(
        report: &'c mut Report,
        parts: &'c [PartId],
        input: &'c ImportInput<'c>,
        policy: &'c mut PolicyDraft,
        ids: &'c mut RuleIds,
    ) -> Self {
        Self {
            report,
            parts,
            input,
            policy,
            ids,
            project: WebCopyProject::default(),
            reach: None,
        }
    }

    /// Converts all options. `rules` is the list of rules, which is converted elsewhere, as is the link map.
    pub(super) fn convert(&mut self, root: &NbtTag, rules: Option<&NbtTag>) {
        self.own(root, |report, part| {
            report.unrelated(part, "the frame of the project");
        });
        let is_elsewhere =
            |tag: &NbtTag| rules.is_some_and(|rules| rules.index == tag.index) || is_link_map(tag);
        for tag in root.children().iter().filter(|tag| !is_elsewhere(tag)) {
            match normalized(&tag.name).as_str() {
                "uri" | "hosts" => {}
                "mode" | "crawlmode" => self.mode(tag),
                _ => self.option(tag, rules),
            }
        }
        self.scope(root);
    }

    fn all(&mut self, tag: &NbtTag, mut set: impl FnMut(&mut Report, PartId)) {
        for tag in tag.all() {
            if let Some(part) = self.parts.get(tag.index) {
                set(self.report, *part);
            }
        }
    }

    fn own(&mut self, tag: &NbtTag, set: impl FnOnce(&mut Report, PartId)) {
        if let Some(part) = self.parts.get(tag.index) {
            set(self.report, *part);
        }
    }

    fn word(&self, tag: &NbtTag) -> Option<ProjectWord> {
        let word = variable_of(tag, self.input)?;
        let found = PROJECT_WORDS.iter().find(|(name, _)| *name == word);
        found.map(|(_, word)| *word)
    }

    /// Converts the mode, which says which hosts are crawled.
    fn mode(&mut self, tag: &NbtTag) {
        let value = tag.text().map(normalized);
        let known = MODES
            .iter()
            .find(|(name, _)| Some(*name) == value.as_deref());
        let known = known.map(|(_, reach)| ProjectWord::Reach(*reach));
        match self.word(tag).or(known) {
            Some(ProjectWord::Reach(reach)) => {
                self.reach = Some(reach);
                let name = match reach {
                    WebCopyReach::Everything => "disposition",
                    WebCopyReach::Site | WebCopyReach::Subdomains | WebCopyReach::Siblings => {
                        "hosts"
                    }
                };
                self.own(tag, |report, part| {
                    report.converted(part, name, PartNeed::Host);
                });
            }
            Some(ProjectWord::Ignored) => self.own(tag, |report, part| {
                report.unrelated(part, "not about hosts, as --var says");
            }),
            Some(
                ProjectWord::MaxDepth
                | ProjectWord::MaxSize
                | ProjectWord::PerSecond
                | ProjectWord::PerMinute,
            )
            | None => {
                let value = super::words::value_text(tag).unwrap_or_default();
                let instead = format!(
                    "--var {}.{value}=WORD with site, subdomains, siblings, everything or ignore",
                    tag.name
                );
                let why = "the meaning of the number is published nowhere; only the project's own hosts are allowed";
                self.own(tag, |report, part| {
                    report.not_converted(part, why, MissingPart::KeepsOut, Some(&instead));
                });
            }
        }
    }

    fn option(&mut self, tag: &NbtTag, rules: Option<&NbtTag>) {
        let name = normalized(&tag.name);
        let word = self.word(tag).or_else(|| {
            let found = NUMBERS.iter().find(|(known, _)| *known == name);
            found.map(|(_, word)| *word)
        });
        let unrelated = UNRELATED.iter().find(|(known, _)| *known == name);
        match (word, unrelated, rules) {
            // The list of rules may be in another tag.
            (_, _, Some(rules)) if tag.all().iter().any(|it| it.index == rules.index) => {
                self.frame(tag, rules);
            }
            (Some(ProjectWord::Ignored), _, _) => {
                self.all(tag, |report, part| {
                    report.unrelated(part, "not a policy's business, as --var says");
                });
            }
            (Some(word), _, _) => self.limit(tag, word),
            (None, Some((_, why)), _) => self.all(tag, |report, part| report.unrelated(part, *why)),
            (None, None, _) => self.unknown(tag),
        }
    }

    fn frame(&mut self, tag: &NbtTag, rules: &NbtTag) {
        if tag.index == rules.index {
            return;
        }
        self.own(tag, |report, part| {
            report.unrelated(part, "the frame of the rules");
        });
        for child in tag.children() {
            self.option(child, Some(rules));
        }
    }

    fn unknown(&mut self, tag: &NbtTag) {
        let instead = format!(
            "--var {}=ignore if it is none of a policy's business, else a rule of your own",
            tag.name
        );
        let why = "an option that is not known to this importer";
        self.all(tag, |report, part| {
            report.not_converted(part, why, MissingPart::LetsThrough, Some(&instead));
        });
    }

    /// Converts a number that limits something. 0 is no limit.
    fn limit(&mut self, tag: &NbtTag, word: ProjectWord) {
        let number = match &tag.value {
            NbtValue::Integer { value, .. } => u64::try_from(*value).ok(),
            NbtValue::Real { .. }
            | NbtValue::Text(_)
            | NbtValue::Numbers { .. }
            | NbtValue::List { .. }
            | NbtValue::Compound(_) => None,
        };
        let Some(number) = number else {
            return self.unknown(tag);
        };
        if number == 0 {
            return self.own(tag, |report, part| report.unrelated(part, "no limit"));
        }
        let delay = |unit: u64| from_millis((unit / number).max(1));
        let (path, value, need) = match word {
            ProjectWord::MaxDepth => return self.depth(tag, number),
            ProjectWord::MaxSize => ("max_body", json!(format!("{number}B")), PartNeed::Response),
            ProjectWord::PerSecond => ("politeness.delay", json!(delay(1_000)), PartNeed::Url),
            ProjectWord::PerMinute => ("politeness.delay", json!(delay(60_000)), PartNeed::Url),
            ProjectWord::Ignored | ProjectWord::Reach(_) => return self.unknown(tag),
        };
        self.policy.options.set(path, value);
        let target = PartTarget {
            name: path.to_owned(),
            need,
        };
        let text = match word {
            ProjectWord::MaxSize => "the number is in bytes",
            ProjectWord::PerSecond
            | ProjectWord::PerMinute
            | ProjectWord::MaxDepth
            | ProjectWord::Ignored
            | ProjectWord::Reach(_) => "the limit holds for each host, as a policy's delay does",
        };
        self.own(tag, |report, part| {
            report.assumed(part, target, text, AssumptionEffect::Either);
        });
    }

    fn depth(&mut self, tag: &NbtTag, max: u64) {
        /// More directories than this are no limit.
        const MAX: u64 = 100;
        if max > MAX {
            return self.own(tag, |report, part| {
                report.unrelated(part, "a depth that no URL has");
            });
        }
        let Some(part) = self.parts.get(tag.index).copied() else {
            return;
        };
        let id = self.ids.next("depth");
        let target = PartTarget {
            name: id,
            need: PartNeed::Url,
        };
        let text = "a document is a last segment with a dot; other segments count as directories";
        self.report
            .assumed(part, target, text, AssumptionEffect::Either);
        self.project.depth = Some(WebCopyDepth {
            part,
            host: None,
            max,
        });
    }

    /// Converts the URI and the hosts of a project.
    fn scope(&mut self, root: &NbtTag) {
        let uri = root.get("uri");
        let main = uri.and_then(NbtTag::text).and_then(host_of);
        if let Some(depth) = &mut self.project.depth {
            depth.host.clone_from(&main);
        }
        let hosts = root.get("hosts");
        let is_everything = self.reach == Some(WebCopyReach::Everything);
        if is_everything {
            for tag in [uri, hosts].into_iter().flatten() {
                self.all(tag, |report, part| {
                    report.unrelated(part, "every host is crawled");
                });
            }
        } else {
            self.hosts(uri, main, hosts);
        }
        self.add_filters();
    }

    fn hosts(&mut self, uri: Option<&NbtTag>, main: Option<String>, hosts: Option<&NbtTag>) {
        let part = uri.and_then(|uri| self.parts.get(uri.index)).copied();
        let (Some(main), Some(part)) = (main, part) else {
            for tag in [uri, hosts].into_iter().flatten() {
                self.all(tag, |report, part| {
                    let why = "not a URL of HTTP";
                    report.not_converted(part, why, MissingPart::LetsThrough, None);
                });
            }
            return;
        };
        self.report.converted(part, "hosts", PartNeed::Host);
        let mut scope = WebCopyScope {
            part,
            main: main.clone(),
            hosts: Vec::new(),
            domains: Vec::new(),
        };
        match self.reach {
            Some(WebCopyReach::Subdomains) => scope.domains.push(main),
            Some(WebCopyReach::Siblings) => scope.domains.push(parent_of(&main)),
            Some(WebCopyReach::Site | WebCopyReach::Everything) | None => scope.hosts.push(main),
        }
        if let Some(tag) = hosts {
            self.own(tag, |report, part| {
                report.converted(part, "hosts", PartNeed::Host);
            });
            for item in tag.children() {
                self.host(item, &mut scope);
            }
        }
        self.project.scope = Some(scope);
    }

    fn host(&mut self, item: &NbtTag, scope: &mut WebCopyScope) {
        let text = item.text().unwrap_or_default().trim();
        let host = host_of(text).or_else(|| host_of(&format!("http://{text}/")));
        match host {
            Some(host) => {
                if !scope.hosts.contains(&host) {
                    scope.hosts.push(host);
                }
                self.own(item, |report, part| {
                    report.converted(part, "hosts", PartNeed::Host);
                });
            }
            None => self.own(item, |report, part| {
                let why = "not a host";
                report.not_converted(part, why, MissingPart::KeepsOut, Some("a host in `hosts`"));
            }),
        }
    }

    /// Adds the filters of scope and depth.
    fn add_filters(&mut self) {
        if let Some(scope) = &self.project.scope {
            let mut parts = Vec::new();
            if !scope.domains.is_empty() {
                parts.push(ConditionDraft::is("domain", &scope.domains));
            }
            if !scope.hosts.is_empty() {
                parts.push(ConditionDraft::is("host", &scope.hosts));
            }
            let rule = RuleDraft::require("hosts", ConditionDraft::any(parts));
            let about = "the hosts of the project".to_owned();
            self.policy.rules.push(rule.with_about(Some(about)).into());
        }
        if let Some(depth) = &self.project.depth {
            let max = depth.max;
            let deeper = ConditionDraft::test(
                "rel_path",
                "regex",
                [format!(
                    "^([^/]+/){{{}}}|^([^/]+/){{{max}}}[^/.]+$",
                    max + 1
                )],
            );
            let own = depth
                .host
                .iter()
                .map(|host| ConditionDraft::is("host", [host]));
            let condition = ConditionDraft::all(own.chain([deeper]).collect());
            self.policy
                .rules
                .push(RuleDraft::forbid("depth", condition).into());
        }
    }
}

/// Returns `true` for the list of the URLs that WebCopy has seen.
pub(super) fn is_link_map(tag: &NbtTag) -> bool {
    tag.name == "linkMap"
}

/// Returns the host of a URL of HTTP as a policy compares it.
fn host_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    // The user name and the password are not part of a request's URL.
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = rest.get(..end)?;
    let authority = authority.rsplit('@').next()?;
    let target = UrlTarget::parse(&format!("{scheme}://{authority}/")).ok()?;
    let (_, canonical) = target.as_str().split_once("://")?;
    let canonical = canonical.strip_suffix('/').unwrap_or(canonical);
    let host = match canonical.rsplit_once(':') {
        Some((host, port)) if port.chars().all(|c| c.is_ascii_digit()) => host,
        Some(_) | None => canonical,
    };
    check_host(host).ok().map(|()| host.to_owned())
}

/// Returns the domain that a host is directly below; the host itself if that is no site of its own.
fn parent_of(host: &str) -> String {
    match host.split_once('.') {
        Some((_, parent)) if parent.contains('.') && host.parse::<std::net::IpAddr>().is_err() => {
            parent.to_owned()
        }
        Some(_) | None => host.to_owned(),
    }
}
