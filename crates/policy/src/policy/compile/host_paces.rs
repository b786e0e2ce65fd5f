//! Compiles `hosts`: the pace of hosts (docs/policy/reference.md, "Hosts").

use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::policy::host_pace::{
    HostPaceEntry, HostPaceIndex, HostPaceTable, HostPaceTableBuilder, HostScope,
};
use crate::policy::list::ListKind;
use crate::policy::options::politeness::{SCHEDULE, SCHEDULED};
use crate::policy::options::{Assignment, OptionValue};
use crate::policy::source::tree::{LocatedText, SourceHostName, SourceHostPace, SourcePolicy};

use super::condition::value_problem;
use super::lists::{ListTable, compile_item};
use super::options::OptionCompiler;

pub(super) fn compile_host_paces(
    source: &SourcePolicy,
    lists: &mut ListTable<'_>,
    options: &mut OptionCompiler,
    problems: &mut Problems,
) -> HostPaceTable {
    let mut compiler = HostPaceCompiler {
        sources: &source.hosts,
        table: HostPaceTableBuilder::default(),
        lists,
        problems,
    };
    for (number, entry) in (1..).zip(&source.hosts) {
        let assignments = options.space_assignments(&entry.options, compiler.problems);
        compiler.add_entry(number, entry, assignments);
    }
    compiler.table.build()
}

struct HostPaceCompiler<'c, 'l> {
    sources: &'c [SourceHostPace],
    table: HostPaceTableBuilder,
    lists: &'c mut ListTable<'l>,
    problems: &'c mut Problems,
}

impl HostPaceCompiler<'_, '_> {
    fn add_entry(&mut self, number: usize, source: &SourceHostPace, options: Box<[Assignment]>) {
        let entry = HostPaceEntry {
            hosts: describe_hosts(source).into(),
            label: format!("hosts.{number} ({})", source.place).into(),
            options: with_schedule(options),
        };
        let Some(index) = self.table.add_entry(entry) else {
            let message = format!("more than {} entries of `hosts`", u16::MAX);
            let problem = Problem::error(&source.place, message);
            return self
                .problems
                .push(problem.with_help("name many hosts of one pace in a list: `in: LIST`"));
        };
        for name in &source.hosts {
            match name {
                SourceHostName::Host(text) => self.add_host(text, HostScope::Exact, index),
                SourceHostName::Domain(text) => self.add_host(text, HostScope::Domain, index),
                SourceHostName::List(name) => self.add_list(name, index),
            }
        }
    }

    fn add_host(&mut self, text: &LocatedText, scope: HostScope, entry: HostPaceIndex) {
        match compile_item(ListKind::Hosts, &text.value) {
            Ok(host) => {
                let other = self.table.add_name(&host, scope, entry);
                self.report_duplicate(other, text, &host, scope);
            }
            Err(error) => {
                let mut problem = value_problem(text, error);
                if text.value.contains('*') {
                    problem.help =
                        Some("write `domain: example.com` for a host and all below it".to_owned());
                }
                self.problems.push(problem);
            }
        }
    }

    fn add_list(&mut self, name: &LocatedText, entry: HostPaceIndex) {
        let Some((list, kind)) = self.lists.find(&name.value) else {
            return self.problems.push(self.lists.unknown_list(name));
        };
        // The mistake in its kind was reported.
        let Some(kind) = kind else { return };
        let Some((scope, hosts)) = self.lists.hosts_of(list) else {
            let message = format!("a list of kind `{}` does not name hosts", kind.as_str());
            let problem = Problem::error(&name.place, message).with_found(&*name.value);
            return self
                .problems
                .push(problem.with_help("use a list of kind `hosts` or `domains`"));
        };
        let mut first = None;
        for host in hosts.iter() {
            if let Some(other) = self.table.add_name(host, scope, entry) {
                first.get_or_insert_with(|| (other, host.to_owned()));
            }
        }
        if let Some((other, host)) = first {
            self.report_duplicate(Some(other), name, &host, scope);
        }
    }

    fn report_duplicate(
        &mut self,
        other: Option<HostPaceIndex>,
        text: &LocatedText,
        host: &str,
        scope: HostScope,
    ) {
        let Some(other) = other.and_then(|other| self.sources.get(usize::from(other.0))) else {
            return;
        };
        let message = format!(
            "`{}: {host}` already has an entry at {}",
            scope.as_str(),
            other.place
        );
        let problem = Problem::error(&text.place, message).with_found(&*text.value);
        self.problems
            .push(problem.with_help("remove it from one of them: a host has one pace"));
    }
}

/// Returns the hosts of an entry as written.
fn describe_hosts(source: &SourceHostPace) -> String {
    let hosts: Vec<String> = source
        .hosts
        .iter()
        .map(|name| match name {
            SourceHostName::Host(text) => text.value.to_string(),
            SourceHostName::Domain(text) => format!("domain {}", text.value),
            SourceHostName::List(name) => format!("in {}", name.value),
        })
        .collect();
    hosts.join(", ")
}

/// Adds `schedule: []` to an entry that sets limits without a schedule: the document's windows would
/// replace them.
fn with_schedule(options: Box<[Assignment]>) -> Box<[Assignment]> {
    let sets = |indexes: &[_]| options.iter().any(|option| indexes.contains(&option.index));
    if !sets(&SCHEDULED) || sets(&[SCHEDULE]) {
        return options;
    }
    let mut options = options.into_vec();
    options.push(Assignment {
        index: SCHEDULE,
        value: OptionValue::List(Box::default()),
    });
    options.into()
}
