//! `replace`: its expressions, compiled; and what of a list can be seen to go wrong before any URL is known.

use std::borrow::Cow;

use ::regex::Regex;

use crate::policy::field::Field;
use crate::policy::options::keys::{Reach, Replacement};
use crate::policy::options::{Value, schema};
use crate::policy::pattern::Case;
use crate::policy::source::tree::SourceOption;
use crate::vocab::problem::Problem;
use crate::vocab::problems::Problems;

use super::canonical;
use super::regex;

/// One item, unless something is wrong with it.
pub(super) fn replacement(item: &Value) -> Option<Replacement> {
    let compiled = regex::compile(
        text(item, "regex")?,
        canonical::region(&Field::Url),
        Case::Distinguish,
    );
    let reach = if get(item, "rewrite") == Some(&Value::Bool(true)) {
        Reach::Fetch
    } else {
        Reach::Key
    };
    Some(Replacement {
        regex: compiled.ok()?,
        with: text(item, "with")?.into(),
        reach,
    })
}

/// What is wrong with a value of `replace`.
pub(super) fn check(option: &SourceOption, problems: &mut Problems) {
    let Value::List(items) = &option.value else {
        return;
    };
    if *option.path != *schema::REPLACE_PATH {
        return;
    }
    let before = problems.len();
    items
        .iter()
        .for_each(|item| check_item(option, item, problems));
    if problems.len() == before {
        changed_twice(option, items, problems);
    }
}

fn check_item(option: &SourceOption, item: &Value, problems: &mut Problems) {
    let (Some(pattern), Some(with)) = (text(item, "regex"), text(item, "with")) else {
        return;
    };
    match regex::compile(pattern, canonical::region(&Field::Url), Case::Distinguish) {
        Err(wrong) => {
            let problem = Problem::error(&option.place, wrong.mistake.message).found(pattern);
            problems.push(match wrong.mistake.help {
                Some(help) => problem.help(help),
                None => problem,
            });
        }
        Ok(regex) => {
            if let Some(name) = unknown_group(&regex, with) {
                let message = format!("`with` names a group that `regex` does not have: `{name}`");
                let help = "write ${1} before a letter, a digit or `_`, and $$ for a dollar";
                problems.push(
                    Problem::error(&option.place, message)
                        .found(with)
                        .help(help),
                );
            }
        }
    }
}

/// The first group of `with` that the expression does not have; the library would put nothing in its place.
fn unknown_group<'w>(regex: &Regex, with: &'w str) -> Option<&'w str> {
    groups(with).find(|name| match name.parse::<usize>() {
        Ok(number) => number >= regex.captures_len(),
        Err(_) => !regex.capture_names().flatten().any(|known| known == *name),
    })
}

/// The groups that a replacement names: `$1`, `$name`, `${name}`; `$$` is a dollar.
fn groups(with: &str) -> impl Iterator<Item = &str> {
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

/// A URL is rewritten once. A text that the list would change again wherever it stands shows a mistake at load; what
/// depends on the URL does not show, and there the second change is not made.
fn changed_twice(option: &SourceOption, items: &[Value], problems: &mut Problems) {
    let all: Vec<Replacement> = items.iter().filter_map(replacement).collect();
    let all: Vec<&Replacement> = all.iter().filter(|one| one.reach == Reach::Fetch).collect();
    let through = |url: &str, list: &[&Replacement]| {
        list.iter()
            .fold(Cow::Borrowed(url), |url, one| {
                Cow::Owned(one.apply(url).into_owned())
            })
            .into_owned()
    };
    let mut rest = &*all;
    while let Some((one, behind)) = rest.split_first() {
        rest = behind;
        if one.with.is_empty() || groups(&one.with).next().is_some() {
            continue;
        }
        let once = through(&one.with.replace("$$", "$"), behind);
        let again = through(&once, &all);
        if again != once {
            let message =
                "a URL is rewritten once, and this list would change its own outcome again";
            let problem = Problem::error(&option.place, message).found(&*once);
            problems.push(problem.help(format!("write what it comes to at last: `{again}`")));
        }
    }
}

fn text<'v>(item: &'v Value, key: &str) -> Option<&'v str> {
    if let Value::Text(text) = get(item, key)? {
        Some(text)
    } else {
        None
    }
}

fn get<'v>(item: &'v Value, key: &str) -> Option<&'v Value> {
    let Value::Map(entries) = item else {
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
        let all = |with| groups(with).collect::<Vec<_>>();
        assert_eq!(all("a$1b"), ["1b"]);
        assert_eq!(all("${1}b$$2${name}$"), ["1", "name"]);
        assert_eq!(all("$ $- $0/$2"), ["0", "2"]);
    }
}
