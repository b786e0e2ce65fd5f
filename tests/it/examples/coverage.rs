//! The coverage of the shipped policies by their cases.

use crawlgate::pipeline::offline_evaluation::OfflineEvaluation;
use crawlgate::policy::coverage::Coverage;

use super::{compiled_file, shipped, worked_examples};

#[test]
fn the_cases_of_the_shipped_policies_cover_both_branches_of_every_rule() {
    let mut missing = vec![];
    for path in shipped().chain(worked_examples()) {
        let compiled = compiled_file(&path).unwrap_or_else(|errors| panic!("{errors}"));
        let policy = &compiled.policy;
        let mut coverage = Coverage::new(policy);
        for case in &compiled.cases {
            coverage
                .record(&OfflineEvaluation::of_every_rule(policy, &case.facts, case.profile).trail);
        }
        for covered in coverage.rule_coverage(policy) {
            for branch in covered.missed_branches() {
                let id = &covered.rule.id;
                missing.push(format!("{}: {id}: {}", path.display(), branch.name));
            }
        }
    }
    assert!(missing.is_empty(), "no case covers\n{}", missing.join("\n"));
}
