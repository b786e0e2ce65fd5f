//! Budget: what may be fetched in a day (the option `budget`). A request is asked twice: at the request stage, before it
//! costs anything, and when it goes, which is when it is counted.

use std::borrow::Cow;
use std::sync::Arc;

use crate::gate::budget::{Deed, Limits, Novelty, Purse, Request, UsedUp, number};
use crate::gate::hold::{Hold, Slot};
use crate::gate::judged::Judged;
use crate::gate::refusal::Refusal;
use crate::policy::decide::{Cause, Decision, Verdict};
use crate::policy::fact::InLedger;
use crate::policy::options::budget::{self, Budget, Per};
use crate::policy::options::{SetBy, Slot as OptionSlot, schema};
use crate::vocab::domain::registrable;
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;

/// Refuses a request for which nothing is left of the day's budget.
pub(in crate::gate) fn is_left<C>(judged: &Judged<C>, hold: &Hold) -> Result<(), Box<Refusal>> {
    match covering(judged) {
        Some(budget) => ask(judged, &budget, &name(judged, budget.per), hold, Deed::Ask),
        None => Ok(()),
    }
}

/// Counts a request that goes; its slot counts the bytes. Another may have taken the last of the budget meanwhile.
pub(in crate::gate) fn spend<C>(
    judged: &Judged<C>,
    hold: &Hold,
    slot: &mut Slot,
) -> Result<(), Box<Refusal>> {
    let Some(budget) = covering(judged) else {
        return Ok(());
    };
    let name = name(judged, budget.per);
    ask(judged, &budget, &name, hold, Deed::Spend)?;
    slot.spends_of(Arc::from(name));
    Ok(())
}

/// The budget of a request; the robots.txt of a host is part of none.
fn covering<C>(judged: &Judged<C>) -> Option<Budget> {
    budget::of(judged.policy(), &judged.trail).filter(|_| !judged.asked.reads_robots_txt())
}

fn ask<C>(
    judged: &Judged<C>,
    budget: &Budget,
    name: &str,
    hold: &Hold,
    deed: Deed,
) -> Result<(), Box<Refusal>> {
    let Budget {
        urls,
        new_urls,
        bytes,
        hosts,
        ..
    } = *budget;
    let novelty = match judged.asked.facts().in_ledger {
        InLedger::Yes => Novelty::Known,
        InLedger::No => Novelty::New,
    };
    let request = Request {
        novelty,
        host: number(judged.asked.target.host()),
    };
    let asked = hold.budgets().ask(
        name,
        Limits {
            urls,
            new_urls,
            bytes,
            hosts,
        },
        request,
        deed,
    );
    asked.map_err(|used_up| Box::new(refusal(judged, budget.per, used_up)))
}

/// What is counted as one.
fn name<C>(judged: &Judged<C>, per: Per) -> String {
    let (policy, host) = (judged.policy(), judged.asked.target.host());
    match per {
        Per::Host => format!("host {host}"),
        Per::RegistrableDomain => format!("domain {}", registrable(host)),
        Per::Crawler => format!("crawler {}", judged.asked.crawler.as_str()),
        Per::Space => {
            let space = judged
                .trail
                .space()
                .and_then(|space| policy.spaces().all().get(usize::from(space.0)));
            // Crawlers in no space are counted together, as those of a space are.
            format!("space {}", space.map_or("", |space| space.name.as_str()))
        }
    }
}

fn refusal<C>(judged: &Judged<C>, per: Per, used_up: UsedUp) -> Refusal {
    let (policy, trail) = (judged.policy(), &judged.trail);
    let cause = match trail.set_by(policy, limit(used_up.purse)) {
        SetBy::Rule(rule) => Cause::Rule(rule),
        SetBy::BuiltIn | SetBy::Document | SetBy::Space(_) => Cause::Default,
    };
    let verdict = Verdict::Reject(Reason::Budget);
    let decision = Decision {
        verdict,
        stage: Stage::Request,
        cause,
        exclusion: None,
        ..judged.decision
    };
    let refusal = Refusal::by_policy(policy, trail, &decision);
    let refusal = refusal.unwrap_or_else(|| Refusal::new(Reason::Budget, Stage::Request));
    let told = words(per, used_up.purse);
    let detail = match refusal.detail {
        Some(about) => Cow::Owned(format!("{told}; {about}")),
        None => Cow::Borrowed(told),
    };
    Refusal {
        detail: Some(detail),
        ..refusal
    }
    .again(Some(used_up.left))
}

fn limit(purse: Purse) -> OptionSlot {
    match purse {
        Purse::Urls => schema::URLS,
        Purse::NewUrls => schema::NEW_URLS,
        Purse::Bytes => schema::BYTES,
        Purse::Hosts => schema::HOSTS,
    }
}

fn words(per: Per, purse: Purse) -> &'static str {
    match (purse, per) {
        (Purse::Urls, Per::Host) => "today's requests for this host are used up",
        (Purse::Urls, Per::RegistrableDomain) => "today's requests for this domain are used up",
        (Purse::Urls, Per::Crawler) => "today's requests of this crawler are used up",
        (Purse::Urls, Per::Space) => "today's requests of this crawl space are used up",
        (Purse::NewUrls, Per::Host) => "today's new URLs of this host are used up",
        (Purse::NewUrls, Per::RegistrableDomain) => "today's new URLs of this domain are used up",
        (Purse::NewUrls, Per::Crawler) => "today's new URLs of this crawler are used up",
        (Purse::NewUrls, Per::Space) => "today's new URLs of this crawl space are used up",
        (Purse::Bytes, Per::Host) => "today's bytes of this host are used up",
        (Purse::Bytes, Per::RegistrableDomain) => "today's bytes of this domain are used up",
        (Purse::Bytes, Per::Crawler) => "today's bytes of this crawler are used up",
        (Purse::Bytes, Per::Space) => "today's bytes of this crawl space are used up",
        (Purse::Hosts, Per::Host) => "today's hosts are used up",
        (Purse::Hosts, Per::RegistrableDomain) => "today's hosts of this domain are used up",
        (Purse::Hosts, Per::Crawler) => "today's hosts of this crawler are used up",
        (Purse::Hosts, Per::Space) => "today's hosts of this crawl space are used up",
    }
}
