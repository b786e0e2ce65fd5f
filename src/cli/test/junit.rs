//! What the cases came to as JUnit XML, which continuous integration reads: one suite a policy, one test a case.
//!
//! There is no standard; elements and attributes are those that Jenkins, GitLab and GitHub's readers share.

use crate::config::policy::difference;
use crate::policy::cases::{Case, Mismatch};

use super::{Asked, Run};

/// The document.
pub(super) fn of(runs: &[Run], asked: Asked) -> String {
    let suites: Vec<Suite> = runs.iter().map(|run| Suite::of(run, asked)).collect();
    let total = |of: fn(&Suite) -> usize| suites.iter().map(of).sum::<usize>();
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let (tests, failures) = (total(|suite| suite.tests), total(|suite| suite.failures));
    text.push_str(&format!(
        "<testsuites name=\"crawlgate\" tests=\"{tests}\" failures=\"{failures}\" errors=\"0\">\n"
    ));
    suites.iter().for_each(|suite| text.push_str(&suite.text));
    text.push_str("</testsuites>\n");
    text
}

struct Suite {
    tests: usize,
    failures: usize,
    text: String,
}

impl Suite {
    fn of(run: &Run, asked: Asked) -> Self {
        let mut tests = run.cases.len();
        let mut failures = run.failed();
        let mut body: String = run
            .cases
            .iter()
            .map(|(case, mismatches)| test(case, mismatches))
            .collect();
        if let Some(least) = asked.threshold {
            tests += 1;
            failures += usize::from(asked.is_missed_by(run));
            body.push_str(&threshold(run, asked, least));
        }
        let name = escaped(&format!("{} ({})", run.policy.name(), run.shown));
        let properties = if asked.coverage {
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

fn properties(run: &Run) -> String {
    let (rules, branches) = (run.coverage.by_rule(&run.policy), run.branches());
    let property =
        |name, value: f64| format!("      <property name=\"{name}\" value=\"{value:.1}\"/>\n");
    format!(
        "    <properties>\n{}{}    </properties>\n",
        property("coverage.branches", branches.percent()),
        property("coverage.rules", rules.percent())
    )
}

/// The line is part of the name: two cases may ask for one URL.
fn test(case: &Case, mismatches: &[Mismatch]) -> String {
    let (file, line) = (escaped(&case.place.file), case.place.line);
    let name = escaped(&format!("{}:{line} {}", case.place.file, case.facts.url()));
    let open = format!(
        "    <testcase classname=\"{file}\" name=\"{name}\" file=\"{file}\" line=\"{line}\""
    );
    let said: Vec<String> = mismatches.iter().map(difference).collect();
    match said.first() {
        None => format!("{open}/>\n"),
        Some(first) => format!(
            "{open}>\n{}    </testcase>\n",
            failure(first, &said.join("\n"))
        ),
    }
}

fn threshold(run: &Run, asked: Asked, least: f64) -> String {
    let open =
        format!("    <testcase classname=\"coverage\" name=\"at least {least} % of the branches\"");
    if !asked.is_missed_by(run) {
        return format!("{open}/>\n");
    }
    let found = format!("the cases reach {:.1} %", run.branches().percent());
    let covered = run.coverage.rules(&run.policy);
    let missed = covered.iter().flat_map(|rule| {
        rule.missed()
            .map(|branch| format!("rule {}: never {}", rule.rule.id, branch.name))
    });
    let all: Vec<String> = missed.collect();
    format!(
        "{open}>\n{}    </testcase>\n",
        failure(&found, &all.join("\n"))
    )
}

fn failure(message: &str, text: &str) -> String {
    format!(
        "      <failure message=\"{}\" type=\"case\">{}</failure>\n",
        escaped(message),
        escaped(text)
    )
}

/// Text for attributes and elements; what XML 1.0 cannot hold is left out.
fn escaped(text: &str) -> String {
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
        assert_eq!(escaped("a<b>&\"c\u{1b}\u{0}\n"), "a&lt;b&gt;&amp;&quot;c\n");
    }
}
