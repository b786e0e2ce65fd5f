//! The cases of the policies that are shipped reach both branches of every rule.

use crawlgate::pipeline::offline_evaluation::OfflineEvaluation;
use crawlgate::policy::coverage::Coverage;

use super::{compiled_file, shipped, worked_examples};

#[test]
fn the_shipped_policies_reach_both_branches_of_every_rule() {
    let mut missing = vec![];
    for path in shipped().chain(worked_examples()) {
        let compiled = compiled_file(&path).unwrap_or_else(|said| panic!("{said}"));
        let policy = &compiled.policy;
        let mut coverage = Coverage::new(policy);
        for case in &compiled.cases {
            coverage.record(&OfflineEvaluation::new(policy, &case.facts, case.profile).trail);
        }
        for covered in coverage.rule_coverage(policy) {
            let (path, id) = (path.display(), covered.rule.id.as_str());
            missing.extend(
                covered
                    .missed_branches()
                    .map(|branch| format!("{path}: {id}: {}", branch.name)),
            );
        }
    }
    assert!(
        missing.is_empty(),
        "no case reaches\n{}",
        missing.join("\n")
    );
}
