//! Compiles `replace`, and detects mistakes in it that do not depend on a URL.

use std::borrow::Cow;

use ::regex::Regex;

use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::policy::field::Field;
use crate::policy::options::url_rewrite::{RewriteScope, UrlReplacement};
use crate::policy::options::{OptionValue, schema};
use crate::policy::pattern::CaseSensitivity;
use crate::policy::source::tree::SourceOption;

use super::canonical;
use super::regex;

/// Compiles one item; `None` if it is invalid.
pub(super) fn compile_replacement(item: &OptionValue) -> Option<UrlReplacement> {
    let compiled = regex::compile(
        get_text(item, "regex")?,
        canonical::url_region(&Field::Url),
        CaseSensitivity::Sensitive,
    );
    let reach = if get(item, "rewrite") == Some(&OptionValue::Bool(true)) {
        RewriteScope::Fetch
    } else {
        RewriteScope::Key
    };
    Some(UrlReplacement {
        regex: compiled.ok()?,
        with: get_text(item, "with")?.into(),
        scope: reach,
    })
}

/// Reports what is wrong with a value of `replace`.
pub(super) fn check_replacements(option: &SourceOption, problems: &mut Problems) {
    let OptionValue::List(items) = &option.value else {
        return;
    };
    if *option.path != *schema::REPLACE_PATH {
        return;
    }
    let before = problems.len();
    items
        .iter()
        .for_each(|item| check_replacement(option, item, problems));
    if problems.len() == before {
        check_applied_once(option, items, problems);
    }
}

fn check_replacement(option: &SourceOption, item: &OptionValue, problems: &mut Problems) {
    let (Some(pattern), Some(with)) = (get_text(item, "regex"), get_text(item, "with")) else {
        return;
    };
    match regex::compile(
        pattern,
        canonical::url_region(&Field::Url),
        CaseSensitivity::Sensitive,
    ) {
        Err(wrong) => {
            let problem = Problem::error(&option.place, wrong.error.message).with_found(pattern);
            problems.push(match wrong.error.help {
                Some(help) => problem.with_help(help),
                None => problem,
            });
        }
        Ok(regex) => {
            if let Some(name) = find_unknown_group(&regex, with) {
                let message =
                    format!("`with` refers to a group that `regex` does not have: `{name}`");
                let help = "write ${1} before a letter, a digit or `_`, and $$ for a dollar sign";
                problems.push(
                    Problem::error(&option.place, message)
                        .with_found(with)
                        .with_help(help),
                );
            }
        }
    }
}

/// Returns the first group in `with` that the expression does not have; the library would silently
/// insert nothing.
fn find_unknown_group<'w>(regex: &Regex, with: &'w str) -> Option<&'w str> {
    group_references(with).find(|name| match name.parse::<usize>() {
        Ok(number) => number >= regex.captures_len(),
        Err(_) => !regex.capture_names().flatten().any(|known| known == *name),
    })
}

/// Returns the groups that a replacement names: `$1`, `$name`, `${name}`; `$$` is a dollar sign.
fn group_references(with: &str) -> impl Iterator<Item = &str> {
    let mut rest = with;
    std::iter::from_fn(move || {
        loop {
            let (_, behind) = rest.split_once('$')?;
            if let Some(behind) = behind.strip_prefix('$') {
                rest = behind;
                continue;
            }
            let braced = behind
                .strip_prefix('{')
                .and_then(|name| name.split_once('}'));
            let length = behind
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(behind.len());
            let (name, after) = braced.unwrap_or_else(|| behind.split_at(length));
            rest = after;
            if !name.is_empty() {
                return Some(name);
            }
        }
    })
}

/// Reports a list that would change its own result. A URL is rewritten only once: a replacement
/// text that the list would change wherever it occurs is a mistake that can be detected here.
/// Changes that depend on the URL are not detected; the second change is not made.
fn check_applied_once(option: &SourceOption, items: &[OptionValue], problems: &mut Problems) {
    let all: Vec<UrlReplacement> = items.iter().filter_map(compile_replacement).collect();
    let all: Vec<&UrlReplacement> = all
        .iter()
        .filter(|one| one.scope == RewriteScope::Fetch)
        .collect();
    let through = |url: &str, list: &[&UrlReplacement]| {
        list.iter()
            .fold(Cow::Borrowed(url), |url, one| {
                Cow::Owned(one.apply(url).into_owned())
            })
            .into_owned()
    };
    let mut rest = &*all;
    while let Some((one, behind)) = rest.split_first() {
        rest = behind;
        if one.with.is_empty() || group_references(&one.with).next().is_some() {
            continue;
        }
        let once = through(&one.with.replace("$$", "$"), behind);
        let again = through(&once, &all);
        if again != once {
            let message =
                "a URL is rewritten once, but this list would change its own result again";
            let problem = Problem::error(&option.place, message).with_found(&*once);
            problems.push(problem.with_help(format!("write the final result: `{again}`")));
        }
    }
}

fn get_text<'v>(item: &'v OptionValue, key: &str) -> Option<&'v str> {
    if let OptionValue::Text(text) = get(item, key)? {
        Some(text)
    } else {
        None
    }
}

fn get<'v>(item: &'v OptionValue, key: &str) -> Option<&'v OptionValue> {
    let OptionValue::Map(entries) = item else {
        return None;
    };
    entries
        .iter()
        .find(|(k, _)| **k == *key)
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_as_the_library_reads_them() {
        let all = |with| group_references(with).collect::<Vec<_>>();
        assert_eq!(all("a$1b"), ["1b"]);
        assert_eq!(all("${1}b$$2${name}$"), ["1", "name"]);
        assert_eq!(all("$ $- $0/$2"), ["0", "2"]);
    }
}
