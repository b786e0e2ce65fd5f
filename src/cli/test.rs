//! `crawlgate test`: runs the cases that policies bring with them.

use serde_json::{Value as Json, json};

use crate::config::policy::difference;
use crate::config::settings::PolicyOrigin;
use crate::gate::trial::run_case;
use crate::policy::cases::{Case, Mismatch};
use crate::policy::compile::Compiled;

use super::Exit;
use super::args::{Format, TestArgs};
use super::open;
use super::out;
use super::paint::{Paint, Tone};

/// Runs the command.
pub(super) fn run(args: &TestArgs) -> Exit {
    let mut runs = Vec::new();
    let origins = match origins(args) {
        Ok(origins) => origins,
        Err(exit) => return exit,
    };
    for origin in &origins {
        match open::compiled(origin) {
            Ok(compiled) => runs.push(Run::of(compiled)),
            Err(exit) => return exit,
        }
    }
    let passed = runs.iter().all(|run| run.failed() == 0);
    let exit = if passed { Exit::Success } else { Exit::Negative };
    let text = match args.format {
        Format::Text => runs.iter().map(|run| run.to_text(Paint::for_stdout())).collect(),
        Format::Json => format!("{:#}\n", to_json(&runs)),
    };
    out::write(&text, exit)
}

fn origins(args: &TestArgs) -> Result<Vec<PolicyOrigin>, Exit> {
    if args.paths.is_empty() {
        return open::origin(None).map(|origin| vec![origin]);
    }
    Ok(args.paths.iter().cloned().map(PolicyOrigin::Path).collect())
}

/// The cases of one policy, each with what is wrong with it.
struct Run {
    policy: String,
    cases: Vec<(Case, Vec<Mismatch>)>,
}

impl Run {
    fn of(compiled: Compiled) -> Self {
        let policy = &compiled.policy;
        let mismatches = |case: &Case| run_case(policy, case).err().map_or(Vec::new(), |f| f.mismatches);
        let name = format!("{}@{}", policy.name(), policy.revision());
        let cases = compiled.cases.iter().map(|case| (case.clone(), mismatches(case))).collect();
        Self { policy: name, cases }
    }

    fn failed(&self) -> usize {
        self.cases.iter().filter(|(_, mismatches)| !mismatches.is_empty()).count()
    }

    /// A line for each failing case, one for each difference below it, and the counts.
    fn to_text(&self, paint: Paint) -> String {
        let mut text = String::new();
        for (case, mismatches) in self.cases.iter().filter(|(_, mismatches)| !mismatches.is_empty()) {
            let failed = paint.paint(Tone::Bad, "FAILED");
            text.push_str(&format!("{}: {failed} {}\n", case.place, case.facts.url()));
            mismatches.iter().for_each(|m| text.push_str(&format!("  {}\n", difference(m))));
        }
        let failed = self.failed();
        let tone = if failed == 0 { Tone::Good } else { Tone::Bad };
        let counts = format!("{} passed, {failed} failed", self.cases.len() - failed);
        text.push_str(&format!("{}: {}\n", self.policy, paint.paint(tone, counts)));
        text
    }

    fn to_json(&self) -> Json {
        let cases: Vec<Json> =
            self.cases.iter().map(|(case, mismatches)| case_json(case, mismatches)).collect();
        let failed = self.failed();
        json!({ "policy": self.policy, "passed": self.cases.len() - failed, "failed": failed, "cases": cases })
    }
}

fn case_json(case: &Case, mismatches: &[Mismatch]) -> Json {
    let difference = |m: &Mismatch| json!({ "key": m.key, "expected": m.expected, "found": m.found });
    json!({
        "url": case.facts.url(),
        "file": &*case.place.file,
        "line": case.place.line,
        "passed": mismatches.is_empty(),
        "differences": mismatches.iter().map(difference).collect::<Vec<_>>(),
    })
}

fn to_json(runs: &[Run]) -> Json {
    let failed: usize = runs.iter().map(Run::failed).sum();
    let passed = runs.iter().map(|run| run.cases.len()).sum::<usize>() - failed;
    let policies: Vec<Json> = runs.iter().map(Run::to_json).collect();
    json!({ "passed": passed, "failed": failed, "policies": policies })
}
