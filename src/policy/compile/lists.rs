//! Lists: items brought to canonical form and laid out for the questions that their kind is asked.

use std::collections::HashMap;

use crate::policy::list::{Items, List, ListKind};
use crate::policy::source::tree::{SourceList, Text};
use crate::vocab::problem::Problem;
use crate::vocab::problems::Problems;

use super::canonical::{self, Mistake};
use super::condition::{network, problem};

/// How many wrong items of one list are shown.
const SHOWN: usize = 20;

/// The lists of a policy by name.
pub(super) struct Lists {
    all: Vec<List>,
    by_name: HashMap<Box<str>, (usize, Option<ListKind>)>,
    /// The form in lower case of a list of values, for fields that do not distinguish case.
    lower: HashMap<usize, usize>,
    used: Vec<bool>,
}

impl Lists {
    /// Compiles all lists; wrong items are reported.
    pub(super) fn compile(sources: &[SourceList], problems: &mut Problems) -> Self {
        let mut lists =
            Self { all: Vec::new(), by_name: HashMap::new(), lower: HashMap::new(), used: Vec::new() };
        for source in sources {
            let place = lists.all.len();
            lists.by_name.entry(source.name.value.clone()).or_insert((place, source.kind));
            let kind = source.kind.unwrap_or(ListKind::Values);
            let items =
                if source.kind.is_some() { items(kind, &source.items, problems) } else { Items::empty() };
            lists.all.push(List { name: source.name.value.clone(), kind, items });
            lists.used.push(false);
        }
        lists
    }

    /// The place and kind of a list; the kind is none if it could not be read.
    pub(super) fn find(&mut self, name: &str) -> Option<(usize, Option<ListKind>)> {
        let found = self.by_name.get(name).copied()?;
        if let Some(used) = self.used.get_mut(found.0) {
            *used = true;
        }
        Some(found)
    }

    /// The names of all lists, in the order of the policy.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|list| &*list.name)
    }

    /// The place of a list whose items are in lower case: that of a copy if some are not.
    pub(super) fn in_lower_case(&mut self, place: usize) -> usize {
        let Some(list) = self.all.get(place).filter(|list| list.kind == ListKind::Values) else {
            return place;
        };
        let Items::Set(items) = &list.items else { return place };
        if !items.iter().any(|item| item.bytes().any(|b| b.is_ascii_uppercase())) {
            return place;
        }
        if let Some(copy) = self.lower.get(&place) {
            return *copy;
        }
        let items = items.iter().map(|item| item.to_ascii_lowercase().into()).collect();
        let copy = List { name: list.name.clone(), kind: list.kind, items: Items::Set(items) };
        self.lower.insert(place, self.all.len());
        self.all.push(copy);
        self.all.len() - 1
    }

    /// Advice about lists that no condition names.
    pub(super) fn unused(&self, sources: &[SourceList], problems: &mut Problems) {
        let unused = sources.iter().zip(&self.used).filter(|(_, used)| !**used);
        for (list, _) in unused {
            let problem = Problem::advice(&list.name.place, "a list that no condition names");
            problems.push(problem.found(&*list.name.value));
        }
    }

    /// The lists themselves.
    pub(super) fn into_lists(self) -> Box<[List]> {
        self.all.into()
    }
}

fn items(kind: ListKind, texts: &[Text], problems: &mut Problems) -> Items {
    if kind == ListKind::Addresses {
        let not_a_network = || Mistake::with_help("not a network", "written like 10.0.0.0/8");
        let networks = each(texts, problems, |text| network(text).ok_or_else(not_a_network));
        return Items::networks(networks);
    }
    let all: Vec<Box<str>> = each(texts, problems, |text| item(kind, text));
    match kind {
        ListKind::UrlPrefixes | ListKind::Surts => Items::prefixes(all),
        ListKind::Domains | ListKind::Hosts | ListKind::Urls | ListKind::Addresses | ListKind::Values => {
            Items::Set(all.into_iter().collect())
        }
    }
}

fn item(kind: ListKind, text: &str) -> Result<Box<str>, Mistake> {
    Ok(match kind {
        ListKind::Domains | ListKind::Hosts => canonical::whole_host(text)?.into(),
        ListKind::Urls => canonical::whole_url(text)?.text.into(),
        ListKind::UrlPrefixes => canonical::url_prefix(text).text.into(),
        ListKind::Surts => canonical::surt_prefix(text)?.into(),
        ListKind::Addresses | ListKind::Values => text.into(),
    })
}

fn each<T>(texts: &[Text], problems: &mut Problems, read: impl Fn(&str) -> Result<T, Mistake>) -> Vec<T> {
    let mut wrong = 0;
    let mut all = Vec::with_capacity(texts.len());
    for text in texts {
        match read(&text.value) {
            Ok(item) => all.push(item),
            Err(mistake) => {
                wrong += 1;
                if wrong <= SHOWN {
                    problems.push(problem(text, mistake));
                }
            }
        }
    }
    if let Some(last) = texts.last().filter(|_| wrong > SHOWN) {
        problems.push(Problem::error(
            &last.place,
            format!("{} more items of this list are wrong", wrong - SHOWN),
        ));
    }
    all
}
