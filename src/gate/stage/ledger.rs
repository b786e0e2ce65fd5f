//! Ledger: what is remembered of the URL: whether it is known, how deep it is, and whether it is asked for too soon.
//!
//! Every crawler has records of its own. What is noted of a request is `learn`'s; what answers are told to be is
//! `recrawl`'s.

use std::net::IpAddr;
use std::sync::Arc;

use crate::gate::destination::Addresses;
use crate::gate::hold::Hold;
use crate::gate::judged::{Asked, Judged};
use crate::gate::refusal::Refusal;
use crate::gate::schedules::since_1970;
use crate::gate::snapshot::DepthRules;
use crate::ledger::key::Key;
use crate::ledger::record::{At, Record};
use crate::ledger::verdict;
use crate::policy::Policy;
use crate::policy::decide::{Cause, Decision};
use crate::policy::fact::InLedger;
use crate::policy::options::recrawl::{self, AFTER_ERROR, MIN_INTERVAL};
use crate::policy::options::{SetBy, Slot};
use crate::policy::trail::Trail;
use crate::store::ledger::Ledger;
use crate::vocab::crawler::Crawler;
use crate::vocab::reason::Reason;
use crate::vocab::rule_id::RuleId;
use crate::vocab::stage::Stage;
use crate::vocab::target::UrlTarget;

use super::recrawl::{is_had, refetches};

/// Where to look for what came before.
#[derive(Clone, Copy, Debug)]
pub(in crate::gate) struct Past<'a> {
    /// The ledger, if there is one.
    pub(in crate::gate) ledger: Option<&'a Ledger>,
    /// The redirections of the last ten minutes.
    pub(in crate::gate) hold: &'a Hold,
}

/// What is remembered of a request's URL, and where what becomes of it is noted.
#[derive(Clone, Debug)]
pub(in crate::gate) struct Recalled {
    pub(in crate::gate) ledger: Ledger,
    pub(in crate::gate) key: Key,
    pub(in crate::gate) record: Option<Arc<Record>>,
    /// The depth that the crawler itself has said.
    said: Option<u32>,
    /// The depth that links in the document are counted from.
    pub(in crate::gate) base: Option<u32>,
    /// The address that is asked, and before that is known the one that was asked last.
    pub(in crate::gate) address: Option<IpAddr>,
    /// Whether the conditions of the request are the proxy's own.
    pub(in crate::gate) conditions: Conditions,
}

/// Whose question it is whether a document has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::gate) enum Conditions {
    /// The client's, or nobody's.
    Theirs,
    /// The proxy's.
    Ours,
}

/// Recalls what is known of a request's URL, and has it judged anew where a rule would see that.
pub(super) fn recall<C>(judged: &mut Judged<C>, ledger: &Ledger, hold: &Hold) {
    let said = judged.asked.depth();
    let key = key_of(
        judged.policy(),
        &judged.trail,
        &judged.asked.crawler,
        &judged.asked.target,
    );
    let record = ledger.look_up(key);
    let known = record.as_ref().is_some_and(|record| record.is_known());
    let remembered = record.as_ref().and_then(|record| record.depth);
    let found = found_at(judged, ledger, hold);
    let depth = found.map(|found| remembered.map_or(found, |remembered| found.min(remembered)));
    // A request that comes from nowhere is a start for what it leads to, unless it is known better.
    let start = judged.asked.referer().is_empty().then_some(0);
    let base = depth.or(remembered).or(start);
    let changed = depth != judged.asked.depth();
    judged
        .asked
        .recall(depth, if known { InLedger::Yes } else { InLedger::No });
    if changed && judged.snapshot.depth_rules == DepthRules::Some {
        super::scope::again(judged);
    }
    let address = record.as_ref().and_then(|record| record.address);
    let (ledger, conditions) = (ledger.clone(), Conditions::Theirs);
    judged.recalled = Some(Recalled {
        ledger,
        key,
        record,
        said,
        base,
        address,
        conditions,
    });
}

/// A request as it was before anything was remembered of it, to be judged again.
pub(in crate::gate) fn forgotten(mut asked: Asked, recalled: Option<Recalled>) -> Asked {
    if let Some(recalled) = recalled {
        asked.recall(recalled.said, InLedger::No);
    }
    asked
}

/// The key of a URL after what the rules have done for one request.
pub(super) fn key_of(policy: &Policy, trail: &Trail, crawler: &Crawler, target: &UrlTarget) -> Key {
    Key::of_url(crawler.as_str(), &policy.key_url(trail, target))
}

/// How many links from a start the request's URL was found, as far as this request shows: what the crawler says, else
/// the least of what its `Referer` and a redirection come to.
fn found_at<C>(judged: &Judged<C>, ledger: &Ledger, hold: &Hold) -> Option<u32> {
    let asked = &judged.asked;
    if asked.depth().is_some() {
        return asked.depth();
    }
    let linked = || {
        let page = Some(asked.referer()).filter(|page| !page.is_empty());
        let page = page.and_then(|page| UrlTarget::parse(page).ok())?;
        let record = ledger.look_up(key_of(
            judged.policy(),
            &judged.trail,
            &asked.crawler,
            &page,
        ))?;
        record.depth.map(|depth| depth.saturating_add(1))
    };
    let redirected = asked
        .urls()
        .filter_map(|url| hold.redirected_from(&asked.crawler, url));
    linked().into_iter().chain(redirected).min()
}

/// The request goes to these addresses.
pub(in crate::gate) fn goes_to<C>(judged: &mut Judged<C>, vetted: &impl Addresses) {
    if let Some(recalled) = &mut judged.recalled {
        recalled.address = vetted.first().or(recalled.address);
    }
}

/// Whether the URL has become another one, as far as is remembered, since the request was judged.
pub(in crate::gate) fn is_outdated<C>(judged: &Judged<C>) -> bool {
    judged.recalled.as_ref().is_some_and(|recalled| {
        let now = recalled.ledger.look_up(recalled.key);
        let fetched =
            |record: &Option<Arc<Record>>| record.as_ref().and_then(|record| record.last_fetched);
        now.is_some() != recalled.record.is_some() || fetched(&now) != fetched(&recalled.record)
    })
}

/// Refuses what is asked for again too soon: the option `recrawl`.
pub(in crate::gate) fn premature<C>(judged: &Judged<C>, hold: &Hold) -> Result<(), Box<Refusal>> {
    let Some(recalled) = &judged.recalled else {
        return Ok(());
    };
    let Some(record) = recalled
        .record
        .as_ref()
        .filter(|_| refetches(&judged.asked.method))
    else {
        return Ok(());
    };
    let option = recrawl::of(judged.policy(), &judged.trail);
    if option.is_none() {
        return Ok(());
    }
    // What had to leave the index is fetched anew when it may be.
    let min_interval = option.min_interval.filter(|_| is_had(record));
    let recrawl = verdict::Recrawl {
        min_interval,
        after_error: option.after_error,
    };
    let Some(left) = verdict::premature(record, recrawl, now(hold)) else {
        return Ok(());
    };
    let after_error = verdict::Recrawl {
        min_interval: None,
        ..recrawl
    };
    let by_error = verdict::premature(record, after_error, now(hold)) == Some(left);
    let slot = if by_error { AFTER_ERROR } else { MIN_INTERVAL };
    Err(Box::new(
        blaming(judged, slot, Refusal::new(Reason::Premature, Stage::Ledger)).again(Some(left)),
    ))
}

/// The time of day, as records have it.
pub(in crate::gate) fn now(hold: &Hold) -> At {
    At(u64::try_from(since_1970(hold.wall()).as_millis()).unwrap_or(u64::MAX))
}

/// A refusal by an option: its cause is the rule that set it.
pub(super) fn blaming<C>(judged: &Judged<C>, slot: Slot, refusal: Refusal) -> Refusal {
    let SetBy::Rule(index) = judged.trail.set_by(judged.policy(), slot) else {
        return Refusal {
            keep: judged.keep(refusal.stage),
            ..refusal
        };
    };
    let by = judged.policy().refusing(
        &judged.trail,
        &Decision {
            cause: Cause::Rule(index),
            ..judged.decision
        },
    );
    let detail = by.about.map(|about| about.to_owned().into());
    let (rule, cause) = (by.rule.and_then(RuleId::new), Some(index));
    Refusal {
        rule,
        cause,
        detail,
        keep: judged.keep(refusal.stage),
        ..refusal
    }
}
