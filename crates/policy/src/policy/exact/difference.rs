//! Requests about which two policies decide differently.
//!
//! Rules are matched by id. Only requests to which a changed rule applies can be decided
//! differently: where only its condition changed, those to which one version applies; where only
//! its place changed, those to which a rule applies that it passed. The rule may still have no
//! effect on them, because of other rules; that is proved for each policy on its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::policy::Policy;
use crate::policy::cases::CaseFacts;
use crate::policy::compare::{PolicyChange, PolicyDiff};
use crate::policy::field::Field;
use crate::policy::host_pace::{HostPaceIndex, HostScope};
use crate::policy::options::politeness::PACE;

use super::changed_rules::{ChangedRule, PolicyPair};
use super::formula::Formula;
use super::question::{Example, Solution, Solver};
use super::unreached::Reach;
use super::verdict_changes::VerdictChanges;
use super::verdicts::WantedVerdict;

/// The maximum number of examples for each kind of difference.
const MAX_EXAMPLES: usize = 3;
/// The maximum number of requests that are tried for one change, of different hosts or URLs.
const MAX_ROUNDS: usize = 12;
/// The maximum number of names in `hosts` that are searched.
const MAX_HOSTS: usize = 50;
/// The maximum work for one change, as that of this number of questions.
const MAX_QUESTIONS: usize = 10;
/// The work for all changes, as that of this number of questions: one change of many has less.
const QUESTIONS_FOR_ALL: usize = 200;
/// The reason of an answer that depends on requests that were not tried.
const NOT_TRIED: &str = "the requests that were tried do not show it";

/// The comparison of the decisions of two policies on a request. It returns the kind of their
/// difference, if there is one, from the verdict, its cause and reason, the refusal, and the
/// options of an admitted request.
pub type DecisionComparison<'c, K> = dyn Fn(&CaseFacts) -> Option<K> + 'c;

/// The differences between the decisions of two policies about URLs, by their kind.
#[derive(Debug)]
pub struct ExactDifference<K> {
    /// Requests that the policies decide differently, up to three of each kind.
    pub examples: BTreeMap<K, Vec<Example>>,
    /// The changes of which it is not decided whether they matter.
    pub undecided: Vec<UndecidedChange>,
    /// The changes of verdicts among the examples.
    found: VerdictChanges,
}

/// A change of a policy of which something is not decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndecidedChange {
    /// The id of the rule; `options` for those of the document and of spaces; the name of seeds.
    pub name: String,
    /// `true` if it changes decisions, and only some changes of verdicts are not decided.
    pub changes_decisions: bool,
    /// The changes of verdicts that are neither found nor ruled out.
    pub verdicts: VerdictChanges,
    pub reason: &'static str,
}

impl<K: Ord> ExactDifference<K> {
    /// Compares two policies.
    pub fn between(old: &Policy, new: &Policy, compare: &DecisionComparison<'_, K>) -> Self {
        let mut difference = Self {
            examples: BTreeMap::new(),
            undecided: Vec::new(),
            found: VerdictChanges::NONE,
        };
        match Solver::new() {
            Ok(solver) => PolicyComparison {
                pair: PolicyPair::new(old, new),
                solver,
                compare,
                difference: &mut difference,
            }
            .run(),
            Err(reason) => difference.undecided.push(UndecidedChange {
                name: "policy".to_owned(),
                changes_decisions: false,
                verdicts: VerdictChanges::BOTH,
                reason,
            }),
        }
        difference
    }

    /// Returns `true` if it is proved that no decision about a URL differs.
    pub fn is_equivalent(&self) -> bool {
        self.examples.is_empty() && self.undecided.is_empty()
    }

    /// Returns the changes of verdicts that are found, or not ruled out.
    pub fn possible_verdicts(&self) -> VerdictChanges {
        let open = self.undecided.iter().map(|change| change.verdicts);
        open.fold(self.found, VerdictChanges::union)
    }
}

struct PolicyComparison<'p, 'd, K> {
    pair: PolicyPair<'p>,
    solver: Solver,
    compare: &'d DecisionComparison<'d, K>,
    difference: &'d mut ExactDifference<K>,
}

/// The two policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Old,
    New,
}

/// A change of the policy, and the requests that it may concern.
struct ChangeSearch {
    name: String,
    region: Formula,
    /// Requests on which a version of the rule has an effect.
    first: Vec<Example>,
    /// The changes of verdicts that the change may cause.
    verdicts: VerdictChanges,
    /// `true` if requests outside the region may be concerned, too.
    is_incomplete: bool,
    /// The reason, if no request is found that is decided differently.
    reason: &'static str,
}

/// The differences that were found for one change.
struct Found {
    any: bool,
    verdicts: VerdictChanges,
}

impl<K: Ord> PolicyComparison<'_, '_, K> {
    fn run(mut self) {
        let diff = PolicyDiff::between(self.pair.old.policy, self.pair.new.policy);
        let options: Vec<&PolicyChange> = diff
            .options
            .iter()
            .filter(|change| !change.is_of_hosts())
            .collect();
        if !options.is_empty() {
            let verdicts = options.into_iter().map(VerdictChanges::of_option);
            self.solver.begin_questions(MAX_QUESTIONS);
            self.search(ChangeSearch {
                name: "options".to_owned(),
                region: Formula::Constant(true),
                first: Vec::new(),
                verdicts: verdicts.fold(VerdictChanges::NONE, VerdictChanges::union),
                is_incomplete: false,
                reason: NOT_TRIED,
            });
        }
        self.compare_host_paces();
        self.add_changed_seeds(&diff);
        let changed = self.pair.changed_rules(&diff);
        let share = QUESTIONS_FOR_ALL / changed.len().max(1);
        for (name, rule) in changed {
            self.solver.begin_questions(share.clamp(1, MAX_QUESTIONS));
            self.compare_rule(name, rule);
        }
    }

    /// Searches requests for the hosts of which `hosts` changes the pace. A pace changes no verdict.
    fn compare_host_paces(&mut self) {
        let [old, new] = [&self.pair.old, &self.pair.new].map(|policy| policy.policy);
        let mut changed = changed_host_paces(old, new);
        if changed.is_empty() {
            return;
        }
        changed.truncate(MAX_HOSTS);
        self.solver.begin_questions(MAX_QUESTIONS);
        let region = self.solver.table.hosts(&changed);
        self.search(ChangeSearch {
            name: "hosts".to_owned(),
            region,
            first: Vec::new(),
            verdicts: VerdictChanges::NONE,
            is_incomplete: false,
            reason: NOT_TRIED,
        });
    }

    /// Adds the seeds that changed, since links are counted from them. The facts of a request contain
    /// only the resulting depth.
    fn add_changed_seeds(&mut self, diff: &PolicyDiff) {
        let policies = [&self.pair.old, &self.pair.new];
        if !policies.iter().any(|policy| policy.depends_on_depth()) {
            return;
        }
        let spaces = policies.map(|policy| policy.policy.spaces().all());
        let seeds = spaces.into_iter().flatten();
        let names: BTreeSet<&str> = seeds
            .filter_map(|space| Some(&*space.seeds.as_ref()?.name))
            .collect();
        let changed = diff.lists.iter().filter(|list| names.contains(&*list.name));
        let changed = changed.map(|list| UndecidedChange {
            name: list.name.clone(),
            changes_decisions: false,
            verdicts: VerdictChanges::BOTH,
            reason: "the depth of URLs depends on the seeds",
        });
        self.difference.undecided.extend(changed);
    }

    fn compare_rule(&mut self, name: String, rule: ChangedRule) {
        let requests = self.pair.changed_requests(&mut self.solver, rule);
        let mut search = ChangeSearch {
            name,
            region: Formula::Constant(false),
            first: Vec::new(),
            verdicts: VerdictChanges::NONE,
            is_incomplete: self.pair.has_tests_of_several_stages(rule),
            reason: NOT_TRIED,
        };
        if search.is_incomplete {
            search.reason = "its tests are known at different stages";
        }
        let (old, new) = rule.positions();
        let lost = self.add_reached(&mut search, Side::Old, old, &requests.lost);
        let gained = self.add_reached(&mut search, Side::New, new, &requests.gained);
        let before = self.add_reached(&mut search, Side::Old, old, &requests.changed);
        let after = self.add_reached(&mut search, Side::New, new, &requests.changed);
        if lost || gained || before || after || search.is_incomplete {
            let concerned = [lost, gained, before || after];
            search.verdicts = self
                .pair
                .possible_verdicts(rule, concerned, &requests.passed);
            self.search(search);
        }
    }

    /// Adds requests to a search and returns `true`, unless it is proved that the rule has no effect
    /// on them, so that it can be removed.
    fn add_reached(
        &mut self,
        search: &mut ChangeSearch,
        side: Side,
        at: Option<usize>,
        region: &Formula,
    ) -> bool {
        let Some(at) = at.filter(|_| *region != Formula::Constant(false)) else {
            return false;
        };
        let policy = match side {
            Side::Old => &self.pair.old,
            Side::New => &self.pair.new,
        };
        match policy.reach(&mut self.solver, at, region) {
            Reach::Never(_) => return false,
            Reach::Decides(example, _) => search.first.push(*example),
            Reach::Undecided(reason) => search.reason = reason,
        }
        search.region = Formula::any([search.region.clone(), region.clone()]);
        true
    }

    /// Searches requests that the policies decide differently.
    fn search(&mut self, change: ChangeSearch) {
        let mut found = Found {
            any: false,
            verdicts: VerdictChanges::NONE,
        };
        for example in change.first {
            self.record(example, &mut found);
        }
        self.try_requests(&change.region, &Field::Host, &mut found);
        if !found.any {
            self.try_requests(&change.region, &Field::Url, &mut found);
        }
        if !found.any {
            // The options of a refused request do not count.
            self.try_verdict(Side::New, WantedVerdict::Allow, &change.region, &mut found);
        }
        let mut open = change.verdicts.without(found.verdicts);
        open.new_access &= self.may_change(
            [
                (Side::New, WantedVerdict::Allow),
                (Side::Old, WantedVerdict::Reject),
            ],
            open.new_access,
            &change.region,
            &mut found,
        );
        open.new_refusal &= self.may_change(
            [
                (Side::Old, WantedVerdict::Allow),
                (Side::New, WantedVerdict::Reject),
            ],
            open.new_refusal,
            &change.region,
            &mut found,
        );
        if change.is_incomplete {
            open = VerdictChanges::BOTH;
        }
        let verdicts = open.without(found.verdicts);
        if !found.any || verdicts != VerdictChanges::NONE {
            self.difference.undecided.push(UndecidedChange {
                name: change.name,
                changes_decisions: found.any,
                verdicts,
                reason: if found.any { NOT_TRIED } else { change.reason },
            });
        }
    }

    /// Returns `false` if no request gets both verdicts that a change of the verdict needs. The
    /// requests that are found on the way are tried.
    fn may_change(
        &mut self,
        verdicts: [(Side, WantedVerdict); 2],
        is_open: bool,
        region: &Formula,
        found: &mut Found,
    ) -> bool {
        is_open
            && verdicts
                .into_iter()
                .all(|(side, verdict)| self.try_verdict(side, verdict, region, found))
    }

    /// Tries a request that gets a verdict by one policy. Returns `false` if no request
    /// does.
    fn try_verdict(
        &mut self,
        side: Side,
        verdict: WantedVerdict,
        region: &Formula,
        found: &mut Found,
    ) -> bool {
        let policy = match side {
            Side::Old => &self.pair.old,
            Side::New => &self.pair.new,
        };
        self.solver.begin_question();
        match policy.find_verdict(&mut self.solver, verdict, None, region) {
            Solution::Example(example) => {
                self.record(*example, found);
                true
            }
            Solution::Never => false,
            Solution::Undecided(_) => true,
        }
    }

    /// Tries requests that differ in a field.
    fn try_requests(&mut self, region: &Formula, field: &Field, found: &mut Found) {
        self.solver.begin_question();
        let mut left = region.clone();
        for _ in 0..MAX_ROUNDS {
            let Solution::Example(example) = self.solver.solve(&left, &|_| true) else {
                break;
            };
            let value = if *field == Field::Host {
                host_of(&example)
            } else {
                example.url.clone()
            };
            let seen = self.solver.table.exact(field, &value);
            left = Formula::all([left, seen.negate()]);
            self.record(*example, found);
        }
    }

    /// Compares the decisions on a request, and keeps it as an example if they differ.
    fn record(&mut self, example: Example, found: &mut Found) {
        let Some(kind) = (self.compare)(&example.facts) else {
            return;
        };
        let facts = example.facts.facts();
        let [old_admits, new_admits] = [&self.pair.old, &self.pair.new]
            .map(|policy| WantedVerdict::Allow.matches(&policy.policy.decide(&facts).1));
        let verdicts = VerdictChanges::between(old_admits, new_admits);
        found.any = true;
        found.verdicts = found.verdicts.union(verdicts);
        self.difference.found = self.difference.found.union(verdicts);
        let examples = self.difference.examples.entry(kind).or_default();
        let is_known = examples
            .iter()
            .any(|other| other.url == example.url && other.details == example.details);
        if examples.len() < MAX_EXAMPLES && !is_known {
            examples.push(example);
        }
    }
}

/// Returns the names in `hosts` of either policy whose pace differs.
fn changed_host_paces<'p>(old: &'p Policy, new: &'p Policy) -> Vec<(&'p str, HostScope)> {
    let added = new
        .host_paces
        .names()
        .filter(|(name, scope, _)| old.host_paces.entry_of(name, *scope).is_none())
        .map(|(name, scope, _)| (name, scope));
    let changed = old
        .host_paces
        .names()
        .filter(|(name, scope, before)| {
            let after = new.host_paces.entry_of(name, *scope);
            after.is_none_or(|after| !paces_equal((old, *before), (new, after)))
        })
        .map(|(name, scope, _)| (name, scope));
    changed.chain(added).collect()
}

/// Returns `true` if two entries of `hosts` give the same pace.
fn paces_equal(old: (&Policy, HostPaceIndex), new: (&Policy, HostPaceIndex)) -> bool {
    PACE.iter().all(|index| {
        let before = old.0.host_pace_option(old.1, *index);
        let after = new.0.host_pace_option(new.1, *index);
        before.map(|(_, value)| value) == after.map(|(_, value)| value)
    })
}

fn host_of(example: &Example) -> String {
    let rest = example.url.split_once("://").map_or("", |(_, rest)| rest);
    let authority = rest.split(['/', '?']).next().unwrap_or(rest);
    match authority.rsplit_once(':') {
        Some((host, _)) if !authority.ends_with(']') => host.to_owned(),
        Some(_) | None => authority.to_owned(),
    }
}
