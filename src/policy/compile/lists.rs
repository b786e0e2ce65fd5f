//! Lists: items brought to canonical form and laid out for the questions that their kind is asked.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::policy::list::texts::{self, Texts};
use crate::policy::list::{Items, List, ListKind};
use crate::policy::source::list_file;
use crate::policy::source::tree::{SourceItems, SourceList, Text};
use crate::vocab::problem::{Place, Problem};
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
        let mut lists = Self {
            all: Vec::new(),
            by_name: HashMap::new(),
            lower: HashMap::new(),
            used: Vec::new(),
        };
        for source in sources {
            let place = lists.all.len();
            lists
                .by_name
                .entry(source.name.value.clone())
                .or_insert((place, source.kind));
            let kind = source.kind.unwrap_or(ListKind::Values);
            let items = if source.kind.is_some() {
                items(kind, source, problems)
            } else {
                Items::empty()
            };
            lists.all.push(List {
                name: source.name.value.clone(),
                kind,
                items,
            });
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
        let Some(list) = self
            .all
            .get(place)
            .filter(|list| list.kind == ListKind::Values)
        else {
            return place;
        };
        let Items::Set(items) = &list.items else {
            return place;
        };
        if !items
            .texts()
            .iter()
            .any(|item| item.bytes().any(|b| b.is_ascii_uppercase()))
        {
            return place;
        }
        if let Some(copy) = self.lower.get(&place) {
            return *copy;
        }
        let mut lower = Texts::default();
        // There is room: together they are as long as before.
        let _ = items
            .texts()
            .iter()
            .all(|item| lower.push(&item.to_ascii_lowercase()));
        let copy = List {
            name: list.name.clone(),
            kind: list.kind,
            items: Items::set(lower),
        };
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

fn items(kind: ListKind, source: &SourceList, problems: &mut Problems) -> Items {
    if kind == ListKind::Addresses {
        let not_a_network = || Mistake::with_help("not a network", "written like 10.0.0.0/8");
        let mut networks = Vec::new();
        each(&source.items, problems, |text| {
            networks.push(network(text).ok_or_else(not_a_network)?);
            Ok(())
        });
        return Items::networks(networks);
    }
    let mut all = room_for(&source.items);
    let mut crowded = false;
    each(&source.items, problems, |text| {
        crowded |= !all.push(&item(kind, text)?);
        Ok(())
    });
    if crowded {
        let message = format!(
            "the items of the list take more than {} MiB",
            texts::MAX_BYTES >> 20
        );
        problems.push(
            Problem::error(&source.name.place, message).help("spread them over several lists"),
        );
    }
    match kind {
        ListKind::UrlPrefixes | ListKind::Surts => Items::prefixes(&all),
        ListKind::Domains
        | ListKind::Hosts
        | ListKind::Urls
        | ListKind::Addresses
        | ListKind::Values => Items::set(all),
    }
}

/// Most items are hosts or longer, and most stay as they are written.
fn room_for(items: &SourceItems) -> Texts {
    match items {
        SourceItems::Written(items) => Texts::with_capacity(items.len(), 0),
        SourceItems::OfFile { text, .. } => Texts::with_capacity(text.len() / 16, text.len()),
    }
}

fn item(kind: ListKind, text: &str) -> Result<Cow<'_, str>, Mistake> {
    Ok(match kind {
        ListKind::Domains | ListKind::Hosts if canonical::is_plain_host(text) => text.into(),
        ListKind::Domains | ListKind::Hosts => canonical::whole_host(text)?.into(),
        ListKind::Urls => canonical::whole_url(text)?.text.into(),
        ListKind::UrlPrefixes => canonical::url_prefix(text).text.into(),
        ListKind::Surts => canonical::surt_prefix(text)?.into(),
        ListKind::Addresses | ListKind::Values => text.into(),
    })
}

/// Takes each item. A wrong one gets its place only now: of a million right ones none is worked out.
fn each(
    items: &SourceItems,
    problems: &mut Problems,
    mut take: impl FnMut(&str) -> Result<(), Mistake>,
) {
    let mut wrong = Wrong {
        problems,
        count: 0,
        last: None,
    };
    match items {
        SourceItems::Written(items) => items.iter().for_each(|text| {
            if let Err(mistake) = take(&text.value) {
                wrong.note(text.clone(), mistake);
            }
        }),
        SourceItems::OfFile { file, text } => list_file::lines(text).for_each(|line| {
            if let Err(mistake) = take(line.item) {
                let column = u32::try_from(line.before + 1).unwrap_or(u32::MAX);
                let place = Place {
                    file: Arc::clone(file),
                    line: line.number,
                    column,
                };
                wrong.note(
                    Text {
                        place,
                        value: line.item.into(),
                    },
                    mistake,
                );
            }
        }),
    }
    wrong.sum_up();
}

/// The wrong items of one list: some are shown, the others counted.
struct Wrong<'p> {
    problems: &'p mut Problems,
    count: usize,
    last: Option<Place>,
}

impl Wrong<'_> {
    fn note(&mut self, text: Text, mistake: Mistake) {
        self.count += 1;
        if self.count <= SHOWN {
            self.problems.push(problem(&text, mistake));
        }
        self.last = Some(text.place);
    }

    fn sum_up(self) {
        if let Some(last) = self.last.filter(|_| self.count > SHOWN) {
            let message = format!("{} more items of this list are wrong", self.count - SHOWN);
            self.problems.push(Problem::error(&last, message));
        }
    }
}
