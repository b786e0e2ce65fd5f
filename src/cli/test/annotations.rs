//! The results as annotations of a GitHub workflow: one for each case that fails, at its line.

use crate::cli::annotation::{Annotation, AnnotationLevel};
use crate::config::policy::{describe_answer, describe_mismatch};
use crate::diagnostics::problem::SourceLocation;
use crate::policy::exact::VerdictAnswer;

use super::{CoverageOptions, PolicyTestRun};

pub(super) fn render(runs: &[PolicyTestRun], options: CoverageOptions, strict: bool) -> String {
    runs.iter()
        .map(|run| render_run(run, options, strict))
        .collect()
}

fn render_run(run: &PolicyTestRun, options: CoverageOptions, strict: bool) -> String {
    let mut text = String::new();
    for (case, mismatches) in &run.cases {
        if !mismatches.is_empty() {
            let differences: Vec<String> = mismatches.iter().map(describe_mismatch).collect();
            let message = format!("{}: {}", case.facts.url(), differences.join(", "));
            text += &annotation(
                AnnotationLevel::Error,
                &case.place,
                "a case fails",
                &message,
            );
        }
    }
    for (assertion, answer) in &run.assertions {
        let (level, title) = match answer {
            VerdictAnswer::Never => continue,
            VerdictAnswer::Found(_) => (AnnotationLevel::Error, "an assertion is refuted"),
            VerdictAnswer::Undecided(_) if strict => {
                (AnnotationLevel::Error, "an assertion is not decided")
            }
            VerdictAnswer::Undecided(_) => {
                (AnnotationLevel::Warning, "an assertion is not decided")
            }
        };
        let message = format!("{assertion}: {}", describe_answer(answer));
        text += &annotation(level, &assertion.place, title, &message);
    }
    if let Some(threshold) = options.threshold
        && options.is_missed_by(run)
    {
        let message = format!(
            "the cases cover {:.1} % of the branches; the threshold is {threshold} %",
            run.branch_coverage().percent()
        );
        let place = SourceLocation::for_file(&run.location.as_str().into());
        text += &annotation(
            AnnotationLevel::Error,
            &place,
            "too few branches are covered",
            &message,
        );
    }
    text
}

fn annotation(
    level: AnnotationLevel,
    place: &SourceLocation,
    title: &str,
    message: &str,
) -> String {
    let annotation = Annotation {
        level,
        file: &place.file,
        line: place.line,
        column: place.column,
        title,
        message,
    };
    format!("{annotation}\n")
}
