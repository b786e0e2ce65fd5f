//! Ledger: what is remembered of the URL: whether it is known, how deep it is, and whether it is asked for too soon.
//!
//! Every crawler has records of its own. What is noted of a request is `learn`'s; what answers are told to be is
//! `recrawl`'s.

use std::net::IpAddr;
use std::sync::Arc;

use crate::ledger::key::LedgerKey;
use crate::ledger::record::{LedgerRecord, UnixMillis};
use crate::ledger::recrawl;
use crate::model::crawler::Crawler;
use crate::model::reason::Reason;
use crate::model::rule_id::RuleId;
use crate::model::stage::Stage;
use crate::pipeline::admission::AdmissionQueue;
use crate::pipeline::destination::AddressList;
use crate::pipeline::evaluation::{Evaluation, RequestFacts};
use crate::pipeline::refusal::Refusal;
use crate::pipeline::schedules::unix_time;
use crate::pipeline::snapshot::DepthUse;
use crate::policy::Policy;
use crate::policy::decide::{Cause, Decision};
use crate::policy::fact::LedgerPresence;
use crate::policy::options::recrawl::{AFTER_ERROR, MIN_INTERVAL};
use crate::policy::options::{self, OptionSetter, OptionSlot};
use crate::policy::trail::Trail;
use crate::store::ledger::Ledger;
use crate::urls::target::UrlTarget;

use super::recrawl::{has_document, is_fetch};

/// Where to look for what came before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LedgerContext<'a> {
    /// The ledger, if there is one.
    pub(crate) ledger: Option<&'a Ledger>,
    /// The redirections of the last ten minutes.
    pub(crate) admission: &'a AdmissionQueue,
}

/// What is remembered of a request's URL, and where what becomes of it is noted.
#[derive(Clone, Debug)]
pub(crate) struct LedgerEntry {
    pub(crate) ledger: Ledger,
    pub(crate) key: LedgerKey,
    pub(crate) record: Option<Arc<LedgerRecord>>,
    /// The depth that the crawler itself has said.
    stated_depth: Option<u32>,
    /// The depth that links in the document are counted from.
    pub(crate) base_depth: Option<u32>,
    /// The address that is asked, and before that is known the one that was asked last.
    pub(crate) address: Option<IpAddr>,
    /// Whether the conditions of the request are the proxy's own.
    pub(crate) condition_owner: ConditionOwner,
}

/// Whose question it is whether a document has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConditionOwner {
    /// The client's, or nobody's.
    Client,
    /// The proxy's.
    Proxy,
}

/// Recalls what is known of a request's URL, and has it judged anew where a rule would see that.
pub(super) fn recall(evaluation: &mut Evaluation, ledger: &Ledger, admission: &AdmissionQueue) {
    let said = evaluation.facts.depth();
    let key = url_key(
        evaluation.policy(),
        &evaluation.trail,
        &evaluation.facts.crawler,
        &evaluation.facts.target,
    );
    let record = ledger.look_up(key);
    let known = record.as_ref().is_some_and(|record| record.is_known());
    let remembered = record.as_ref().and_then(|record| record.depth);
    let found = find_depth(evaluation, ledger, admission);
    let depth = found.map(|found| remembered.map_or(found, |remembered| found.min(remembered)));
    // A request that comes from nowhere is a start for what it leads to, unless it is known better.
    let start = evaluation.facts.referer().is_empty().then_some(0);
    let base = depth.or(remembered).or(start);
    let changed = depth != evaluation.facts.depth();
    evaluation.facts.set_ledger_facts(
        depth,
        if known {
            LedgerPresence::Present
        } else {
            LedgerPresence::Absent
        },
    );
    if changed && evaluation.snapshot.depth_use == DepthUse::Some {
        super::scope::re_evaluate(evaluation);
    }
    let address = record.as_ref().and_then(|record| record.address);
    let (ledger, conditions) = (ledger.clone(), ConditionOwner::Client);
    evaluation.ledger_entry = Some(LedgerEntry {
        ledger,
        key,
        record,
        stated_depth: said,
        base_depth: base,
        address,
        condition_owner: conditions,
    });
}

/// A request as it was before anything was remembered of it, to be judged again.
pub(crate) fn original_facts(
    mut request_facts: RequestFacts,
    ledger_entry: Option<LedgerEntry>,
) -> RequestFacts {
    if let Some(recalled) = ledger_entry {
        request_facts.set_ledger_facts(recalled.stated_depth, LedgerPresence::Absent);
    }
    request_facts
}

/// The key of a URL after what the rules have done for one request.
pub(super) fn url_key(
    policy: &Policy,
    trail: &Trail,
    crawler: &Crawler,
    target: &UrlTarget,
) -> LedgerKey {
    LedgerKey::for_url(crawler.as_str(), &policy.key_url(trail, target))
}

/// How many links from a start the request's URL was found, as far as this request shows: what the crawler says, else
/// the least of what its `Referer` and a redirection come to.
fn find_depth(evaluation: &Evaluation, ledger: &Ledger, admission: &AdmissionQueue) -> Option<u32> {
    let asked = &evaluation.facts;
    if asked.depth().is_some() {
        return asked.depth();
    }
    let linked = || {
        let page = Some(asked.referer()).filter(|page| !page.is_empty());
        let page = page.and_then(|page| UrlTarget::parse(page).ok())?;
        let record = ledger.look_up(url_key(
            evaluation.policy(),
            &evaluation.trail,
            &asked.crawler,
            &page,
        ))?;
        record.depth.map(|depth| depth.saturating_add(1))
    };
    let redirected = asked
        .urls()
        .filter_map(|url| admission.redirect_depth(&asked.crawler, url));
    linked().into_iter().chain(redirected).min()
}

/// The request goes to these addresses.
pub(crate) fn set_address(evaluation: &mut Evaluation, vetted: &impl AddressList) {
    if let Some(recalled) = &mut evaluation.ledger_entry {
        recalled.address = vetted.first().or(recalled.address);
    }
}

/// Whether the URL has become another one, as far as is remembered, since the request was judged.
pub(crate) fn is_outdated(evaluation: &Evaluation) -> bool {
    evaluation.ledger_entry.as_ref().is_some_and(|recalled| {
        let now = recalled.ledger.look_up(recalled.key);
        let fetched = |record: &Option<Arc<LedgerRecord>>| {
            record.as_ref().and_then(|record| record.last_fetched)
        };
        now.is_some() != recalled.record.is_some() || fetched(&now) != fetched(&recalled.record)
    })
}

/// Refuses what is asked for again too soon: the option `recrawl`.
pub(crate) fn check_recrawl_interval(
    evaluation: &Evaluation,
    admission: &AdmissionQueue,
) -> Result<(), Box<Refusal>> {
    let Some(recalled) = &evaluation.ledger_entry else {
        return Ok(());
    };
    let Some(record) = recalled
        .record
        .as_ref()
        .filter(|_| is_fetch(&evaluation.facts.method))
    else {
        return Ok(());
    };
    let option = options::recrawl::read(evaluation.policy(), &evaluation.trail);
    if option.is_none() {
        return Ok(());
    }
    // What had to leave the index is fetched anew when it may be.
    let min_interval = option.min_interval.filter(|_| has_document(record));
    let intervals = recrawl::RecrawlIntervals {
        min_interval,
        after_error: option.after_error,
    };
    let Some(left) = recrawl::time_until_recrawl(record, intervals, now(admission)) else {
        return Ok(());
    };
    let after_error = recrawl::RecrawlIntervals {
        min_interval: None,
        ..intervals
    };
    let by_error = recrawl::time_until_recrawl(record, after_error, now(admission)) == Some(left);
    let slot = if by_error { AFTER_ERROR } else { MIN_INTERVAL };
    Err(Box::new(
        attribute_to_option(
            evaluation,
            slot,
            Refusal::new(Reason::Premature, Stage::Ledger),
        )
        .with_retry_after(Some(left)),
    ))
}

/// The time of day, as records have it.
pub(crate) fn now(admission: &AdmissionQueue) -> UnixMillis {
    UnixMillis(u64::try_from(unix_time(admission.wall()).as_millis()).unwrap_or(u64::MAX))
}

/// A refusal by an option: its cause is the rule that set it.
pub(super) fn attribute_to_option(
    evaluation: &Evaluation,
    slot: OptionSlot,
    refusal: Refusal,
) -> Refusal {
    let OptionSetter::Rule(index) = evaluation.trail.set_by(evaluation.policy(), slot) else {
        return Refusal {
            url_detail: evaluation.url_detail(refusal.stage),
            ..refusal
        };
    };
    let by = evaluation.policy().refusal(
        &evaluation.trail,
        &Decision {
            cause: Cause::Rule(index),
            ..evaluation.decision
        },
    );
    let detail = by.about.map(|about| about.to_owned().into());
    let (rule, cause) = (by.rule.and_then(RuleId::new), Some(index));
    Refusal {
        rule,
        cause,
        detail,
        url_detail: evaluation.url_detail(refusal.stage),
        ..refusal
    }
}
