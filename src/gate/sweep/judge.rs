//! What the policy says of a URL that is remembered: as if it were asked for again, with the address that it had.

use std::sync::Arc;

use crate::gate::refusal::Refusal;
use crate::ledger::record::{At, Record};
use crate::ledger::seen::{Noting, Refused, Seen, What};
use crate::ledger::transition::{self, Kept, Tolerance};
use crate::policy::Policy;
use crate::policy::decide::Decision;
use crate::policy::fact::{Fact, Facts, InLedger};
use crate::policy::rule::PolicyStage;
use crate::vocab::crawl_status::CrawlStatus;
use crate::vocab::intent::Intent;
use crate::vocab::target::UrlTarget;

/// OmniFind's code of what leaves the index.
const REMOVED: u16 = 760;

/// What becomes of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It is allowed, or refused for something else than where it is.
    Allowed,
    /// It is excluded from its crawler's space.
    Excluded(Excluded),
}

/// Why a URL is excluded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Excluded {
    /// 760 or 761.
    pub(super) code: u16,
    /// What that means.
    pub(super) intent: Intent,
    /// The rule that decided.
    pub(super) rule: Option<Arc<str>>,
}

impl Excluded {
    /// Whether it leaves the index.
    pub(super) fn leaves(&self) -> bool {
        self.code == REMOVED
    }
}

/// Whether a sweep changes anything of a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Its code, or there is somebody to be told.
    Some,
    /// It is as an earlier sweep, or a request, has left it.
    None,
}

/// What a look of the sweep would change of a record.
pub(super) fn change(record: &Record, seen: &Seen) -> Change {
    // Errors have no part in what a sweep sees.
    let noted = transition::note(
        Some(record),
        seen.clone(),
        Tolerance {
            temporary_errors: 0,
        },
    );
    let code = match &noted.kept {
        Kept::Changed(changed) => changed.code,
        Kept::Same | Kept::Forgotten => record.code,
    };
    if noted.owed.is_some() || code != record.code {
        Change::Some
    } else {
        Change::None
    }
}

/// Judges a URL for its crawler. A record of a URL that was never admitted is excluded from nothing.
pub(super) fn found(policy: &Policy, record: &Record) -> Found {
    let Ok(target) = UrlTarget::parse(&record.url) else {
        return Found::Allowed;
    };
    if !record.is_known() {
        return Found::Allowed;
    }
    let address = record
        .address
        .map_or(Fact::Unknown, |address| Fact::Known(Some(address)));
    let facts = Facts {
        crawler: &record.crawler,
        depth: record.depth.map(u64::from),
        address,
        in_ledger: InLedger::Yes,
        ..Facts::of_url(&target)
    };
    let (mut trail, mut decision) = policy.request(&facts);
    if !decision.rejects() && record.address.is_some() && policy.acts_at(PolicyStage::Destination) {
        decision = policy.stage(&mut trail, PolicyStage::Destination, &facts);
    }
    let exclusion = policy.exclusion(&trail, &decision, &facts);
    let refusal = Refusal::by_policy(
        policy,
        &trail,
        &Decision {
            exclusion,
            ..decision
        },
    );
    let excluded = refusal.and_then(|refusal| {
        Some(Excluded {
            code: exclusion?.code.number(),
            intent: refusal.intent().unwrap_or(Intent::Keep),
            rule: refusal.rule.map(|rule| rule.as_str().into()),
        })
    });
    excluded.map_or(Found::Allowed, Found::Excluded)
}

/// What the ledger is told of it.
pub(super) fn seen(policy: &Policy, record: &Record, found: &Found, at: At) -> Seen {
    let spaces = policy.spaces();
    let space = spaces
        .of(&record.crawler)
        .and_then(|space| spaces.get(space));
    let (what, rule) = match found {
        Found::Allowed => (What::Allowed, None),
        Found::Excluded(excluded) => {
            let refused = Refused {
                outcome: CrawlStatus::Filter,
                intent: excluded.intent,
                code: Some(excluded.code),
                record: Noting::Skip,
            };
            (What::Refused(refused), excluded.rule.clone())
        }
    };
    Seen {
        at,
        url: record.url.clone(),
        crawler: record.crawler.clone(),
        space: space.map(|space| space.name.shared()),
        depth: None,
        address: None,
        source: None,
        revision: policy.shared_revision(),
        rule,
        what,
    }
}
