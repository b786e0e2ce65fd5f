//! The expressions of a policy by their text: equal ones share an automaton, and a reload takes over
//! those that it had before.

use std::collections::HashMap;
use std::sync::Arc;

use crate::policy::pattern::CaseSensitivity;

use super::{Expression, ExpressionError};

/// The expressions of a policy.
#[derive(Debug, Default)]
pub(crate) struct ExpressionTable {
    sensitive: HashMap<Arc<str>, Expression>,
    insensitive: HashMap<Arc<str>, Expression>,
}

impl ExpressionTable {
    fn get(&self, pattern: &str, case: CaseSensitivity) -> Option<&Expression> {
        match case {
            CaseSensitivity::Sensitive => self.sensitive.get(pattern),
            CaseSensitivity::Insensitive => self.insensitive.get(pattern),
        }
    }

    fn insert(&mut self, expression: Expression) {
        let pattern = Arc::clone(&expression.0.pattern);
        match expression.0.case {
            CaseSensitivity::Sensitive => self.sensitive.insert(pattern, expression),
            CaseSensitivity::Insensitive => self.insensitive.insert(pattern, expression),
        };
    }
}

/// Creates the expressions of a policy.
pub(crate) struct ExpressionInterner<'p> {
    /// Those of the policy before.
    previous: Option<&'p ExpressionTable>,
    table: ExpressionTable,
}

impl<'p> ExpressionInterner<'p> {
    pub(crate) fn new(previous: Option<&'p ExpressionTable>) -> Self {
        Self {
            previous,
            table: ExpressionTable::default(),
        }
    }

    /// Returns the expression with this text, or validates a new one.
    pub(crate) fn intern(
        &mut self,
        pattern: &str,
        case: CaseSensitivity,
    ) -> Result<Expression, ExpressionError> {
        if let Some(known) = self.table.get(pattern, case) {
            return Ok(known.clone());
        }
        let previous = self.previous.and_then(|table| table.get(pattern, case));
        let expression = match previous {
            Some(known) => known.clone(),
            None => Expression::new(pattern, case)?,
        };
        self.table.insert(expression.clone());
        Ok(expression)
    }

    pub(crate) fn into_table(self) -> ExpressionTable {
        self.table
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::policy::compile;
    use crate::policy::fact::Facts;
    use crate::policy::source::MemoryFileSystem;
    use crate::urls::target::UrlTarget;

    fn load(rules: &str, previous: Option<&Policy>) -> Policy {
        let text =
            format!("policy: 1\nname: p\noptions: {{ disposition: allow }}\nrules:\n{rules}");
        let files = MemoryFileSystem::new().with_file("p", text);
        compile::load_again(&files, "p", previous).unwrap().policy
    }

    fn expression<'p>(policy: &'p Policy, pattern: &str) -> &'p Expression {
        let found = policy.expressions.get(pattern, CaseSensitivity::Sensitive);
        found.unwrap_or_else(|| panic!("{pattern}"))
    }

    const OLD_RULES: &str = "  - { id: a, forbid: { path: { regex: '^/a+$' } } }\n  \
                             - { id: b, forbid: { path: { regex: '^/b+$' } } }\n  \
                             - { id: c, forbid: { path: { regex: '^/c+$' }, host: c.example } }\n";

    #[test]
    fn a_reload_takes_over_the_expressions_of_unchanged_rules() {
        let old = load(OLD_RULES, None);
        let url = UrlTarget::parse("http://b.example/bb").unwrap();
        old.decide(&Facts::for_url(&url));
        assert!(expression(&old, "^/b+$").is_compiled());
        let new = load(&OLD_RULES.replace("/a+", "/d+"), Some(&old));
        for pattern in ["^/b+$", "^/c+$"] {
            let (old, new) = (expression(&old, pattern), expression(&new, pattern));
            assert!(new.shares_automaton_with(old), "{pattern}");
            assert_eq!(new.is_compiled(), pattern == "^/b+$", "{pattern}");
        }
        assert!(
            old.expressions
                .get("^/d+$", CaseSensitivity::Sensitive)
                .is_none()
        );
        assert!(
            new.expressions
                .get("^/a+$", CaseSensitivity::Sensitive)
                .is_none()
        );
        let (_, decision) = new.decide(&Facts::for_url(
            &UrlTarget::parse("http://b.example/dd").unwrap(),
        ));
        assert!(matches!(
            decision.verdict,
            crate::policy::decide::Verdict::Reject(_)
        ));
    }

    #[test]
    fn equal_expressions_share_an_automaton_if_their_case_sensitivity_is_equal() {
        let mut expressions = ExpressionInterner::new(None);
        let mut intern = |case| expressions.intern("a+", case).unwrap();
        let first = intern(CaseSensitivity::Sensitive);
        assert!(first.shares_automaton_with(&intern(CaseSensitivity::Sensitive)));
        let folded = intern(CaseSensitivity::Insensitive);
        assert!(!first.shares_automaton_with(&folded));
        assert!(folded.is_match("A") && !first.is_match("A"));
    }
}
