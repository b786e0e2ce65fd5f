//! The results as JUnit XML for continuous integration: a suite per policy, a test per case.
//!
//! There is no standard for JUnit XML. The elements and attributes are those that Jenkins, GitLab and GitHub have in
//! common.

use crate::config::policy::{describe_answer, describe_mismatch};
use crate::diagnostics::problem::SourceLocation;
use crate::policy::cases::{Case, CaseAssertion, Mismatch};
use crate::policy::exact::VerdictAnswer;

use super::{CoverageOptions, PolicyTestRun};

pub(super) fn render(runs: &[PolicyTestRun], options: CoverageOptions, strict: bool) -> String {
    let suites: Vec<JunitSuite> = runs
        .iter()
        .map(|run| JunitSuite::from_run(run, options, strict))
        .collect();
    let tests: usize = suites.iter().map(|suite| suite.tests).sum();
    let failures: usize = suites.iter().map(|suite| suite.failures).sum();
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    text.push_str(&format!(
        "<testsuites name=\"crawlgate\" tests=\"{tests}\" failures=\"{failures}\" errors=\"0\">\n"
    ));
    for suite in &suites {
        text.push_str(&suite.text);
    }
    text.push_str("</testsuites>\n");
    text
}

struct JunitSuite {
    tests: usize,
    failures: usize,
    text: String,
}

impl JunitSuite {
    fn from_run(run: &PolicyTestRun, options: CoverageOptions, strict: bool) -> Self {
        let mut tests = run.cases.len() + run.assertions.len();
        let undecided = run.undecided_count();
        let (mut failures, skipped) = if strict {
            (run.failed_count() + undecided, 0)
        } else {
            (run.failed_count(), undecided)
        };
        let mut body: String = run
            .cases
            .iter()
            .map(|(case, mismatches)| testcase(case, mismatches))
            .collect();
        for (assertion, answer) in &run.assertions {
            body.push_str(&assertion_testcase(assertion, answer, strict));
        }
        if let Some(threshold) = options.threshold {
            tests += 1;
            failures += usize::from(options.is_missed_by(run));
            body.push_str(&threshold_testcase(run, options, threshold));
        }
        let name = escape_xml(&format!("{} ({})", run.policy.name(), run.location));
        let properties = if options.coverage {
            properties(run)
        } else {
            String::new()
        };
        let text = format!(
            "  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\">\n\
             {properties}{body}  </testsuite>\n"
        );
        Self {
            tests,
            failures,
            text,
        }
    }
}

fn properties(run: &PolicyTestRun) -> String {
    format!(
        "    <properties>\n\
         \x20     <property name=\"coverage.branches\" value=\"{:.1}\"/>\n\
         \x20     <property name=\"coverage.rules\" value=\"{:.1}\"/>\n\
         \x20   </properties>\n",
        run.branch_coverage().percent(),
        run.coverage.rule_ratio(&run.policy).percent()
    )
}

/// Renders a case. The line is part of the name, since several cases may have the same URL.
fn testcase(case: &Case, mismatches: &[Mismatch]) -> String {
    let open = testcase_start(&case.place, case.facts.url());
    let messages: Vec<String> = mismatches.iter().map(describe_mismatch).collect();
    match messages.first() {
        None => format!("{open}/>\n"),
        Some(first) => format!(
            "{open}>\n{}    </testcase>\n",
            failure_element(first, &messages.join("\n"))
        ),
    }
}

/// Renders an assertion. One that is not decided counts as skipped, unless the run is strict.
fn assertion_testcase(assertion: &CaseAssertion, answer: &VerdictAnswer, strict: bool) -> String {
    let open = testcase_start(&assertion.place, &assertion.to_string());
    let message = describe_answer(answer);
    match answer {
        VerdictAnswer::Never => format!("{open}/>\n"),
        VerdictAnswer::Undecided(_) if !strict => format!(
            "{open}>\n      <skipped message=\"{}\"/>\n    </testcase>\n",
            escape_xml(&message)
        ),
        VerdictAnswer::Found(_) | VerdictAnswer::Undecided(_) => format!(
            "{open}>\n{}    </testcase>\n",
            failure_element(&message, &message)
        ),
    }
}

fn testcase_start(place: &SourceLocation, subject: &str) -> String {
    let file = escape_xml(&place.file);
    let line = place.line;
    let name = escape_xml(&format!("{}:{line} {subject}", place.file));
    format!("    <testcase classname=\"{file}\" name=\"{name}\" file=\"{file}\" line=\"{line}\"")
}

fn threshold_testcase(run: &PolicyTestRun, options: CoverageOptions, threshold: f64) -> String {
    let open = format!(
        "    <testcase classname=\"coverage\" name=\"at least {threshold} % of the branches\""
    );
    if !options.is_missed_by(run) {
        return format!("{open}/>\n");
    }
    let message = format!("the cases cover {:.1} %", run.branch_coverage().percent());
    let mut missed = Vec::new();
    for rule in run.coverage.rule_coverage(&run.policy) {
        for branch in rule.missed_branches() {
            missed.push(format!("rule {}: never {}", rule.rule.id, branch.name));
        }
    }
    format!(
        "{open}>\n{}    </testcase>\n",
        failure_element(&message, &missed.join("\n"))
    )
}

fn failure_element(message: &str, text: &str) -> String {
    format!(
        "      <failure message=\"{}\" type=\"case\">{}</failure>\n",
        escape_xml(message),
        escape_xml(text)
    )
}

/// Escapes text for attributes and elements, and removes characters that XML 1.0 does not allow.
fn escape_xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        assert_eq!(
            escape_xml("a<b>&\"c\u{1b}\u{0}\n"),
            "a&lt;b&gt;&amp;&quot;c\n"
        );
    }
}
