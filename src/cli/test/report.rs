//! The results as text and as JSON.

use serde_json::{Value as Json, json};

use crate::config::policy::{describe_answer, describe_mismatch};
use crate::diagnostics::problem::SourceLocation;
use crate::policy::cases::{Case, CaseAssertion, Mismatch};
use crate::policy::coverage::{CoverageRatio, RuleCoverage};
use crate::policy::exact::VerdictAnswer;

use crate::cli::text::{replace_controls, sanitize_text};
use crate::console::{ConsoleColors, Tone};

use super::{CoverageOptions, PolicyTestRun};

/// Renders the failing cases with their differences, and the counts of each policy.
pub(super) fn render_text(
    runs: &[PolicyTestRun],
    options: CoverageOptions,
    colors: ConsoleColors,
) -> String {
    runs.iter()
        .map(|run| render_run(run, options, colors))
        .collect()
}

fn render_run(run: &PolicyTestRun, options: CoverageOptions, colors: ConsoleColors) -> String {
    let mut text = String::new();
    for (case, mismatches) in run
        .cases
        .iter()
        .filter(|(_, mismatches)| !mismatches.is_empty())
    {
        let failed = colors.paint(Tone::Bad, "FAILED");
        text.push_str(&format!(
            "{}: {failed} {}\n",
            case.place,
            replace_controls(case.facts.url())
        ));
        for mismatch in mismatches {
            let mismatch = replace_controls(&describe_mismatch(mismatch));
            text.push_str(&format!("  {mismatch}\n"));
        }
    }
    for (assertion, answer) in &run.assertions {
        let (tone, word) = match answer {
            VerdictAnswer::Never => continue,
            VerdictAnswer::Found(_) => (Tone::Bad, "FAILED"),
            VerdictAnswer::Undecided(_) => (Tone::Warning, "NOT DECIDED"),
        };
        text.push_str(&format!(
            "{}: {} {}\n  {}\n",
            assertion.place,
            colors.paint(tone, word),
            replace_controls(&assertion.to_string()),
            replace_controls(&describe_answer(answer))
        ));
    }
    let failed = run.failed_count();
    let undecided = run.undecided_count();
    let tone = match (failed, undecided) {
        (0, 0) => Tone::Good,
        (0, _) => Tone::Warning,
        (_, _) => Tone::Bad,
    };
    let mut counts = format!("{} passed, {failed} failed", run.passed_count());
    if undecided > 0 {
        counts.push_str(&format!(", {undecided} not decided"));
    }
    text.push_str(&format!(
        "{} ({}): {}\n",
        sanitize_text(&run.policy.name_and_revision()),
        run.location,
        colors.paint(tone, counts)
    ));
    if options.coverage {
        add_coverage(&mut text, run, options, colors);
    }
    text
}

fn add_coverage(
    text: &mut String,
    run: &PolicyTestRun,
    options: CoverageOptions,
    colors: ConsoleColors,
) {
    let branches = run.branch_coverage();
    let rules = run.coverage.rule_ratio(&run.policy);
    let tone = if options.is_missed_by(run) {
        Tone::Bad
    } else if branches.reached == branches.total {
        Tone::Good
    } else {
        Tone::Warning
    };
    let ratios = format!(
        "{} of the branches, {} of the rules",
        format_ratio(branches),
        format_ratio(rules)
    );
    let threshold = options.threshold.map_or(String::new(), |threshold| {
        format!("; the threshold is {threshold} %")
    });
    text.push_str(&format!(
        "  cases cover {}{threshold}\n",
        colors.paint(tone, ratios)
    ));
    let mut missed = run.coverage.rule_coverage(&run.policy);
    missed.retain(|rule| rule.missed_branches().next().is_some());
    let places: Vec<String> = missed
        .iter()
        .map(|rule| rule_place(run, rule).map_or(String::new(), format_place))
        .collect();
    let place_width = places.iter().map(String::len).max().unwrap_or(0);
    let id_width = missed
        .iter()
        .map(|rule| rule.rule.id.as_str().len())
        .max()
        .unwrap_or(0);
    for (rule, place) in missed.iter().zip(&places) {
        let names: Vec<&str> = rule.missed_branches().map(|branch| branch.name).collect();
        let never = colors.paint(Tone::Warning, format!("never {}", names.join(", never ")));
        text.push_str(&format!(
            "    {place:place_width$}  {:id_width$}  {never}\n",
            rule.rule.id.as_str()
        ));
    }
}

fn format_ratio(ratio: CoverageRatio) -> String {
    format!(
        "{} of {} ({:.1} %)",
        ratio.reached,
        ratio.total,
        ratio.percent()
    )
}

fn rule_place<'r>(run: &'r PolicyTestRun, rule: &RuleCoverage<'_>) -> Option<&'r SourceLocation> {
    run.places.get(rule.index)
}

fn format_place(place: &SourceLocation) -> String {
    format!("{}:{}", place.file, place.line)
}

/// Converts the results of all policies.
pub(super) fn to_json(runs: &[PolicyTestRun], options: CoverageOptions) -> Json {
    let failed: usize = runs.iter().map(PolicyTestRun::failed_count).sum();
    let passed: usize = runs.iter().map(PolicyTestRun::passed_count).sum();
    let undecided: usize = runs.iter().map(PolicyTestRun::undecided_count).sum();
    let policies: Vec<Json> = runs.iter().map(|run| run_json(run, options)).collect();
    json!({ "passed": passed, "failed": failed, "undecided": undecided, "policies": policies })
}

fn run_json(run: &PolicyTestRun, options: CoverageOptions) -> Json {
    let cases: Vec<Json> = run
        .cases
        .iter()
        .map(|(case, mismatches)| case_json(case, mismatches))
        .collect();
    let assertions = run.assertions.iter();
    let assertions = assertions.map(|(assertion, answer)| assertion_json(assertion, answer));
    let mut document = json!({
        "policy": run.policy.name_and_revision(),
        "path": run.location,
        "passed": run.passed_count(),
        "failed": run.failed_count(),
        "undecided": run.undecided_count(),
        "cases": cases,
        "assertions": assertions.collect::<Vec<Json>>(),
    });
    if options.coverage
        && let Some(entries) = document.as_object_mut()
    {
        entries.insert("coverage".to_owned(), coverage_json(run, options));
    }
    document
}

fn case_json(case: &Case, mismatches: &[Mismatch]) -> Json {
    let differences: Vec<Json> = mismatches
        .iter()
        .map(|mismatch| {
            json!({
                "key": mismatch.key,
                "expected": mismatch.expected,
                "found": mismatch.actual,
            })
        })
        .collect();
    json!({
        "url": case.facts.url(),
        "file": &*case.place.file,
        "line": case.place.line,
        "passed": mismatches.is_empty(),
        "differences": differences,
    })
}

fn assertion_json(assertion: &CaseAssertion, answer: &VerdictAnswer) -> Json {
    let mut document = json!({
        "assert": assertion.claim.word(),
        "verdict": assertion.claim.verdict().as_str(),
        "rule": assertion.claim.rule(),
        "under": assertion.under,
        "host": assertion.host,
        "crawler": assertion.crawler,
        "file": &*assertion.place.file,
        "line": assertion.place.line,
    });
    let answer = match answer {
        VerdictAnswer::Never => json!({ "answer": "proved" }),
        VerdictAnswer::Found(example) => {
            json!({ "answer": "refuted", "url": example.url, "facts": example.details })
        }
        VerdictAnswer::Undecided(reason) => json!({ "answer": "undecided", "reason": reason }),
    };
    if let (Json::Object(entries), Json::Object(answer)) = (&mut document, answer) {
        entries.extend(answer);
    }
    document
}

fn coverage_json(run: &PolicyTestRun, options: CoverageOptions) -> Json {
    let rules: Vec<Json> = run
        .coverage
        .rule_coverage(&run.policy)
        .iter()
        .map(|rule| rule_coverage_json(run, rule))
        .collect();
    json!({
        "branches": ratio_json(run.branch_coverage()),
        "rules": ratio_json(run.coverage.rule_ratio(&run.policy)),
        "threshold": options.threshold,
        "by_rule": rules,
    })
}

fn ratio_json(ratio: CoverageRatio) -> Json {
    json!({ "reached": ratio.reached, "of": ratio.total, "percent": ratio.percent() })
}

fn rule_coverage_json(run: &PolicyTestRun, rule: &RuleCoverage<'_>) -> Json {
    let place = rule_place(run, rule);
    let branches: serde_json::Map<String, Json> = rule
        .branches
        .iter()
        .map(|branch| (branch.name.to_owned(), branch.reached.into()))
        .collect();
    json!({
        "rule": rule.rule.id.as_str(),
        "file": place.map(|place| &*place.file),
        "line": place.map(|place| place.line),
        "branches": branches,
    })
}
