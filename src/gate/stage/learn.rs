//! Learn: what is noted in the ledger of a request when it is over.
//!
//! Of a GET only; a HEAD and every other method change nothing. What a look makes of a record is said in
//! `ledger/transition`; here it is told what was seen.

use std::mem::replace;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::HeaderValue;
use http::response::Parts;
use http::{Method, StatusCode};

use crate::gate::failing::Failing;
use crate::gate::hold::Hold;
use crate::gate::judged::Judged;
use crate::gate::refusal::Refusal;
use crate::gate::snapshot::Reign;
use crate::gate::sweep::pass_again;
use crate::ledger::key::Key;
use crate::ledger::record::{At, ContentHash};
use crate::ledger::seen::{Answered, Document, Noting, Refused, Seen, What};
use crate::ledger::verdict::same_content;
use crate::metrics::record::Keep;
use crate::policy::Policy;
use crate::policy::options::checks::{self, Check};
use crate::policy::options::schema::DUPLICATE;
use crate::policy::space::SpaceIndex;
use crate::policy::trail::Trail;
use crate::store::ledger::Note;
use crate::vocab::crawl_status::CrawlStatus;
use crate::vocab::crawler::Crawler;
use crate::vocab::intent::Intent;
use crate::vocab::reason::Reason;
use crate::vocab::rule_id::RuleId;
use crate::vocab::stage::Stage;
use crate::vocab::target::UrlTarget;

use super::ledger::{self, Recalled, key_of};
use super::recrawl::{is_had, stands, strong_etag, validators};

/// OmniFind's "parse error, body": an answer that broke off.
const BROKEN_BODY: u16 = 730;

/// Notes what becomes of a GET when it is dropped. It goes with the answer's body to its last byte: of a document whose
/// delivery nobody has told it ([`Self::delivered`]), nothing is noted.
#[derive(Debug)]
pub struct Learning {
    about: About,
    recalled: Recalled,
    /// By what other URLs find the document, once its head is here; none unless the option `duplicate` asks for it.
    twins: Option<Box<Twins>>,
    rule: Option<RuleId>,
    so_far: SoFar,
}

/// Whose look it is, and at what.
#[derive(Debug)]
struct About {
    target: UrlTarget,
    crawler: Crawler,
    /// The policy that judged it.
    reign: Arc<Reign>,
    space: Option<SpaceIndex>,
    source: Option<HeaderValue>,
}

/// How documents that several URLs have are told.
#[derive(Debug)]
struct Twins {
    /// What the rules have done, for the keys of other URLs.
    trail: Trail,
    /// Bodies of up to so many bytes are judged before they are sent on.
    judged: u64,
}

#[derive(Debug)]
enum SoFar {
    /// No answer yet.
    Asked,
    /// This answer is on its way to the client.
    Heard(Heard),
    /// It has ended so, then.
    Over(What, At),
}

/// The head of an answer.
#[derive(Debug)]
struct Heard {
    at: At,
    status: StatusCode,
    failing: Option<Failing>,
    document: Document,
    /// The strong entity tag by which other URLs of the host find the document.
    etag: Option<Arc<str>>,
    delivery: Delivery,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    UnderWay,
    Whole,
}

/// Notes that a request was refused before its origin was asked.
pub fn refused<C>(judged: &Judged<C>, refusal: &Refusal, hold: &Hold) {
    let Some(recalled) = judged
        .recalled
        .as_ref()
        .filter(|_| judged.asked.method == Method::GET)
    else {
        return;
    };
    // A look at nothing but the memory of an address that refused somebody else is no look.
    let unasked = refusal.reason == Reason::UpstreamConnect && refusal.stage == Stage::Destination;
    let new = recalled.record.is_none() && refusal.failing.is_none();
    if unasked || new && noting(refusal) == Noting::Skip {
        return;
    }
    if let Some(mut learning) = Learning::of(judged) {
        learning.refused(refusal, hold);
    }
}

impl Learning {
    /// For a request that is sent on; none if nothing is to be learned from it.
    pub fn of<C>(judged: &Judged<C>) -> Option<Box<Self>> {
        let recalled = judged
            .recalled
            .as_ref()
            .filter(|_| judged.asked.method == Method::GET)?;
        let about = About {
            target: judged.asked.target.clone(),
            crawler: judged.asked.crawler.clone(),
            reign: Arc::clone(&judged.snapshot.reign),
            space: judged.trail.space(),
            source: judged.effects().source().cloned(),
        };
        Some(Box::new(Self {
            about,
            recalled: recalled.clone(),
            twins: None,
            rule: None,
            so_far: SoFar::Asked,
        }))
    }

    /// This address has answered.
    pub fn answered_by(&mut self, address: IpAddr) {
        self.recalled.address = Some(address);
    }

    /// The head of the origin's answer is here; it names this type.
    pub(in crate::gate) fn heard<C>(
        &mut self,
        judged: &Judged<C>,
        head: &Parts,
        kind: &str,
        failing: Option<Failing>,
        at: At,
    ) {
        let validators = validators(&head.headers);
        let document = Document {
            validators,
            content: None,
            content_type: kind.into(),
            size: 0,
        };
        // Rules on answers may set both.
        self.about.source = judged.effects().source().cloned();
        self.twins = Twins::of(judged.policy(), &judged.trail);
        let etag = self
            .twins
            .as_ref()
            .and_then(|_| strong_etag(&head.headers))
            .map(Arc::from);
        let delivery = Delivery::UnderWay;
        self.so_far = SoFar::Heard(Heard {
            at,
            status: head.status,
            failing,
            document,
            etag,
            delivery,
        });
    }

    /// So many bytes of the answer's body were handed to the client.
    pub fn sent(&mut self, bytes: u64) {
        if let SoFar::Heard(heard) = &mut self.so_far {
            heard.document.size += bytes;
        }
    }

    /// The SHA-256 of the answer's whole body, content codings undone.
    pub fn content(&mut self, hash: ContentHash) {
        if let SoFar::Heard(heard) = &mut self.so_far {
            heard.document.content = Some(hash);
        }
    }

    /// The last byte was handed to the client.
    pub fn delivered(&mut self) {
        if let SoFar::Heard(heard) = &mut self.so_far {
            heard.delivery = Delivery::Whole;
        }
    }

    /// The origin's body broke off.
    pub fn broke(&mut self) {
        if let SoFar::Heard(Heard {
            at, failing: None, ..
        }) = self.so_far
        {
            let failing = Failing::Temporary;
            self.so_far = SoFar::Over(
                What::Failed {
                    failing,
                    code: Some(BROKEN_BODY),
                },
                at,
            );
        }
    }

    /// The request is refused, or its answer is.
    pub fn refused(&mut self, refusal: &Refusal, hold: &Hold) {
        match self.so_far {
            SoFar::Asked => self.over(refusal, ledger::now(hold)),
            SoFar::Heard(_) | SoFar::Over(..) => self.refused_midway(refusal),
        }
    }

    /// The answer is refused while it is on its way.
    pub fn refused_midway(&mut self, refusal: &Refusal) {
        if let SoFar::Heard(Heard { at, .. }) = self.so_far {
            self.over(refusal, at);
        }
    }

    fn over(&mut self, refusal: &Refusal, at: At) {
        self.rule.clone_from(&refusal.rule);
        let row = refusal.reason.row();
        let (outcome, code) = (row.crawl_status, refusal.code.or(row.code));
        let what = match (&self.so_far, refusal.failing) {
            (_, Some(failing)) => What::Failed { failing, code },
            (SoFar::Asked | SoFar::Over(..), None) => {
                let intent = refusal.intent().unwrap_or(Intent::Deny);
                What::Refused(Refused {
                    outcome,
                    intent,
                    code,
                    record: noting(refusal),
                })
            }
            (SoFar::Heard(heard), None) => {
                // A page that says that it is an error is taken for one.
                let soft = refusal.reason == Reason::SoftError;
                let failing = if soft {
                    Some(Failing::Permanent)
                } else {
                    heard.failing
                };
                let (status, intent) = (heard.status.as_u16(), refusal.intent());
                What::Answered(Answered {
                    status,
                    outcome,
                    intent,
                    code,
                    failing,
                    document: None,
                })
            }
        };
        self.so_far = SoFar::Over(what, at);
    }

    /// Whether the body is that of the document that was delivered last.
    pub fn unmodified_by_content(&self, hash: &ContentHash) -> bool {
        let record = self
            .recalled
            .record
            .as_ref()
            .filter(|record| is_had(record));
        record.is_some_and(|record| same_content(record, hash))
    }

    /// Another URL of the host whose document has the same body. None unless the option `duplicate` asks for it.
    pub fn duplicate_by_content(&self, hash: &ContentHash) -> Option<Arc<str>> {
        let other = self
            .recalled
            .ledger
            .with_content(self.key_of_content(&hex(hash)))?;
        let target = UrlTarget::parse(&other).ok()?;
        let key = key_of(
            &self.about.reign.policy,
            &self.twins.as_ref()?.trail,
            &self.about.crawler,
            &target,
        );
        let record = self
            .recalled
            .ledger
            .look_up(key)
            .filter(|_| key != self.recalled.key)?;
        (stands(&record) && same_content(&record, hash)).then_some(other)
    }

    fn key_of_content(&self, version: &str) -> Key {
        Key::of_content(
            self.about.crawler.as_str(),
            self.about.target.host(),
            version,
        )
    }

    /// By which the document is found by other URLs: the hash of a body that is judged before it is sent on, and the
    /// strong entity tag of any other, of which only the head can tell.
    fn content_key(&self, heard: &Heard) -> Option<Key> {
        let judged = heard.document.size <= self.twins.as_ref()?.judged;
        let hash = heard
            .document
            .content
            .as_ref()
            .map(|hash| Arc::from(hex(hash)));
        let etag = heard.etag.clone();
        let version = if judged { hash.or(etag) } else { etag.or(hash) };
        version.map(|version| self.key_of_content(&version))
    }

    /// What has become of it, if that is anything to note. Nothing else does from now on.
    fn end(&mut self) -> Option<(At, What, Option<Key>)> {
        let heard = match replace(&mut self.so_far, SoFar::Asked) {
            SoFar::Asked => return None,
            SoFar::Over(what, at) => return Some((at, what, None)),
            SoFar::Heard(heard) => heard,
        };
        let status = heard.status;
        if status.is_success() && heard.delivery != Delivery::Whole {
            return None;
        }
        let is_document = status == StatusCode::OK;
        let content = if is_document {
            self.content_key(&heard)
        } else {
            None
        };
        let document = is_document.then_some(heard.document);
        let (outcome, failing) = (CrawlStatus::of_origin(status.as_u16()), heard.failing);
        let (status, intent, code) = (status.as_u16(), None, None);
        let what = What::Answered(Answered {
            status,
            outcome,
            intent,
            code,
            failing,
            document,
        });
        Some((heard.at, what, content))
    }

    fn seen(&self, at: At, what: What) -> Seen {
        let About {
            target,
            crawler,
            reign,
            space,
            source,
        } = &self.about;
        let policy = &reign.policy;
        let space = space.and_then(|space| policy.spaces().get(space));
        let source = source.as_ref().and_then(|source| source.to_str().ok());
        Seen {
            at,
            url: target.shared(),
            crawler: crawler.shared_name(),
            space: space.map(|space| space.name.shared()),
            depth: self.recalled.base,
            address: self.recalled.address,
            source: source.map(Arc::from),
            revision: policy.shared_revision(),
            rule: self.rule.as_ref().map(|rule| rule.as_str().into()),
            what,
        }
    }
}

impl Twins {
    fn of(policy: &Policy, trail: &Trail) -> Option<Box<Self>> {
        if !policy.compares() {
            return None;
        }
        let judged = match checks::of(policy, trail, DUPLICATE) {
            Check::Pass => return None,
            Check::Tag => 0,
            Check::Reject => checks::max_buffer(policy, trail),
        };
        Some(Box::new(Self {
            trail: trail.clone(),
            judged,
        }))
    }
}

/// The option `record`, for the ledger: what the log keeps whole gets a record.
fn noting(refusal: &Refusal) -> Noting {
    match refusal.keep {
        Keep::Full => Noting::Keep,
        Keep::Host | Keep::None => Noting::Skip,
    }
}

fn hex(hash: &ContentHash) -> String {
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Drop for Learning {
    fn drop(&mut self) {
        if let Some((at, what, content)) = self.end() {
            let (key, seen) = (self.recalled.key, self.seen(at, what));
            self.recalled.ledger.note(Note { key, seen, content });
            // Behind the note: a policy that takes force from now on is swept for with it.
            if let Some(successor) = self.about.reign.successor() {
                pass_again(&self.recalled.ledger, &successor, key, at);
            }
        }
    }
}
