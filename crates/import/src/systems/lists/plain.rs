//! Lists of domains, hosts and SURTs.

use std::collections::HashSet;

use crate::draft::ConditionDraft;
use crate::input::SourceText;
use crate::reference::lists::EvaluatedList;
use crate::report::PartNeed;
use crate::systems::heritrix::surts::{self, SurtCondition, SurtLine};

use super::ListImport;
use super::format::{is_domain, is_host_name};

/// Names that hosts files give to the machine itself.
const LOCAL_NAMES: [&str; 12] = [
    "localhost",
    "localhost.localdomain",
    "local",
    "broadcasthost",
    "ip6-localhost",
    "ip6-loopback",
    "ip6-localnet",
    "ip6-mcastprefix",
    "ip6-allnodes",
    "ip6-allrouters",
    "ip6-allhosts",
    "0.0.0.0",
];

impl ListImport {
    pub(super) fn add_domains(&mut self, name: &str, source: &SourceText) {
        let list = format!("lists.{name}");
        let mut items = Vec::new();
        let mut known = HashSet::new();
        for (place, line) in source.lines() {
            let text = line.split('#').next().unwrap_or_default().trim();
            if text.is_empty() {
                continue;
            }
            let part = self.report.add(place, line.trim());
            let domain = text
                .strip_prefix("*.")
                .or_else(|| text.strip_prefix('.'))
                .unwrap_or(text);
            let domain = domain.to_lowercase();
            if !is_domain(text)
                || !is_host_name(&domain)
                || ends_in_number(&domain) && domain.parse::<std::net::Ipv4Addr>().is_err()
            {
                self.report
                    .dead(part, "not the name of a domain: no host has it");
            } else if !known.insert(domain.clone()) {
                self.report.dead(part, "the domain is in the list already");
            } else {
                self.report.converted(part, &list, PartNeed::Host);
                items.push(domain);
            }
        }
        self.sources.push(EvaluatedList::Domains(items.clone()));
        self.add_host_list(name, "domains", items);
    }

    pub(super) fn add_hosts(&mut self, name: &str, source: &SourceText) {
        let list = format!("lists.{name}");
        let mut items = Vec::new();
        let mut known = HashSet::new();
        for (place, line) in source.lines() {
            let text = line.split('#').next().unwrap_or_default().trim();
            if text.is_empty() {
                continue;
            }
            let part = self.report.add(place, line.trim());
            let mut words = text.split_whitespace();
            let address = words
                .next()
                .and_then(|word| word.parse::<std::net::IpAddr>().ok());
            let is_sink = address.is_some_and(|ip| ip.is_loopback() || ip.is_unspecified());
            if !is_sink {
                self.report
                    .unrelated(part, "the address of a host, not one that is blocked");
                continue;
            }
            let names = words.map(str::to_lowercase);
            let names = names.filter(|name| {
                is_domain(name)
                    && is_host_name(name)
                    && !ends_in_number(name)
                    && !LOCAL_NAMES.contains(&name.as_str())
            });
            let names: Vec<String> = names.filter(|name| known.insert(name.clone())).collect();
            if names.is_empty() {
                self.report.unrelated(
                    part,
                    "names of this machine, or names that are listed already",
                );
            } else {
                self.report.converted(part, &list, PartNeed::Host);
                items.extend(names);
            }
        }
        self.sources.push(EvaluatedList::Hosts(items.clone()));
        self.add_host_list(name, "hosts", items);
    }

    fn add_host_list(&mut self, name: &str, kind: &'static str, items: Vec<String>) {
        let Some(first) = items.first().cloned() else {
            self.add_note(format!("{name}: no items"));
            return;
        };
        self.add_example(format!("http://{first}/"));
        let list = self.add_list(name, kind, items);
        let id = self.ids.next(name);
        self.add_rule(id, ConditionDraft::is("in", [list]), None);
    }

    /// Adds SURTs. As in Heritrix, the case of paths does not matter.
    pub(super) fn add_surts(&mut self, name: &str, source: &SourceText) {
        let id = self.ids.next(name);
        let (mut hosts, mut paths) = (Vec::new(), Vec::new());
        let mut known = Vec::new();
        for (place, line) in source.lines() {
            let Some(surt) = SurtLine::read(line) else {
                continue;
            };
            let part = self.report.add(place, line.trim());
            let need = match surts::condition_of(surt) {
                Err(why) => {
                    self.report.dead(part, why);
                    continue;
                }
                Ok(SurtCondition::Host(surt)) => {
                    hosts.push(surt);
                    PartNeed::Host
                }
                Ok(SurtCondition::Path(path)) => {
                    paths.push(format!("{}*", path.replace('*', "\\*")));
                    PartNeed::Url
                }
            };
            self.report.converted(part, &id, need);
            known.push(line.trim().to_owned());
        }
        let sample = known.first().and_then(|line| SurtLine::read(line));
        let sample = sample.and_then(|line| surts::condition_of(line).ok());
        if let Some(url) = sample.as_ref().and_then(surts::sample) {
            self.add_example(url);
        }
        self.sources.push(EvaluatedList::Surts(known));
        let mut parts = Vec::new();
        if !hosts.is_empty() {
            let list = self.add_list(name, "surts", hosts);
            parts.push(ConditionDraft::is("in", [list]));
        }
        if !paths.is_empty() {
            let list = self.add_list(&format!("{name}-paths"), "globs", paths);
            let test = ConditionDraft::test("authority_path_query", "in", [list]);
            parts.push(test.ignoring_case(true));
        }
        if parts.is_empty() {
            self.add_note(format!("{name}: no items"));
            return;
        }
        self.add_rule(id, ConditionDraft::any(parts), None);
    }
}

fn ends_in_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    last.bytes().all(|byte| byte.is_ascii_digit())
}
