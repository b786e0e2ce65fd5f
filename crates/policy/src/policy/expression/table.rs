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
