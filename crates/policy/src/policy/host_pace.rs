//! The table `hosts` of a policy: the pace of hosts, whichever crawler requests them.
//!
//! An entry is found by one hash look-up for the host and one for each domain above it, however
//! many entries there are. It applies after the options of spaces and rules.

use std::collections::HashMap;

use super::Policy;
use super::list::texts::{PackedTexts, TextSet};
use super::options::politeness::is_pace_option;
use super::options::{Assignment, OptionEntry, OptionIndex, OptionSetter, OptionValue};

/// The index of an entry in a `HostPaceTable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPaceIndex(pub u16);

/// The hosts that a name in the table means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostScope {
    /// The host itself.
    Exact,
    /// The host and all hosts below it.
    Domain,
}

impl HostScope {
    /// Returns the key of the policy.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "host",
            Self::Domain => "domain",
        }
    }
}

/// An entry of `hosts`.
#[derive(Debug)]
pub(crate) struct HostPaceEntry {
    /// The hosts as written, which name the entry in a comparison of policies: `domain example.com`.
    pub(crate) hosts: Box<str>,
    /// The entry in explanations: `hosts.2 (policy.yaml:14:5)`.
    pub(crate) label: Box<str>,
    pub(crate) options: Box<[Assignment]>,
}

impl HostPaceEntry {
    fn value(&self, index: OptionIndex) -> Option<&OptionValue> {
        self.options
            .iter()
            .rev()
            .find(|option| option.index == index)
            .map(|option| &option.value)
    }
}

/// The entries of `hosts`, by host.
#[derive(Debug)]
pub(crate) struct HostPaceTable {
    entries: Box<[HostPaceEntry]>,
    names: TextSet,
    /// The entries of each name, by its position in `names`.
    by_name: Box<[NameEntries]>,
}

/// The entries of one name.
#[derive(Clone, Copy, Debug, Default)]
struct NameEntries {
    exact: Option<HostPaceIndex>,
    domain: Option<HostPaceIndex>,
}

impl NameEntries {
    fn scope_mut(&mut self, scope: HostScope) -> &mut Option<HostPaceIndex> {
        match scope {
            HostScope::Exact => &mut self.exact,
            HostScope::Domain => &mut self.domain,
        }
    }
}

impl HostPaceTable {
    /// Returns the most specific entry for a host: the one that names it, else that of the longest
    /// domain it belongs to.
    pub(crate) fn find(&self, host: &str) -> Option<HostPaceIndex> {
        if self.entries.is_empty() {
            return None;
        }
        let exact = self.entries_of(host).and_then(|found| found.exact);
        exact.or_else(|| self.find_domain(host))
    }

    /// Returns an entry for a name if all hosts that it means have one.
    pub(crate) fn find_for_all(&self, name: &str, scope: HostScope) -> Option<HostPaceIndex> {
        match scope {
            HostScope::Exact => self.find(name),
            HostScope::Domain => self.find_domain(name),
        }
    }

    /// Returns the entry of the longest domain that a host belongs to.
    fn find_domain(&self, host: &str) -> Option<HostPaceIndex> {
        let mut rest = host;
        loop {
            if let Some(domain) = self.entries_of(rest).and_then(|found| found.domain) {
                return Some(domain);
            }
            (_, rest) = rest.split_once('.')?;
        }
    }

    /// Returns the value that an entry itself gives an option.
    pub(crate) fn value(&self, entry: HostPaceIndex, index: OptionIndex) -> Option<&OptionValue> {
        self.get(entry)?.value(index)
    }

    pub(crate) fn get(&self, entry: HostPaceIndex) -> Option<&HostPaceEntry> {
        self.entries.get(usize::from(entry.0))
    }

    pub(crate) fn entries(&self) -> &[HostPaceEntry] {
        &self.entries
    }

    /// Returns every name with its scope and its entry, in the order of the policy.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, HostScope, HostPaceIndex)> {
        let named = self.names.texts().iter().zip(&self.by_name);
        named.flat_map(|(name, found)| {
            let exact = found.exact.map(|entry| (name, HostScope::Exact, entry));
            let domain = found.domain.map(|entry| (name, HostScope::Domain, entry));
            exact.into_iter().chain(domain)
        })
    }

    /// Returns the entry of a name with this scope.
    pub(crate) fn entry_of(&self, name: &str, scope: HostScope) -> Option<HostPaceIndex> {
        *self.entries_of(name)?.clone().scope_mut(scope)
    }

    fn entries_of(&self, name: &str) -> Option<&NameEntries> {
        self.by_name.get(self.names.position(name)?)
    }
}

/// A table under construction.
#[derive(Debug, Default)]
pub(crate) struct HostPaceTableBuilder {
    entries: Vec<HostPaceEntry>,
    names: PackedTexts,
    by_name: Vec<NameEntries>,
    positions: HashMap<Box<str>, usize>,
}

impl HostPaceTableBuilder {
    /// Adds an entry without names; `None` if there is no room for another one.
    pub(crate) fn add_entry(&mut self, entry: HostPaceEntry) -> Option<HostPaceIndex> {
        let index = u16::try_from(self.entries.len()).ok()?;
        self.entries.push(entry);
        Some(HostPaceIndex(index))
    }

    /// Adds a name of an entry. Returns the entry that has the name already, if another one has.
    pub(crate) fn add_name(
        &mut self,
        name: &str,
        scope: HostScope,
        entry: HostPaceIndex,
    ) -> Option<HostPaceIndex> {
        let position = match self.positions.get(name) {
            Some(position) => *position,
            None => {
                // The lists that the names are from are small enough together.
                if !self.names.push(name) {
                    return None;
                }
                self.by_name.push(NameEntries::default());
                let position = self.by_name.len() - 1;
                self.positions.insert(name.into(), position);
                position
            }
        };
        let slot = self.by_name.get_mut(position)?.scope_mut(scope);
        let other = slot.filter(|other| *other != entry);
        if other.is_none() {
            *slot = Some(entry);
        }
        other
    }

    pub(crate) fn build(self) -> HostPaceTable {
        HostPaceTable {
            entries: self.entries.into(),
            names: TextSet::new(self.names),
            by_name: self.by_name.into(),
        }
    }
}

impl Policy {
    /// Returns the setter and the value of an option by an entry of `hosts`; `None` if the option
    /// does not belong to the pace. The entry determines the whole pace: an option that it does not
    /// set has the document's value.
    pub(crate) fn host_pace_option(
        &self,
        entry: HostPaceIndex,
        index: OptionIndex,
    ) -> Option<(OptionSetter, &OptionValue)> {
        if !is_pace_option(index) {
            return None;
        }
        if let Some(value) = self.host_paces.value(entry, index) {
            return Some((OptionSetter::Host(entry), value));
        }
        let OptionEntry { base, set_by, .. } = self.options.get(index)?;
        Some((*set_by, base))
    }

    /// The name of an entry of `hosts` in explanations: `hosts.2 (policy.yaml:14:5)`.
    pub fn host_pace_label(&self, entry: HostPaceIndex) -> &str {
        self.host_paces.get(entry).map_or("", |entry| &entry.label)
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::Policy;
    use crate::policy::compile;
    use crate::policy::fact::Facts;
    use crate::policy::options::politeness::{PACE, PolitenessOption};
    use crate::policy::options::schema;
    use crate::policy::source::MemoryFileSystem;
    use crate::urls::target::{HostTarget, UrlTarget};

    const TEXT: &str = "
policy: 1
name: p
options: { disposition: allow, politeness: { delay: 2s, rate: 5/s, max_hold: 9s } }
lists:
  slow: { kind: domains, items: [ slow.example, b.slow.example ] }
hosts:
  - { domain: example.com, delay: 5s, concurrency: 1 }
  - { host: [ www.example.com, '[2001:db8::1]' ], rate: 1/m }
  - { in: slow, delay: 30s }
  - { domain: co.slow.example, delay: 7s }
rules:
  - { id: all, when: { always: true }, set: { politeness: { delay: 1s, max_hold: 3s } } }
spaces:
  - { name: hasty, crawlers: hasty, options: { politeness: { delay: 10ms, concurrency: 50, schedule: [ { delay: 1ms } ] } } }
";

    fn policy() -> Policy {
        let files = MemoryFileSystem::new().with_file("p", TEXT);
        compile::load(&files, "p").unwrap().policy
    }

    #[test]
    fn the_most_specific_entry_sets_the_whole_pace_for_every_crawler() {
        let policy = policy();
        for (url, delay, concurrency, rate, label) in [
            ("http://example.com/", 5.0, 1, Some(5), "hosts.1 (p:8:5)"),
            (
                "https://a.b.example.com/x",
                5.0,
                1,
                Some(5),
                "hosts.1 (p:8:5)",
            ),
            (
                "http://www.example.com/",
                2.0,
                2,
                Some(1),
                "hosts.2 (p:9:5)",
            ),
            (
                "http://a.www.example.com/",
                5.0,
                1,
                Some(5),
                "hosts.1 (p:8:5)",
            ),
            ("http://[2001:db8::1]/", 2.0, 2, Some(1), "hosts.2 (p:9:5)"),
            (
                "http://slow.example:81/",
                30.0,
                2,
                Some(5),
                "hosts.3 (p:10:5)",
            ),
            (
                "http://b.co.slow.example/",
                7.0,
                2,
                Some(5),
                "hosts.4 (p:11:5)",
            ),
        ] {
            let target = UrlTarget::parse(url).unwrap();
            for crawler in ["hasty", "anonymous"] {
                let facts = Facts {
                    crawler,
                    ..Facts::for_url(&target)
                };
                let (trail, _) = policy.decide(&facts);
                let option = PolitenessOption::new(&policy, &trail);
                let pages = option.pages();
                assert_eq!(pages.delay.as_secs_f64(), delay, "{url}");
                assert_eq!(pages.concurrency, concurrency, "{url}");
                assert_eq!(pages.rate.map(|(count, _)| count), rate, "{url}");
                // The time that a request is held depends on the crawler.
                assert_eq!(option.max_hold().unwrap().as_secs(), 3, "{url}");
                let entry = trail.host_pace().unwrap();
                assert_eq!(policy.host_pace_label(entry), label);
                let schedule = schema::option_index("politeness.schedule");
                assert_eq!(
                    trail.value(&policy, schedule).to_json(),
                    serde_json::json!([])
                );
            }
        }
    }

    #[test]
    fn other_hosts_have_the_pace_of_rules_and_spaces() {
        let policy = policy();
        for (url, crawler, delay, concurrency) in [
            ("http://notexample.com/", "hasty", 1.0, 50),
            ("http://com/", "hasty", 1.0, 50),
            ("http://example.org/", "anonymous", 1.0, 2),
        ] {
            let target = UrlTarget::parse(url).unwrap();
            let facts = Facts {
                crawler,
                ..Facts::for_url(&target)
            };
            let (trail, _) = policy.decide(&facts);
            let pages = PolitenessOption::new(&policy, &trail).pages();
            assert_eq!(
                (pages.delay.as_secs_f64(), pages.concurrency),
                (delay, concurrency)
            );
            assert_eq!(trail.host_pace(), None);
        }
    }

    #[test]
    fn a_tunnel_has_the_pace_of_its_host() {
        let policy = policy();
        let target = HostTarget::parse_authority("www.example.com:443").unwrap();
        let (trail, _) = policy.decide(&Facts::for_tunnel(&target));
        let pages = PolitenessOption::new(&policy, &trail).pages();
        assert_eq!(pages.rate.map(|(count, _)| count), Some(1));
    }

    #[test]
    fn every_politeness_option_is_of_a_host_or_of_requests() {
        let others: Vec<&str> = schema::specs_below("politeness")
            .map(|spec| spec.path)
            .filter(|path| !PACE.contains(&schema::option_index(path)))
            .collect();
        assert_eq!(
            others,
            [
                "politeness.max_hold",
                "politeness.overflow",
                "politeness.order",
                "politeness.per_address.delay",
                "politeness.per_address.concurrency",
            ]
        );
    }
}
