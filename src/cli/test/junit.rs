//! What the cases came to as JUnit XML, which continuous integration reads: one suite a policy, one test a case.
//!
//! There is no standard; elements and attributes are those that Jenkins, GitLab and GitHub's readers share.

use crate::config::policy::describe_mismatch;
use crate::policy::cases::{Case, Mismatch};

use super::{CoverageOptions, PolicyTestRun};

/// The document.
pub(super) fn render(runs: &[PolicyTestRun], options: CoverageOptions) -> String {
    let suites: Vec<JunitSuite> = runs
        .iter()
        .map(|run| JunitSuite::from_run(run, options))
        .collect();
    let total = |of: fn(&JunitSuite) -> usize| suites.iter().map(of).sum::<usize>();
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let (tests, failures) = (total(|suite| suite.tests), total(|suite| suite.failures));
    text.push_str(&format!(
        "<testsuites name=\"crawlgate\" tests=\"{tests}\" failures=\"{failures}\" errors=\"0\">\n"
    ));
    suites.iter().for_each(|suite| text.push_str(&suite.text));
    text.push_str("</testsuites>\n");
    text
}

struct JunitSuite {
    tests: usize,
    failures: usize,
    text: String,
}

impl JunitSuite {
    fn from_run(run: &PolicyTestRun, options: CoverageOptions) -> Self {
        let mut tests = run.cases.len();
        let mut failures = run.failed_count();
        let mut body: String = run
            .cases
            .iter()
            .map(|(case, mismatches)| testcase(case, mismatches))
            .collect();
        if let Some(least) = options.threshold {
            tests += 1;
            failures += usize::from(options.is_missed_by(run));
            body.push_str(&threshold_testcase(run, options, least));
        }
        let name = escape_xml(&format!("{} ({})", run.policy.name(), run.location));
        let properties = if options.coverage {
            properties(run)
        } else {
            String::new()
        };
        let text = format!(
            "  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"0\">\n\
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
    let (rules, branches) = (run.coverage.rule_ratio(&run.policy), run.branch_coverage());
    let property =
        |name, value: f64| format!("      <property name=\"{name}\" value=\"{value:.1}\"/>\n");
    format!(
        "    <properties>\n{}{}    </properties>\n",
        property("coverage.branches", branches.percent()),
        property("coverage.rules", rules.percent())
    )
}

/// The line is part of the name: two cases may ask for one URL.
fn testcase(case: &Case, mismatches: &[Mismatch]) -> String {
    let (file, line) = (escape_xml(&case.place.file), case.place.line);
    let name = escape_xml(&format!("{}:{line} {}", case.place.file, case.facts.url()));
    let open = format!(
        "    <testcase classname=\"{file}\" name=\"{name}\" file=\"{file}\" line=\"{line}\""
    );
    let said: Vec<String> = mismatches.iter().map(describe_mismatch).collect();
    match said.first() {
        None => format!("{open}/>\n"),
        Some(first) => format!(
            "{open}>\n{}    </testcase>\n",
            failure_element(first, &said.join("\n"))
        ),
    }
}

fn threshold_testcase(run: &PolicyTestRun, options: CoverageOptions, least: f64) -> String {
    let open =
        format!("    <testcase classname=\"coverage\" name=\"at least {least} % of the branches\"");
    if !options.is_missed_by(run) {
        return format!("{open}/>\n");
    }
    let found = format!("the cases reach {:.1} %", run.branch_coverage().percent());
    let covered = run.coverage.rule_coverage(&run.policy);
    let missed = covered.iter().flat_map(|rule| {
        rule.missed_branches()
            .map(|branch| format!("rule {}: never {}", rule.rule.id, branch.name))
    });
    let all: Vec<String> = missed.collect();
    format!(
        "{open}>\n{}    </testcase>\n",
        failure_element(&found, &all.join("\n"))
    )
}

fn failure_element(message: &str, text: &str) -> String {
    format!(
        "      <failure message=\"{}\" type=\"case\">{}</failure>\n",
        escape_xml(message),
        escape_xml(text)
    )
}

/// Text for attributes and elements; what XML 1.0 cannot hold is left out.
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
    fn nothing_breaks_the_document() {
        assert_eq!(
            escape_xml("a<b>&\"c\u{1b}\u{0}\n"),
            "a&lt;b&gt;&amp;&quot;c\n"
        );
    }
}
