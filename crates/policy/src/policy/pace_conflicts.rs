//! Crawlers that get different paces for one host.
//!
//! A host has one queue for all crawlers, so its pace would depend on whose turn it is. A conflict
//! is proved by a URL that both crawlers may fetch. URLs are built from the conditions of rules, so
//! a conflict that none of these URLs shows is not found.

use crate::diagnostics::problem::{Problem, SourceLocation};
use crate::diagnostics::problems::Problems;
use crate::urls::target::UrlTarget;

use super::Policy;
use super::decide::Verdict;
use super::fact::Facts;
use super::lint::late_allow::allows;
use super::lint::lint_view::LintView;
use super::lint::witness;
use super::options::politeness::PACE;
use super::options::{OptionIndex, OptionSetter, OptionValue};
use super::rule::Rule;
use super::space::Space;
use super::trail::Trail;

/// The maximum number of URLs that are tried.
const MAX_URLS: usize = 200;
/// The maximum number of crawlers that are compared.
const MAX_CRAWLERS: usize = 20;
/// The maximum number of conflicts that are reported.
const MAX_CONFLICTS: usize = 10;
/// A crawler of the space without `crawlers`.
const OTHER_CRAWLER: &str = "a-crawler-that-no-space-names";

/// Two crawlers that get different paces for one host.
#[derive(Clone, Debug, PartialEq)]
pub struct PaceConflict {
    pub url: String,
    /// The path of the first option that differs: `politeness.delay`.
    pub option: String,
    pub sides: [ConflictSide; 2],
}

/// One crawler of a [`PaceConflict`].
#[derive(Clone, Debug, PartialEq)]
pub struct ConflictSide {
    pub crawler: String,
    pub value: OptionValue,
    pub setter: OptionSetter,
}

impl PaceConflict {
    /// Returns `true` if the paces of another conflict come from the same places.
    pub fn has_setters_of(&self, other: &Self) -> bool {
        let setters = |conflict: &Self| conflict.sides.each_ref().map(|side| side.setter);
        let [first, second] = setters(self);
        setters(other) == [first, second] || setters(other) == [second, first]
    }

    /// Returns the setter at which the conflict is reported: a rule or a space, if there is one.
    pub fn reported_setter(&self) -> OptionSetter {
        let [first, second] = self.sides.each_ref().map(|side| side.setter);
        first.max(second)
    }

    /// Returns the conflict as a warning.
    pub fn problem(&self, policy: &Policy, place: &SourceLocation) -> Problem {
        let [first, second] = self.sides.each_ref().map(|side| {
            let crawler = if side.crawler == OTHER_CRAWLER {
                "crawlers that no space names".to_owned()
            } else {
                format!("`{}`", side.crawler)
            };
            let setter = setter_text(policy, side.setter);
            format!("{} for {crawler} by {setter}", side.value)
        });
        let message = format!(
            "two crawlers get different paces for one host: `{}` is {first} and {second}, for example for {}",
            self.option, self.url
        );
        let help = "a host has one queue for all crawlers: give it an entry in `hosts`, or set the pace in `options`";
        let rule = match self.reported_setter() {
            OptionSetter::Rule(rule) => policy.rule(rule).map(|rule| &rule.id),
            OptionSetter::BuiltIn
            | OptionSetter::Document
            | OptionSetter::Space(_)
            | OptionSetter::Host(_) => None,
        };
        Problem::warning(place, message)
            .with_rule(rule)
            .with_help(help)
    }
}

/// The options of the pace that a crawler gets, in the order of [`PACE`].
type CrawlerPace<'p> = Vec<(OptionIndex, OptionSetter, &'p OptionValue)>;

impl Policy {
    /// Returns conflicts between crawlers, one for each pair of places that set the pace. The
    /// crawlers are these, and one of each space.
    pub fn pace_conflicts<'a>(
        &'a self,
        crawlers: impl IntoIterator<Item = &'a str>,
    ) -> Vec<PaceConflict> {
        let mut all: Vec<&str> = self.spaces.all().iter().map(representative).collect();
        for crawler in crawlers {
            if !all.contains(&crawler) {
                all.push(crawler);
            }
        }
        all.truncate(MAX_CRAWLERS);
        if all.len() < 2 || !self.pace_may_differ(&all) {
            return Vec::new();
        }
        let mut conflicts = Vec::new();
        for url in self.example_urls() {
            self.compare_paces(&url, &all, &mut conflicts);
        }
        conflicts.truncate(MAX_CONFLICTS);
        conflicts
    }

    /// Returns `false` if all crawlers get the same pace for every URL, because the spaces agree and
    /// no rule sets it.
    fn pace_may_differ(&self, crawlers: &[&str]) -> bool {
        let mut paces = crawlers.iter().map(|crawler| {
            let trail = Trail::new(self, crawler);
            PACE.map(|index| trail.value(self, index))
        });
        let first = paces.next();
        paces.any(|pace| Some(pace) != first) || self.rules.iter().any(sets_pace)
    }

    fn pace_of(&self, trail: &Trail) -> CrawlerPace<'_> {
        let options = PACE.iter().map(|index| {
            let setter = trail.set_by(self, *index);
            (*index, setter, trail.value(self, *index))
        });
        options.collect()
    }

    /// Returns URLs that rules match which set a pace or allow, and one that hardly any rule names.
    fn example_urls(&self) -> Vec<UrlTarget> {
        let view = LintView::new(self, &Problems::new());
        let rules = self.rules.iter().enumerate();
        let matched = rules
            .filter(|(at, rule)| {
                view.is_sound(*at) && (sets_pace(rule) || allows(rule) == Some(true))
            })
            .filter_map(|(at, _)| witness::candidate_url(&view, view.assumptions(at)?));
        let any = UrlTarget::parse("http://www.example.com/").ok();
        any.into_iter().chain(matched).take(MAX_URLS).collect()
    }

    /// Adds the conflicts between crawlers that may fetch a URL.
    fn compare_paces(&self, url: &UrlTarget, crawlers: &[&str], found: &mut Vec<PaceConflict>) {
        let mut admitted: Vec<(&str, CrawlerPace<'_>)> = Vec::new();
        for crawler in crawlers {
            let facts = Facts {
                crawler,
                ..Facts::for_url(url)
            };
            let (trail, decision) = self.decide(&facts);
            if decision.verdict != Verdict::Admit {
                continue;
            }
            let pace = self.pace_of(&trail);
            for (other, earlier) in &admitted {
                let conflict = self
                    .conflict(url, (other, earlier), (crawler, &pace))
                    .filter(|new| !found.iter().any(|known| known.has_setters_of(new)));
                found.extend(conflict);
            }
            admitted.push((crawler, pace));
        }
    }

    fn conflict(
        &self,
        url: &UrlTarget,
        first: (&str, &CrawlerPace<'_>),
        second: (&str, &CrawlerPace<'_>),
    ) -> Option<PaceConflict> {
        let mut pairs = first.1.iter().zip(second.1);
        let (one, other) = pairs.find(|(one, other)| one.2 != other.2)?;
        let side =
            |crawler: &str, option: &(OptionIndex, OptionSetter, &OptionValue)| ConflictSide {
                crawler: crawler.to_owned(),
                value: option.2.clone(),
                setter: option.1,
            };
        Some(PaceConflict {
            url: url.as_str().to_owned(),
            option: self.option_path(one.0).to_owned(),
            sides: [side(first.0, one), side(second.0, other)],
        })
    }
}

fn setter_text(policy: &Policy, setter: OptionSetter) -> String {
    let name = policy.setter_name(setter);
    match setter {
        OptionSetter::BuiltIn => "the built-in value".to_owned(),
        OptionSetter::Rule(_) => format!("rule `{name}`"),
        OptionSetter::Document | OptionSetter::Space(_) | OptionSetter::Host(_) => {
            format!("`{name}`")
        }
    }
}

fn representative(space: &Space) -> &str {
    space.crawlers.first().map_or(OTHER_CRAWLER, |name| name)
}

fn sets_pace(rule: &Rule) -> bool {
    PACE.iter()
        .any(|index| rule.assigned_value(*index).is_some())
}

#[cfg(test)]
mod tests {
    use crate::policy::compile;
    use crate::policy::source::MemoryFileSystem;

    fn conflicts(body: &str, crawlers: &[&str]) -> Vec<String> {
        let text = format!("policy: 1\nname: p\noptions: {{ disposition: allow }}\n{body}");
        let files = MemoryFileSystem::new().with_file("p", text);
        let policy = compile::load(&files, "p").unwrap().policy;
        let conflicts = policy.pace_conflicts(crawlers.iter().copied());
        conflicts
            .iter()
            .map(|found| {
                let sides = found.sides.each_ref();
                let sides = sides.map(|side| format!("{} {}", side.crawler, side.value));
                format!("{} {} {}", found.url, found.option, sides.join(" "))
            })
            .collect()
    }

    #[test]
    fn spaces_whose_paces_differ_for_a_host_that_both_may_fetch() {
        let spaces = "spaces:
  - { name: a, crawlers: a, options: { politeness: { delay: 2s } } }
  - { name: b, crawlers: b, options: { politeness: { delay: 3s } } }
";
        let expected = "http://www.example.com/ politeness.delay a 2s b 3s";
        assert_eq!(conflicts(spaces, &[]), [expected]);
        // A crawler that is in no space.
        assert_eq!(conflicts(spaces, &["other"]).len(), 3);
    }

    #[test]
    fn spaces_that_may_fetch_no_common_host() {
        let spaces = "spaces:
  - name: a
    crawlers: a
    options: { disposition: disallow, politeness: { delay: 2s } }
    rules: [ { when: { domain: a.example }, then: allow } ]
  - name: b
    crawlers: b
    options: { disposition: disallow, politeness: { delay: 3s } }
    rules: [ { when: { domain: b.example }, then: allow } ]
";
        assert!(conflicts(spaces, &[]).is_empty());
        let common = spaces.replace("domain: b.example", "domain: [ b.example, x.a.example ]");
        assert!(
            conflicts(&common, &[]).is_empty(),
            "only the first value of a condition is tried"
        );
        let common = spaces.replace("domain: b.example", "domain: a.example");
        let expected = "http://a.example/ politeness.delay a 2s b 3s";
        assert_eq!(conflicts(&common, &[]), [expected]);
    }

    #[test]
    fn an_entry_of_hosts_resolves_a_conflict() {
        let rules = "
rules:
  - { id: lab, when: { all: [ { crawler: lab }, { host: slow.example } ] }, set: { politeness: { delay: 9s } } }
";
        let expected = "http://slow.example/ politeness.delay lab 9s other 1s";
        assert_eq!(conflicts(rules, &["lab", "other"]), [expected]);
        assert!(conflicts(rules, &["lab"]).is_empty());
        let hosts = format!("hosts: [ {{ host: slow.example, delay: 9s }} ]{rules}");
        assert!(conflicts(&hosts, &["lab", "other"]).is_empty());
    }

    #[test]
    fn a_pace_that_all_crawlers_get_is_no_conflict() {
        let rules =
            "rules: [ { when: { under: /archive }, set: { politeness: { delay: 9s } } } ]\n";
        assert!(conflicts(rules, &["lab", "other"]).is_empty());
    }
}
