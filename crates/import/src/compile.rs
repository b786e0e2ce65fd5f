//! Compilation of drafts by the policy engine.

use crawlgate_policy::MemoryFileSystem;
use crawlgate_policy::internal::diagnostics::problem::Problem;
use crawlgate_policy::internal::policy::compile::{self, CompiledPolicy};

use crate::draft::PolicyDraft;
use crate::input::ImportError;

/// Compiles a draft, which must be valid.
pub(crate) fn compile_draft(draft: &PolicyDraft) -> Result<CompiledPolicy, ImportError> {
    try_compile(draft).map_err(|problems| to_defect(&problems))
}

/// Compiles a draft, whose rules may have values that a policy cannot have.
pub(crate) fn try_compile(draft: &PolicyDraft) -> Result<CompiledPolicy, Vec<Problem>> {
    compile::load(&to_file_system(draft), "policy.yaml")
}

/// Returns the error for a draft that cannot be compiled.
pub(crate) fn to_defect(problems: &[Problem]) -> ImportError {
    let problems = problems.iter().map(ToString::to_string);
    ImportError::Defect(problems.collect::<Vec<_>>().join("\n"))
}

/// Returns the first reason why a draft is not a valid policy.
pub(crate) fn check_draft(draft: &PolicyDraft) -> Result<(), String> {
    let problems = match compile::load(&to_file_system(draft), "policy.yaml") {
        Ok(_) => return Ok(()),
        Err(problems) => problems,
    };
    let error = problems.into_iter().find(|problem| problem.is_error());
    Err(error.map_or_else(
        || "not a valid condition".to_owned(),
        |problem| problem.message.to_string(),
    ))
}

fn to_file_system(draft: &PolicyDraft) -> MemoryFileSystem {
    let mut files = MemoryFileSystem::new();
    for (path, text) in &draft.to_files() {
        files = files.with_file(path, text.as_bytes());
    }
    files
}
