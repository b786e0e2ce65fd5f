//! What the cases came to, for people and for programs.

use serde_json::{Value as Json, json};

use crate::config::policy::difference;
use crate::policy::cases::{Case, Mismatch};
use crate::policy::coverage::{Covered, Share};
use crate::vocab::problem::Place;

use super::super::paint::{Paint, Tone, printable};
use super::{Asked, Run};

/// A line for each failing case, one for each difference below it, and the counts of each policy.
pub(super) fn in_text(runs: &[Run], asked: Asked, paint: Paint) -> String {
    runs.iter()
        .map(|run| run_in_text(run, asked, paint))
        .collect()
}

fn run_in_text(run: &Run, asked: Asked, paint: Paint) -> String {
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
            printable(case.facts.url())
        ));
        mismatches
            .iter()
            .for_each(|m| text.push_str(&format!("  {}\n", printable(&difference(m)))));
    }
    let failed = run.failed();
    let tone = if failed == 0 { Tone::Good } else { Tone::Bad };
    let counts = format!("{} passed, {failed} failed", run.cases.len() - failed);
    text.push_str(&format!(
        "{} ({}): {}\n",
        run.name(),
        run.shown,
        paint.paint(tone, counts)
    ));
    if asked.coverage {
        add_coverage(&mut text, run, asked, paint);
    }
    text
}

fn add_coverage(text: &mut String, run: &Run, asked: Asked, paint: Paint) {
    let (rules, branches) = (run.coverage.by_rule(&run.policy), run.branches());
    let tone = match (asked.is_missed_by(run), branches.reached == branches.of) {
        (true, _) => Tone::Bad,
        (false, true) => Tone::Good,
        (false, false) => Tone::Doubt,
    };
    let shares = format!(
        "{} of the branches, {} of the rules",
        shown(branches),
        shown(rules)
    );
    let least = asked.threshold.map_or(String::new(), |least| {
        format!("; at least {least} % asked for")
    });
    text.push_str(&format!(
        "  cases reach {}{least}\n",
        paint.paint(tone, shares)
    ));
    let covered = run.coverage.rules(&run.policy);
    let missed: Vec<(String, &Covered<'_>)> = covered
        .iter()
        .filter(|rule| rule.missed().next().is_some())
        .map(|rule| (place(run, rule).map_or(String::new(), line_of), rule))
        .collect();
    let width = |of: fn(&(String, &Covered<'_>)) -> usize| missed.iter().map(of).max().unwrap_or(0);
    let (places, ids) = (
        width(|(place, _)| place.len()),
        width(|(_, rule)| rule.rule.id.as_str().len()),
    );
    for (place, rule) in &missed {
        let names: Vec<&str> = rule.missed().map(|branch| branch.name).collect();
        let never = paint.paint(Tone::Doubt, format!("never {}", names.join(", never ")));
        text.push_str(&format!(
            "    {place:places$}  {:ids$}  {never}\n",
            rule.rule.id.as_str()
        ));
    }
}

fn shown(share: Share) -> String {
    format!(
        "{} of {} ({:.1} %)",
        share.reached,
        share.of,
        share.percent()
    )
}

fn place<'r>(run: &'r Run, rule: &Covered<'_>) -> Option<&'r Place> {
    run.places.get(rule.at)
}

fn line_of(place: &Place) -> String {
    format!("{}:{}", place.file, place.line)
}

/// All of it.
pub(super) fn in_json(runs: &[Run], asked: Asked) -> Json {
    let failed: usize = runs.iter().map(Run::failed).sum();
    let passed = runs.iter().map(|run| run.cases.len()).sum::<usize>() - failed;
    let policies: Vec<Json> = runs.iter().map(|run| run_in_json(run, asked)).collect();
    json!({ "passed": passed, "failed": failed, "policies": policies })
}

fn run_in_json(run: &Run, asked: Asked) -> Json {
    let cases: Vec<Json> = run
        .cases
        .iter()
        .map(|(case, mismatches)| case_json(case, mismatches))
        .collect();
    let failed = run.failed();
    let mut all = json!({
        "policy": run.name(),
        "path": run.shown,
        "passed": run.cases.len() - failed,
        "failed": failed,
        "cases": cases,
    });
    if let (true, Some(all)) = (asked.coverage, all.as_object_mut()) {
        all.insert("coverage".to_owned(), coverage_json(run, asked));
    }
    all
}

fn case_json(case: &Case, mismatches: &[Mismatch]) -> Json {
    let difference =
        |m: &Mismatch| json!({ "key": m.key, "expected": m.expected, "found": m.found });
    json!({
        "url": case.facts.url(),
        "file": &*case.place.file,
        "line": case.place.line,
        "passed": mismatches.is_empty(),
        "differences": mismatches.iter().map(difference).collect::<Vec<_>>(),
    })
}

fn coverage_json(run: &Run, asked: Asked) -> Json {
    let share = |share: Share| json!({ "reached": share.reached, "of": share.of, "percent": share.percent() });
    let rule = |rule: &Covered<'_>| {
        let place = place(run, rule);
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
        "branches": share(run.branches()),
        "rules": share(run.coverage.by_rule(&run.policy)),
        "threshold": asked.threshold,
        "by_rule": run.coverage.rules(&run.policy).iter().map(rule).collect::<Vec<_>>(),
    })
}
