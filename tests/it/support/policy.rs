//! Policies of tests.

use crawlgate::policy::compile::{self, CompiledPolicy};
use crawlgate::policy::source::MemoryFileSystem;

/// Compiles the text of a policy.
///
/// # Panics
/// If it has errors.
#[track_caller]
pub(crate) fn compile_policy(text: impl AsRef<[u8]>) -> CompiledPolicy {
    let files = MemoryFileSystem::new().with_file("p.yaml", text.as_ref());
    compile::load(&files, "p.yaml").unwrap_or_else(|problems| {
        let text = String::from_utf8_lossy(text.as_ref());
        panic!("{problems:?} in {text}")
    })
}

/// A policy that neither refuses nor delays a request, with these additional options and rules, each in lines of YAML's
/// block style.
pub(crate) fn allow_all(options: &str, rules: &str) -> String {
    format!(
        "policy: 1
name: allow-all
options:
  disposition: allow
  robots: {{ obey: false }}
  politeness: {{ delay: 0s, concurrency: 100 }}
{options}
rules:
{rules}
"
    )
}
