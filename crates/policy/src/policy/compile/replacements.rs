//! Compiles `replace`, and detects mistakes in it that do not depend on a URL.

use std::borrow::Cow;

use ::regex::Regex;

use crate::diagnostics::problem::Problem;
use crate::diagnostics::problems::Problems;
use crate::policy::field::Field;
use crate::policy::options::url_rewrite::{RewriteScope, UrlReplacement};
use crate::policy::options::{OptionValue, schema};
use crate::policy::source::tree::SourceOption;

use super::canonical;
use super::regex;

/// Compiles one item; `None` if it is invalid.
pub(super) fn compile_replacement(item: &OptionValue) -> Option<UrlReplacement> {
    let compiled =
        regex::compile_with_groups(get_text(item, "regex")?, canonical::url_region(&Field::Url));
    Some(UrlReplacement {
        regex: compiled.ok()?,
        with: get_text(item, "with")?.into(),
        scope: RewriteScope::of_option(item),
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
    match regex::compile_with_groups(pattern, canonical::url_region(&Field::Url)) {
        Err(invalid) => {
            let problem = Problem::error(&option.place, invalid.error.message).with_found(pattern);
            problems.push(match invalid.error.help {
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
            let (_, reference) = rest.split_once('$')?;
            if let Some(after) = reference.strip_prefix('$') {
                rest = after;
                continue;
            }
            let braced = reference
                .strip_prefix('{')
                .and_then(|name| name.split_once('}'));
            let length = reference
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(reference.len());
            let (name, after) = braced.unwrap_or_else(|| reference.split_at(length));
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
    let all: Vec<UrlReplacement> = items
        .iter()
        .filter_map(compile_replacement)
        .filter(|replacement| replacement.scope == RewriteScope::Fetch)
        .collect();
    let mut rest = &*all;
    while let Some((first, later)) = rest.split_first() {
        rest = later;
        if first.with.is_empty() || group_references(&first.with).next().is_some() {
            continue;
        }
        let once = apply_all(first.with.replace("$$", "$"), later);
        let twice = apply_all(once.clone(), &all);
        if twice != once {
            let message =
                "a URL is rewritten once, but this list would change its own result again";
            let problem = Problem::error(&option.place, message).with_found(&*once);
            problems.push(problem.with_help(format!("write the final result: `{twice}`")));
        }
    }
}

fn apply_all(url: String, replacements: &[UrlReplacement]) -> String {
    replacements
        .iter()
        .fold(Cow::Owned(url), |url, replacement| replacement.apply(url))
        .into_owned()
}

fn get_text<'v>(item: &'v OptionValue, key: &str) -> Option<&'v str> {
    item.get(key)?.as_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_read_as_the_library_reads_them() {
        for (with, expected) in [
            ("a$1b", &["1b"][..]),
            ("${1}b$$2${name}$", &["1", "name"]),
            ("$ $- $0/$2", &["0", "2"]),
        ] {
            assert_eq!(group_references(with).collect::<Vec<_>>(), expected);
        }
    }
}
