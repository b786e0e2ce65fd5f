//! One expression of any dialect, and a text: what the translation fits, the original expression fits.

use crawlgate_import::internal::draft::{PolicyDraft, RuleDraft};
use crawlgate_import::internal::expression::{Anchoring, Dialect, SourceExpression};
use crawlgate_import::internal::reference::expression::OriginalExpression;
use crawlgate_policy::MemoryFileSystem;
use crawlgate_policy::internal::policy::cases::CaseFacts;
use crawlgate_policy::internal::policy::compile;

const DIALECTS: [Dialect; 7] = [
    Dialect::Java,
    Dialect::DotNet,
    Dialect::Python,
    Dialect::JavaScript,
    Dialect::Posix,
    Dialect::Pcre,
    Dialect::Automaton,
];

/// The first bytes choose the dialect, and how the expression is compared; expression and path follow, separated by NUL.
pub(crate) fn run(input: &[u8]) {
    let [dialect, comparison, texts @ ..] = input else {
        return;
    };
    let Ok(texts) = std::str::from_utf8(texts) else {
        return;
    };
    let (text, path) = texts.split_once('\0').unwrap_or((texts, "/"));
    let dialect = DIALECTS[usize::from(*dialect) % DIALECTS.len()];
    let anchoring = match comparison % 3 {
        0 => Anchoring::Search,
        1 => Anchoring::Whole,
        _ => Anchoring::Start,
    };
    let expression = SourceExpression {
        text,
        dialect,
        anchoring,
        ignore_case: comparison & 8 != 0 && dialect != Dialect::Automaton,
    };
    let _ = expression.translate_for_replacement();
    let Ok(translated) = expression.translate("path") else {
        return;
    };
    let mut draft = PolicyDraft::default();
    draft.name = "fuzz".to_owned();
    draft.options.set("disposition", "allow");
    draft.rules = vec![RuleDraft::forbid("it", translated.condition).into()];
    let text = draft.to_files().remove("policy.yaml").unwrap_or_default();
    let files = MemoryFileSystem::new().with_file("policy.yaml", text.as_bytes());
    let policy = match compile::load(&files, "policy.yaml") {
        Ok(compiled) => compiled.policy,
        Err(problems) => panic!("{text}: {problems:?}"),
    };
    let original =
        OriginalExpression::new(expression.text, dialect, anchoring, expression.ignore_case);
    let (Ok(original), None) = (original, translated.assumption) else {
        return;
    };
    let Ok(facts) = CaseFacts::for_url(&format!("http://h.example{path}")) else {
        return;
    };
    // A canonical path that every server reads alike.
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '=');
    if !path.starts_with('/') || path.contains("//") || !path.chars().all(is_plain) {
        return;
    }
    let (_, decision) = policy.decide_every_rule(&facts.facts());
    if let Some(expected) = original.is_match(path) {
        assert_eq!(
            decision.rejects(),
            expected,
            "{dialect:?} {anchoring:?} {:?} on {path}: {text}",
            expression.text
        );
    }
}
