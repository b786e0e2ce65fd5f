//! Boolean formulas over numbered tests.

/// The number of a test in a [`TestTable`](super::tests::TestTable).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TestIndex(pub(super) usize);

/// A Boolean formula over tests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Formula {
    Constant(bool),
    Test(TestIndex),
    Not(Box<Formula>),
    All(Vec<Formula>),
    Any(Vec<Formula>),
}

impl Formula {
    pub(super) fn negate(self) -> Self {
        match self {
            Self::Constant(value) => Self::Constant(!value),
            Self::Not(part) => *part,
            part @ (Self::Test(_) | Self::All(_) | Self::Any(_)) => Self::Not(Box::new(part)),
        }
    }

    /// Returns the conjunction of formulas.
    pub(super) fn all(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut kept = Vec::new();
        for part in parts {
            match part {
                Self::Constant(true) => {}
                Self::Constant(false) => return Self::Constant(false),
                Self::All(inner) => kept.extend(inner),
                part @ (Self::Test(_) | Self::Not(_) | Self::Any(_)) => kept.push(part),
            }
        }
        match kept.pop() {
            None => Self::Constant(true),
            Some(only) if kept.is_empty() => only,
            Some(last) => {
                kept.push(last);
                Self::All(kept)
            }
        }
    }

    /// Returns the disjunction of formulas.
    pub(super) fn any(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut kept = Vec::new();
        for part in parts {
            match part {
                Self::Constant(false) => {}
                Self::Constant(true) => return Self::Constant(true),
                Self::Any(inner) => kept.extend(inner),
                part @ (Self::Test(_) | Self::Not(_) | Self::All(_)) => kept.push(part),
            }
        }
        match kept.pop() {
            None => Self::Constant(false),
            Some(only) if kept.is_empty() => only,
            Some(last) => {
                kept.push(last);
                Self::Any(kept)
            }
        }
    }

    /// Replaces the tests whose value is known.
    pub(super) fn assume(&self, value: &dyn Fn(TestIndex) -> Option<bool>) -> Self {
        match self {
            Self::Constant(value) => Self::Constant(*value),
            Self::Test(test) => value(*test).map_or(Self::Test(*test), Self::Constant),
            Self::Not(part) => part.assume(value).negate(),
            Self::All(parts) => Self::all(parts.iter().map(|part| part.assume(value))),
            Self::Any(parts) => Self::any(parts.iter().map(|part| part.assume(value))),
        }
    }

    /// Calls a function for each test, possibly several times.
    pub(super) fn for_each_test(&self, visit: &mut dyn FnMut(TestIndex)) {
        match self {
            Self::Constant(_) => {}
            Self::Test(test) => visit(*test),
            Self::Not(part) => part.for_each_test(visit),
            Self::All(parts) | Self::Any(parts) => {
                parts.iter().for_each(|part| part.for_each_test(visit));
            }
        }
    }

    /// The number of tests, each as often as it occurs.
    pub(super) fn size(&self) -> usize {
        let mut size = 0;
        self.for_each_test(&mut |_| size += 1);
        size
    }

    /// Returns the tests, sorted.
    pub(super) fn tests(&self) -> Vec<TestIndex> {
        let mut tests = Vec::new();
        self.for_each_test(&mut |test| tests.push(test));
        tests.sort_unstable();
        tests.dedup();
        tests
    }
}
