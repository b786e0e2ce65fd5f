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

    /// Adds an expression of the policy before.
    pub(crate) fn take_over(&mut self, expression: &Expression) {
        let parts = &*expression.0;
        if self.table.get(&parts.pattern, parts.case).is_none() {
            self.table.insert(expression.clone());
        }
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
    use crate::policy::decide::Verdict;
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

    /// Rules on different texts, enough for an index.
    fn rules(changed: &str) -> String {
        let rule =
            |n| format!("  - {{ id: r{n}, forbid: {{ path: {{ regex: '^/word{n}/a+$' }} }} }}\n");
        let all: String = (0..40).map(rule).collect();
        all.replace("word7/", changed)
    }

    fn decide(policy: &Policy, url: &str) -> Verdict {
        let url = UrlTarget::parse(url).unwrap();
        policy.decide(&Facts::for_url(&url)).1.verdict
    }

    #[test]
    fn a_reload_takes_over_the_expressions_of_unchanged_rules() {
        let old = load(&rules("word7/"), None);
        assert!(!expression(&old, "^/word3/a+$").is_compiled());
        assert!(matches!(
            decide(&old, "http://b.example/word3/aa"),
            Verdict::Reject(_)
        ));
        assert!(expression(&old, "^/word3/a+$").is_compiled());
        let new = load(&rules("changed/"), Some(&old));
        for n in (0..40).filter(|n| *n != 7) {
            let pattern = format!("^/word{n}/a+$");
            let (old, new) = (expression(&old, &pattern), expression(&new, &pattern));
            assert!(new.shares_automaton_with(old), "{pattern}");
            assert_eq!(new.is_compiled(), n == 3, "{pattern}");
        }
        let get = |policy: &Policy, pattern| {
            policy
                .expressions
                .get(pattern, CaseSensitivity::Sensitive)
                .is_some()
        };
        assert!(!get(&old, "^/changed/a+$") && !get(&new, "^/word7/a+$"));
        assert!(matches!(
            decide(&new, "http://b.example/changed/a"),
            Verdict::Reject(_)
        ));
    }

    #[test]
    fn expressions_that_every_request_or_tunnel_needs_are_compiled_by_the_load() {
        let many: Vec<String> = (0..20)
            .map(|n| format!("'/many{n}/b+', '/[a-z]{n}'"))
            .collect();
        let extra = format!(
            "  - {{ id: always, forbid: {{ path: {{ regex: '^/[a-z]$' }} }} }}\n  \
             - {{ id: host, forbid: {{ host: {{ regex: '^hosts[0-9]' }} }} }}\n  \
             - {{ id: many, forbid: {{ path: {{ regex: [{}] }} }} }}\n",
            many.join(", ")
        );
        let of_one_key: String = (0..70)
            .map(|n| {
                format!("  - {{ forbid: {{ path: {{ regex: '^/calendar/[0-9]{{{n}}}$' }} }} }}\n")
            })
            .collect();
        let of_one_group: Vec<String> = (0..70)
            .map(|n| format!("{{ forbid: {{ path: {{ regex: '^/[a-z]{n}$' }} }} }}"))
            .collect();
        let of_one_group = format!(
            "  - {{ when: {{ domain: big.example }}, rules: [{}] }}\n",
            of_one_group.join(", ")
        );
        let crawler = "  - { forbid: { crawler: { regex: 'bot[0-9]+' } } }\n";
        let policy = rules("word7/") + &extra + &of_one_key + &of_one_group + crawler;
        let policy = load(&policy, None);
        for (pattern, is_compiled) in [
            ("^/[a-z]$", true),
            ("^hosts[0-9]", true),
            ("/[a-z]3", true),
            ("^/calendar/[0-9]{3}$", true),
            ("^/[a-z]3$", true),
            ("bot[0-9]+", true),
            ("/many3/b+", false),
            ("^/word3/a+$", false),
        ] {
            let found = [CaseSensitivity::Sensitive, CaseSensitivity::Insensitive]
                .into_iter()
                .find_map(|case| policy.expressions.get(pattern, case));
            assert_eq!(found.unwrap().is_compiled(), is_compiled, "{pattern}");
        }
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
