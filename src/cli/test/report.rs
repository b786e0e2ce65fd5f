//! What the cases came to, for people and for programs.

use serde_json::{Value as Json, json};

use crate::config::policy::describe_mismatch;
use crate::diagnostics::problem::SourceLocation;
use crate::policy::cases::{Case, Mismatch};
use crate::policy::coverage::{CoverageRatio, RuleCoverage};

use super::super::color::{ConsoleColors, Tone, replace_controls};
use super::{CoverageOptions, PolicyTestRun};

/// A line for each failing case, one for each difference below it, and the counts of each policy.
pub(super) fn render_text(
    runs: &[PolicyTestRun],
    options: CoverageOptions,
    paint: ConsoleColors,
) -> String {
    runs.iter()
        .map(|run| render_run(run, options, paint))
        .collect()
}

fn render_run(run: &PolicyTestRun, options: CoverageOptions, paint: ConsoleColors) -> String {
    let mut text = String::new();
    for (case, mismatches) in run
        .cases
        .iter()
        .filter(|(_, mismatches)| !mismatches.is_empty())
    {
        let failed = paint.paint(Tone::Bad, "FAILED");
        text.push_str(&format!(
            "{}: {failed} {}\n",
            case.place,
            replace_controls(case.facts.url())
        ));
        mismatches.iter().for_each(|m| {
            text.push_str(&format!("  {}\n", replace_controls(&describe_mismatch(m))))
        });
    }
    let failed = run.failed_count();
    let tone = if failed == 0 { Tone::Good } else { Tone::Bad };
    let counts = format!("{} passed, {failed} failed", run.cases.len() - failed);
    text.push_str(&format!(
        "{} ({}): {}\n",
        run.name(),
        run.location,
        paint.paint(tone, counts)
    ));
    if options.coverage {
        add_coverage(&mut text, run, options, paint);
    }
    text
}

fn add_coverage(
    text: &mut String,
    run: &PolicyTestRun,
    options: CoverageOptions,
    paint: ConsoleColors,
) {
    let (rules, branches) = (run.coverage.rule_ratio(&run.policy), run.branch_coverage());
    let tone = match (
        options.is_missed_by(run),
        branches.reached == branches.total,
    ) {
        (true, _) => Tone::Bad,
        (false, true) => Tone::Good,
        (false, false) => Tone::Warning,
    };
    let shares = format!(
        "{} of the branches, {} of the rules",
        format_share(branches),
        format_share(rules)
    );
    let least = options.threshold.map_or(String::new(), |least| {
        format!("; at least {least} % asked for")
    });
    text.push_str(&format!(
        "  cases reach {}{least}\n",
        paint.paint(tone, shares)
    ));
    let covered = run.coverage.rule_coverage(&run.policy);
    let missed: Vec<(String, &RuleCoverage<'_>)> = covered
        .iter()
        .filter(|rule| rule.missed_branches().next().is_some())
        .map(|rule| {
            (
                rule_place(run, rule).map_or(String::new(), format_place),
                rule,
            )
        })
        .collect();
    let width =
        |of: fn(&(String, &RuleCoverage<'_>)) -> usize| missed.iter().map(of).max().unwrap_or(0);
    let (places, ids) = (
        width(|(place, _)| place.len()),
        width(|(_, rule)| rule.rule.id.as_str().len()),
    );
    for (place, rule) in &missed {
        let names: Vec<&str> = rule.missed_branches().map(|branch| branch.name).collect();
        let never = paint.paint(Tone::Warning, format!("never {}", names.join(", never ")));
        text.push_str(&format!(
            "    {place:places$}  {:ids$}  {never}\n",
            rule.rule.id.as_str()
        ));
    }
}

fn format_share(share: CoverageRatio) -> String {
    format!(
        "{} of {} ({:.1} %)",
        share.reached,
        share.total,
        share.percent()
    )
}

fn rule_place<'r>(run: &'r PolicyTestRun, rule: &RuleCoverage<'_>) -> Option<&'r SourceLocation> {
    run.places.get(rule.index)
}

fn format_place(place: &SourceLocation) -> String {
    format!("{}:{}", place.file, place.line)
}

/// All of it.
pub(super) fn to_json(runs: &[PolicyTestRun], options: CoverageOptions) -> Json {
    let failed: usize = runs.iter().map(PolicyTestRun::failed_count).sum();
    let passed = runs.iter().map(|run| run.cases.len()).sum::<usize>() - failed;
    let policies: Vec<Json> = runs.iter().map(|run| run_json(run, options)).collect();
    json!({ "passed": passed, "failed": failed, "policies": policies })
}

fn run_json(run: &PolicyTestRun, options: CoverageOptions) -> Json {
    let cases: Vec<Json> = run
        .cases
        .iter()
        .map(|(case, mismatches)| case_json(case, mismatches))
        .collect();
    let failed = run.failed_count();
    let mut all = json!({
        "policy": run.name(),
        "path": run.location,
        "passed": run.cases.len() - failed,
        "failed": failed,
        "cases": cases,
    });
    if let (true, Some(all)) = (options.coverage, all.as_object_mut()) {
        all.insert("coverage".to_owned(), coverage_json(run, options));
    }
    all
}

fn case_json(case: &Case, mismatches: &[Mismatch]) -> Json {
    let difference =
        |m: &Mismatch| json!({ "key": m.key, "expected": m.expected, "found": m.actual });
    json!({
        "url": case.facts.url(),
        "file": &*case.place.file,
        "line": case.place.line,
        "passed": mismatches.is_empty(),
        "differences": mismatches.iter().map(difference).collect::<Vec<_>>(),
    })
}

fn coverage_json(run: &PolicyTestRun, options: CoverageOptions) -> Json {
    let share = |share: CoverageRatio| json!({ "reached": share.reached, "of": share.total, "percent": share.percent() });
    let rule = |rule: &RuleCoverage<'_>| {
        let place = rule_place(run, rule);
        let branches = rule
            .branches
            .iter()
            .map(|b| (b.name.to_owned(), Json::from(b.reached)));
        json!({
            "rule": rule.rule.id.as_str(),
            "file": place.map(|place| &*place.file),
            "line": place.map(|place| place.line),
            "branches": branches.collect::<serde_json::Map<_, _>>(),
        })
    };
    json!({
        "branches": share(run.branch_coverage()),
        "rules": share(run.coverage.rule_ratio(&run.policy)),
        "threshold": options.threshold,
        "by_rule": run.coverage.rule_coverage(&run.policy).iter().map(rule).collect::<Vec<_>>(),
    })
}
