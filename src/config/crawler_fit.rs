//! Checks whether a policy fits the crawlers of a configuration: whether bursts fit into a hold, what a refusal that means
//! "later" costs, and whether two crawlers get different paces for one host.

use std::time::Duration;

use crawlgate_policy::host_pace;

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::model::crawler::Crawler;
use crate::model::intent::Intent;
use crate::model::profile::Profile;
use crate::model::rule_id::RuleId;
use crate::model::units::format_duration;
use crate::pipeline::crawlers::AnonymousAccess;
use crate::policy::Policy;
use crate::policy::compile::CompiledPolicy;
use crate::policy::options::OptionSetter;
use crate::policy::options::politeness::{Overflow, PolitenessOption};
use crate::policy::trail::Trail;
use crate::proxy::local_reply::ProfileSelection;

use super::settings::Settings;

/// A crawler of the configuration.
struct ConfiguredCrawler<'a> {
    name: &'a str,
    /// The profile; `None` if it depends on the `User-Agent`.
    profile: Option<Profile>,
}

/// The part of a policy that a problem is about.
struct PolicyPart<'a> {
    /// The rule, or `None` for the options before the first rule.
    rule: Option<&'a RuleId>,
    location: SourceLocation,
}

/// Returns warnings about the parts of a policy that cost the crawlers of a configuration pages. `location` is the policy's.
pub fn find_problems(
    compiled: &CompiledPolicy,
    location: &SourceLocation,
    settings: &Settings,
) -> Vec<Problem> {
    let policy = &compiled.policy;
    let crawlers = configured_crawlers(settings);
    let mut holds: Vec<(PolicyPart<'_>, HoldCapacity<'_>)> = Vec::new();
    let mut laters: Vec<(PolicyPart<'_>, Vec<&ConfiguredCrawler<'_>>)> = Vec::new();
    for crawler in &crawlers {
        let options = Trail::new(policy, crawler.name);
        let base = || PolicyPart {
            rule: None,
            location: location.clone(),
        };
        note_hold(
            &mut holds,
            base(),
            HoldCapacity::find(policy, &options, crawler),
        );
        if options.reject_intent(policy) == Some(Intent::Later) {
            note_later(&mut laters, base(), crawler);
        }
        for found in policy.crawler_rules(crawler.name) {
            let part = || PolicyPart {
                rule: Some(&found.rule.id),
                location: rule_location(compiled, found.index.0, location),
            };
            if found.assigns(policy, "politeness.") {
                note_hold(
                    &mut holds,
                    part(),
                    HoldCapacity::find(policy, &found.trail, crawler),
                );
            }
            if found.refuses_with_later() {
                note_later(&mut laters, part(), crawler);
            }
        }
    }
    let holds = holds.iter().map(|(part, hold)| hold.problem(part));
    let laters = laters
        .iter()
        .filter_map(|(part, crawlers)| later_problem(part, crawlers));
    let mut problems: Vec<Problem> = holds.chain(laters).collect();
    problems.extend(pace_problems(compiled, location, &crawlers));
    problems.sort_by(|a, b| a.location.cmp(&b.location));
    problems
}

fn configured_crawlers(settings: &Settings) -> Vec<ConfiguredCrawler<'_>> {
    let general = match settings.profile {
        ProfileSelection::Always(profile) => Some(profile),
        ProfileSelection::ByUserAgent => None,
    };
    let named = settings.crawlers.iter().map(|known| ConfiguredCrawler {
        name: known.crawler.as_str(),
        profile: known.crawler.profile().or(general),
    });
    let anonymous = ConfiguredCrawler {
        name: Crawler::ANONYMOUS,
        profile: general,
    };
    let anonymous = (settings.anonymous == AnonymousAccess::Allow).then_some(anonymous);
    named.chain(anonymous).collect()
}

/// Returns warnings about crawlers of the configuration that get different paces for one host, unless the policy alone
/// shows it.
fn pace_problems<'a>(
    compiled: &'a CompiledPolicy,
    location: &'a SourceLocation,
    crawlers: &'a [ConfiguredCrawler<'_>],
) -> impl Iterator<Item = Problem> + 'a {
    let policy = &compiled.policy;
    let known = &compiled.pace_conflicts;
    let conflicts = policy.pace_conflicts(crawlers.iter().map(|crawler| crawler.name));
    let new = conflicts
        .into_iter()
        .filter(|conflict| !known.iter().any(|other| other.has_setters_of(conflict)));
    new.map(|conflict| {
        let place = match conflict.reported_setter() {
            OptionSetter::Rule(rule) => rule_location(compiled, rule.0, location),
            OptionSetter::BuiltIn
            | OptionSetter::Document
            | OptionSetter::Space(_)
            | OptionSetter::Host(_) => location.clone(),
        };
        conflict.problem(policy, &place)
    })
}

fn rule_location(compiled: &CompiledPolicy, rule: u32, policy: &SourceLocation) -> SourceLocation {
    compiled
        .rule_places
        .get(rule as usize)
        .unwrap_or(policy)
        .clone()
}

/// The requests that fit into the time for which a request is held.
struct HoldCapacity<'a> {
    crawler: &'a ConfiguredCrawler<'a>,
    max_hold: Duration,
    /// The profile that `max_hold` comes from; `None` if the policy sets it.
    profile: Option<Profile>,
    delay: Duration,
    /// The average time between two requests.
    interval: Duration,
    /// The number of requests that should fit.
    wanted: u32,
}

impl<'a> HoldCapacity<'a> {
    /// Returns the capacity with these options, if it is too small for the crawler.
    fn find(policy: &Policy, trail: &Trail, crawler: &'a ConfiguredCrawler<'a>) -> Option<Self> {
        let option = PolitenessOption::new(policy, trail);
        let pace = host_pace(policy, trail);
        let profile = crawler.profile.unwrap_or(Profile::Generic);
        let set = option.max_hold();
        let capacity = Self {
            crawler,
            max_hold: set.unwrap_or_else(|| profile.max_hold()),
            profile: set.is_none().then_some(profile),
            delay: pace.delay,
            interval: pace.interval(),
            wanted: profile.usual_requests_per_host(),
        };
        // A policy that never holds does not count on it.
        let holds = option.overflow() == Overflow::Hold && !capacity.max_hold.is_zero();
        (holds && capacity.interval * capacity.wanted > capacity.max_hold).then_some(capacity)
    }

    /// The number of requests that fit.
    fn requests(&self) -> u128 {
        self.max_hold.as_nanos() / self.interval.as_nanos().max(1)
    }

    fn problem(&self, part: &PolicyPart<'_>) -> Problem {
        let requests = self.requests();
        let source = match self.profile {
            Some(profile) => format!(" of profile {}", profile.as_str()),
            None => String::new(),
        };
        let message = format!(
            "only {requests} requests fit into a hold (max_hold {}{source}, one request every {} on average, delay {}): \
             of a burst to one host, crawler {} gets the others refused with `rate_limited`",
            format_duration(self.max_hold),
            format_duration(self.interval),
            format_duration(self.delay),
            self.crawler.name,
        );
        let needed = (self.interval * self.wanted).as_secs_f64().ceil();
        let help = format!(
            "set `politeness: {{ max_hold: {needed}s }}` here if the crawler's own timeout is longer than that, or let it \
             have at most {} in progress for one host",
            requests.max(1)
        );
        Problem::warning(&part.location, message)
            .with_rule(part.rule)
            .with_help(help)
    }
}

/// Notes a capacity, if there is one, unless a smaller one is known for the same part.
fn note_hold<'a>(
    holds: &mut Vec<(PolicyPart<'a>, HoldCapacity<'a>)>,
    part: PolicyPart<'a>,
    hold: Option<HoldCapacity<'a>>,
) {
    let Some(hold) = hold else { return };
    match holds.iter_mut().find(|(known, _)| known.rule == part.rule) {
        Some((_, known)) if known.requests() <= hold.requests() => {}
        Some((_, known)) => *known = hold,
        None => holds.push((part, hold)),
    }
}

fn note_later<'a>(
    laters: &mut Vec<(PolicyPart<'a>, Vec<&'a ConfiguredCrawler<'a>>)>,
    part: PolicyPart<'a>,
    crawler: &'a ConfiguredCrawler<'a>,
) {
    match laters.iter_mut().find(|(known, _)| known.rule == part.rule) {
        Some((_, crawlers)) => crawlers.push(crawler),
        None => laters.push((part, vec![crawler])),
    }
}

/// Returns a warning if a crawler is known to lose pages by refusals that mean "later", or an advice if that depends on its
/// `User-Agent`.
fn later_problem(part: &PolicyPart<'_>, crawlers: &[&ConfiguredCrawler<'_>]) -> Option<Problem> {
    let loser = crawlers.iter().find_map(|crawler| {
        let profile = crawler.profile?;
        Some((crawler.name, profile, profile.loss_after_later()?))
    });
    let refused = "`reject: later` refuses at once, without a hold";
    let problem = match loser {
        Some((name, profile, loss)) => Problem::warning(
            &part.location,
            format!(
                "{refused}, and crawler {name} (profile {}) {loss}",
                profile.as_str()
            ),
        ),
        None if crawlers.iter().any(|crawler| crawler.profile.is_none()) => Problem::advice(
            &part.location,
            format!(
                "{refused}, and most clients do not ask again: Scrapy and Crawlee give the page up within a second"
            ),
        ),
        None => return None,
    };
    let help = "for a pause, use `crawlgate stop HOST --for TIME`, which holds requests; `crawlgate decisions --lost` \
                lists the pages that were lost";
    Some(problem.with_rule(part.rule).with_help(help))
}
