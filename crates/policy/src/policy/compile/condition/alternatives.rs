//! Joins the alternatives of an `any` that compare one field in the same way.
//!
//! `any: [{ path: /a }, { path: /b }, …]` means `path: [/a, /b, …]`. Many values of one test are
//! looked up; many tests are evaluated one after the other.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::policy::field::Field;
use crate::policy::pattern::{CaseSensitivity, TextForm};
use crate::policy::source::tree::{
    LocatedText, SourceAtom, SourceCondition, SourceTest, TextTestKind,
};

/// The number of alternatives up to which they stay as written.
const MAX_SEPARATE: usize = 8;

/// The comparison of a test with a field.
type AlternativeTest<'s> = (&'s Field, TextTestKind, CaseSensitivity, TextForm);

/// Returns alternatives with the same meaning. A joined test is in the place of its first part.
pub(super) fn joined(parts: &[SourceCondition]) -> Vec<Cow<'_, SourceCondition>> {
    if parts.len() <= MAX_SEPARATE {
        return parts.iter().map(Cow::Borrowed).collect();
    }
    let mut all: Vec<Cow<'_, SourceCondition>> = Vec::new();
    let mut places: HashMap<AlternativeTest<'_>, usize> = HashMap::new();
    for part in parts {
        let Some((comparison, values)) = values_of(part) else {
            all.push(Cow::Borrowed(part));
            continue;
        };
        let place = *places.entry(comparison).or_insert(all.len());
        match all.get_mut(place) {
            Some(first) => append(first.to_mut(), values),
            None => all.push(Cow::Borrowed(part)),
        }
    }
    all
}

fn values_of(part: &SourceCondition) -> Option<(AlternativeTest<'_>, &[LocatedText])> {
    let SourceCondition::Atom(SourceAtom {
        field: Some(field),
        test: SourceTest::Text(kind, values),
        case,
        form,
        ..
    }) = part
    else {
        return None;
    };
    Some(((field, *kind, *case, *form), values))
}

fn append(part: &mut SourceCondition, more: &[LocatedText]) {
    if let SourceCondition::Atom(SourceAtom {
        test: SourceTest::Text(_, values),
        ..
    }) = part
    {
        values.extend_from_slice(more);
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::compile::load;
    use crate::policy::condition::Condition;
    use crate::policy::fact::Facts;
    use crate::policy::source::MemoryFileSystem;
    use crate::urls::target::UrlTarget;

    /// Returns the number of tests of an `any`, and whether it rejects each URL.
    fn compile(parts: &[String], urls: &[&str]) -> (usize, Vec<bool>) {
        let text = format!(
            "policy: 1\nname: p\noptions: {{ disposition: allow }}\nrules:\n  \
             - {{ id: r, forbid: {{ any: [{}] }} }}\n",
            parts.join(", ")
        );
        let files = MemoryFileSystem::new().with_file("p", text);
        let policy = load(&files, "p").unwrap().policy;
        let Some(Condition::Any(tests)) = policy.rules[0].condition() else {
            panic!("{parts:?}");
        };
        let rejects = |url: &&str| {
            let target = UrlTarget::parse(url).unwrap();
            policy.decide(&Facts::for_url(&target)).1.rejects()
        };
        (tests.len(), urls.iter().map(rejects).collect())
    }

    #[test]
    fn many_alternatives_on_one_field_become_one_test() {
        let mut parts: Vec<String> = (0..20)
            .map(|n| format!("{{ path: {{ regex: '^/word{n}/' }} }}"))
            .collect();
        parts.insert(3, "{ path: { regex: '^/other', case: ignore } }".into());
        parts.insert(7, "{ path: { glob: '/glob*' } }".into());
        parts.insert(9, "{ all: [{ host: b.example }, { path: /both }] }".into());
        parts.push("{ host: c.example }".into());
        let urls = [
            "http://a.example/word7/",
            "http://a.example/word19/x",
            "http://a.example/Other",
            "http://a.example/globe",
            "http://b.example/both",
            "http://c.example/",
            "http://a.example/both",
            "http://a.example/Word7/",
        ];
        let expected = [true, true, true, true, true, true, false, false];
        assert_eq!(compile(&parts, &urls), (5, expected.into()));
    }

    #[test]
    fn few_alternatives_stay_as_written() {
        let parts: Vec<String> = (0..8).map(|n| format!("{{ path: /a{n} }}")).collect();
        let urls = ["http://a.example/a3", "http://a.example/a9"];
        assert_eq!(compile(&parts, &urls), (8, vec![true, false]));
    }
}
