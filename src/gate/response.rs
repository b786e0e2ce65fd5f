//! From the origin's answer to the client: the stages behind the origin, in their order.

use http::HeaderValue;
use http::response::Parts;

pub use crate::ledger::record::ContentHash;
pub use crate::policy::fact::{DocumentFacts, HeaderView};
use crate::vocab::profile::Conditional;

use super::changes::{self, Changes};
use super::failing::{self, Failing};
use super::hold::Hold;
use super::judged::Judged;
use super::refusal::Refusal;
use super::stage::document::Wanted;
use super::stage::learn::Learning;
pub use super::stage::recrawl::Content;
use super::stage::{class, content, document, ledger, recrawl, redirect};

/// What an answer that is passed on says beside what its origin says.
#[derive(Debug)]
pub struct Marks {
    /// How it counts as an error: `Crawl-Error`.
    pub failing: Option<Failing>,
    /// What is found in it: a `Crawl-Tag` each.
    pub tags: Vec<HeaderValue>,
    /// Why the policy would refuse what it leads to: `Crawl-Redirect`.
    pub redirect: Option<HeaderValue>,
}

/// Judges the origin's head, before a byte of its body is sent on. `asked` is whether the client asked for a 304. Where an
/// answer that is passed on leads to is remembered by the hold.
///
/// # Errors
/// The refusal that takes the place of the origin's answer.
pub fn response<C>(
    judged: &mut Judged<C>,
    head: &Parts,
    asked: Conditional,
    learning: Option<&mut Learning>,
    hold: &Hold,
) -> Result<Marks, Box<Refusal>> {
    let leads = redirect::of(judged, head);
    let failing = failing::of_answer(head, recrawl::asked_for(judged, asked), &leads);
    let kind = content::kind_of(head);
    let verdict = content::judge(judged, head, &kind);
    if let Some(learning) = learning {
        learning.heard(judged, head, &kind, failing, ledger::now(hold));
    }
    verdict?;
    let tags = recrawl::judge(judged, head)?;
    class::note_redirect(judged, &leads, hold);
    let redirect = redirect::refused(judged, head.status, &leads);
    Ok(Marks {
        failing,
        tags,
        redirect,
    })
}

/// What has to be read of the body of an answer that passed, before it may be sent on; `None` if nothing, which is known
/// without a look at the answer if the policy never asks.
pub fn wanted<'j, C>(judged: &'j Judged<C>, head: &Parts) -> Option<Wanted<'j>> {
    document::wanted(judged, head)
}

/// Judges the document, of which nothing is sent on yet. `head` is the origin's.
///
/// # Errors
/// The refusal that takes the place of the origin's answer.
pub fn document<C>(
    judged: &mut Judged<C>,
    head: &Parts,
    document: DocumentFacts<'_>,
) -> Result<(), Box<Refusal>> {
    document::judge(judged, head, document)
}

/// What is changed in the body of an answer that passed.
pub fn changes<C>(judged: &Judged<C>, head: &Parts) -> Option<Changes> {
    changes::of(judged, head)
}

/// What the content of an answer that passed is asked for.
pub fn content<C>(judged: &Judged<C>, head: &Parts) -> Content {
    recrawl::content(judged, head)
}

/// Judges the content of a body of which nothing is sent on yet, by its hash.
///
/// # Errors
/// The refusal that takes the place of the origin's answer.
pub fn same_content<C>(
    judged: &Judged<C>,
    head: &Parts,
    learning: &Learning,
    hash: &ContentHash,
) -> Result<(), Box<Refusal>> {
    recrawl::judge_content(judged, head, learning, hash)
}
