//! CONNECT: from the request to an open tunnel, or a refusal that its client can see.
//!
//! A tunnel to a TLS port is judged by its host, dialled, and only then granted. One to another port is granted at
//! once: if HTTP follows, each request inside is judged like any other, and dialled after that. Clients show little of
//! a refused CONNECT but the reason phrase, so the phrase says why.

mod behind;
mod inside;

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use tokio::net::TcpStream;

use crate::clock::Lapse;
use crate::gate::crawlers::{Caller, Identity};
use crate::gate::permit::TunnelPermit;
use crate::gate::refusal::Refusal;
use crate::gate::stage::identify::identify;
use crate::gate::tls::TlsWay;
use crate::gate::tunnel::{self as gate, TunnelAsked, TunnelJudged, TunnelPassage, TunnelWay};
use crate::metrics::OpenConnection;
use crate::metrics::labels::{Source, TunnelVerdict};
use crate::metrics::policy::PolicyMetrics;
use crate::metrics::record::Record;
use crate::metrics::trace::Part;
use crate::tls::leaf::is_certifiable;
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;
use crate::vocab::target::HostTarget;

use super::answer::Asker;
use super::destination::Vetted;
use super::dial::dial;
use super::front::{self, Inside};
use super::head::ServiceOpen;
use super::http::{Exchange, Panicked, PolicyInForce, Refused, unwinding};
use super::intercept::{self, Telling};
use super::reply::{Hangup, Reply, established, own};
use super::timing::{self, Waited};
use super::tunnel::Place;
use super::upstream::UpstreamError;

use inside::Open;

/// Why a host cannot be looked into.
const UNCERTIFIABLE: &str = "the host is no DNS name that a certificate could be made for";
/// The longest reason phrase.
const PHRASE: usize = 80;

/// What is kept for as long as a client's connection lives: its gauge, and what a CONNECT on it has come to.
#[derive(Debug)]
pub struct Seat {
    /// Who it may be.
    pub caller: Caller,
    _counted: OpenConnection,
    granted: Mutex<Option<Box<Granted>>>,
    inside: Option<(Inside, Option<Place>)>,
}

/// A CONNECT that is answered with 200.
#[derive(Debug)]
struct Granted {
    record: Record,
    host: HostTarget,
    onward: Onward,
}

/// What follows the 200.
#[derive(Debug)]
enum Onward {
    /// TLS to this origin, of which no more than the first bytes are looked at.
    Blind(Box<Blind>, Place),
    /// HTTP in the clear, if anything, of this crawler.
    Plain(Identity, Place),
    /// TLS that ends here, or HTTP in the clear.
    Open(Box<Open>),
}

#[derive(Debug)]
struct Blind {
    origin: TcpStream,
    address: SocketAddr,
    judged: TunnelJudged<Arc<PolicyMetrics>>,
}

impl Seat {
    /// The seat of a connection that begins.
    pub fn new(caller: Caller, counted: OpenConnection) -> Self {
        Self {
            caller,
            _counted: counted,
            granted: Mutex::new(None),
            inside: None,
        }
    }

    /// The tunnel that the connection is, once it has been looked into.
    pub fn inside(&self) -> Option<&Inside> {
        self.inside.as_ref().map(|(inside, _)| inside)
    }

    fn grant(&self, granted: Granted) {
        *self.granted.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(granted));
    }

    fn granted(&mut self) -> Option<Box<Granted>> {
        self.granted
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl Exchange {
    /// Answers a CONNECT. What follows a granted one is `behind_connect`'s.
    ///
    /// # Errors
    /// [`Hangup`], if this crawler is refused by closing its connection.
    pub(super) async fn connect(
        &self,
        request: Request<Incoming>,
        open: ServiceOpen,
        seat: &Seat,
    ) -> Reply {
        self.recorder.log().room().await;
        let mut record = self
            .recorder
            .begin(self.recorder.clock().now(), request.method());
        record.client(seat.caller.address());
        let mut snapshot = self.in_force.load();
        let mut asker = Asker::of(request.headers());
        asker.follow(&mut record);
        let method = request.method().clone();
        let way = {
            let way = self.way(request, seat, &mut asker, &mut snapshot, &mut record);
            unwinding(pin!(way)).await
        };
        let way = match way {
            Ok(way) => way,
            Err(Panicked) => Err(Box::new(Refusal::new(
                Reason::InternalError,
                record.stage(),
            ))),
        };
        let (host, onward) = match way {
            Ok(way) => way,
            Err(refusal) => {
                self.count_refused(refusal.reason);
                return match self.refused(&refusal, &asker, &snapshot, &mut record) {
                    Some(response) => {
                        let response = with_phrase(response, &refusal, &record);
                        Ok(own(response, &method, Box::new(record), open))
                    }
                    None => Err(Hangup),
                };
            }
        };
        self.count(&onward);
        record.answered(200, Source::Proxy);
        record.tunnel_opened();
        seat.grant(Granted {
            record,
            host,
            onward,
        });
        Ok(established(open))
    }

    fn count(&self, granted: &Onward) {
        match granted {
            Onward::Blind(..) | Onward::Plain(..) => {
                self.recorder.metrics().tunnel_decided(TunnelVerdict::Allow)
            }
            Onward::Open(open) => match &open.refused {
                None => self
                    .recorder
                    .metrics()
                    .tunnel_decided(TunnelVerdict::Intercept),
                Some(refusal) => self.count_refused(refusal.reason),
            },
        }
    }

    fn count_refused(&self, reason: Reason) {
        let undecided = reason == Reason::Undecided;
        let verdict = if undecided {
            TunnelVerdict::Undecided
        } else {
            TunnelVerdict::Reject
        };
        self.recorder.metrics().tunnel_decided(verdict);
    }

    /// The whole way of a CONNECT up to its 200: each step may refuse it.
    async fn way(
        &self,
        request: Request<Incoming>,
        seat: &Seat,
        asker: &mut Asker,
        snapshot: &mut Arc<PolicyInForce>,
        record: &mut Record,
    ) -> Result<(HostTarget, Onward), Refused> {
        let (parts, _) = request.into_parts();
        let who = identify(&self.crawlers, &seat.caller, &parts.headers).await?;
        record.crawler(who.index);
        asker.is(&who.crawler, record);
        record.enter(Stage::Target);
        let host = front::enter_tunnel(&parts, &self.via, seat.inside())?;
        record.host(&host);
        record.enter(Stage::Connect);
        if !is_in(&self.tunnels.settings.connect_ports, host.port()) {
            let refusal = Refusal::new(Reason::PortDenied, Stage::Connect);
            return Err(refusal
                .with_detail("the port is none that a tunnel may go to")
                .into());
        }
        let asked = TunnelAsked {
            host: host.clone(),
            crawler: who.crawler.clone(),
        };
        let tls = is_in(&self.tunnels.settings.tls_ports, host.port());
        let refused = match intercept::way(self.interceptor.as_deref(), &asked, snapshot) {
            TlsWay::Intercept => None,
            TlsWay::Reject(refusal) if tls => Some(refusal),
            TlsWay::Tunnel | TlsWay::Reject(_) if !tls => {
                record.allowed(None);
                return Ok((host.clone(), Onward::Plain(who, self.place(&host)?)));
            }
            TlsWay::Tunnel | TlsWay::Reject(_) => {
                match Box::pin(self.blind(asked, snapshot, record)).await {
                    Ok(blind) => return Ok((host, blind)),
                    Err(refusal) => Some(refusal),
                }
            }
        };
        let onward = self.open(&host, who, refused, snapshot)?;
        Ok((host, onward))
    }

    /// Looks into a tunnel; into one that is refused, only to say so.
    fn open(
        &self,
        host: &HostTarget,
        who: Identity,
        refused: Option<Refused>,
        snapshot: &Arc<PolicyInForce>,
    ) -> Result<Onward, Refused> {
        let Some(interceptor) = &self.interceptor else {
            return Err(refused.unwrap_or_else(|| intercept::blindfolded().into()));
        };
        let telling = if is_certifiable(host.host()) {
            interceptor.telling()
        } else {
            Telling::AtConnect
        };
        match (&refused, telling) {
            (Some(refusal), Telling::AtConnect) => return Err(refusal.clone()),
            (None, Telling::AtConnect) if !is_certifiable(host.host()) => {
                return Err(Refusal::new(Reason::BadRequest, Stage::Connect)
                    .with_detail(UNCERTIFIABLE)
                    .into());
            }
            (_, Telling::Inside | Telling::AtConnect) => {}
        }
        let (interceptor, under) = (Arc::clone(interceptor), Arc::clone(snapshot));
        Ok(Onward::Open(Box::new(Open {
            who,
            refused,
            interceptor,
            under,
        })))
    }

    /// A tunnel of which nothing will be seen: judged by its host, dialled.
    async fn blind(
        &self,
        asked: TunnelAsked,
        snapshot: &mut Arc<PolicyInForce>,
        record: &mut Record,
    ) -> Result<Onward, Refused> {
        // Before the gate: a tunnel for which there is no room must not cost its host a turn.
        let place = self.place(&asked.host)?;
        let way = TunnelWay {
            destinations: &*self.vetting,
            in_force: &self.in_force,
            hold: &self.hold,
            patience: self.tunnels.settings.dial.total,
        };
        let TunnelPassage {
            outcome,
            judged,
            held,
        } = gate::tunnel(asked, Arc::clone(snapshot), &way).await;
        note(record, &judged);
        timing::decided(
            record,
            Waited {
                found_in: judged.found_in,
                fetched_in: None,
                held,
            },
        );
        if held.is_some() {
            *snapshot = Arc::clone(&judged.snapshot);
        }
        let permit = outcome?;
        let keep = judged.keep();
        let kept = |refusal: Refusal| Box::new(Refusal { keep, ..refusal });
        let blind = self.dial(permit, judged, record).await.map_err(kept)?;
        Ok(Onward::Blind(Box::new(blind), place))
    }

    fn place(&self, host: &HostTarget) -> Result<Place, Refusal> {
        let overloaded = || {
            Refusal::new(Reason::Overloaded, Stage::Connect)
                .with_detail("as many tunnels to the host are open as there may be")
        };
        self.tunnels.take(host.host()).ok_or_else(overloaded)
    }

    /// Connects to where a permit says.
    async fn dial(
        &self,
        permit: TunnelPermit<Vetted>,
        judged: TunnelJudged<Arc<PolicyMetrics>>,
        record: &mut Record,
    ) -> Result<Blind, Refusal> {
        let (_, vetted, mut slot) = permit.redeem();
        record.enter(Stage::Upstream);
        let began = record.clock().now();
        let limits = self.tunnels.settings.dial.with(judged.timeouts());
        let dialled = dial(&vetted, limits).await;
        self.vetting.dead().note(vetted.addresses(), &dialled);
        let dialled = dialled.map_err(UpstreamError::Dial);
        let (origin, address) = dialled.inspect_err(|error| {
            record.upstream_failed(error.as_str());
            if error.is_of_the_origin() {
                slot.failed();
            }
        })?;
        // The tunnel is open, and takes none of the slots that requests have.
        slot.sent();
        slot.opened();
        drop(slot);
        let connect = Lapse::between(began, record.clock().now());
        record.connected_in(connect.took);
        record.part(Part::Connect, connect);
        record.address(address.ip());
        Ok(Blind {
            origin,
            address,
            judged,
        })
    }
}

/// Tells the record what the policy says.
fn note(record: &mut Record, judged: &TunnelJudged<Arc<PolicyMetrics>>) {
    record.judged_under(&judged.snapshot.counters);
    record.matched(judged.matched().iter().map(|rule| rule.0));
    record.allowed(judged.cause().map(|rule| rule.0));
    record.shadows(judged.shadow_notes());
}

fn is_in(ports: &[RangeInclusive<u16>], port: u16) -> bool {
    ports.iter().any(|range| range.contains(&port))
}

/// Puts the cause of a refusal where clients show it: `Policy-451 rule=no-cgi id=9f3c01ab-1f` (decisions.md section 4).
fn with_phrase(
    mut response: Response<Bytes>,
    refusal: &Refusal,
    record: &Record,
) -> Response<Bytes> {
    let phrase = phrase(response.status().as_u16(), refusal, &record.id().text());
    if let Ok(phrase) = ReasonPhrase::try_from(phrase.into_bytes()) {
        response.extensions_mut().insert(phrase);
    }
    response
}

/// The phrase; the id is never cut, a rule's name may be.
fn phrase(status: u16, refusal: &Refusal, id: &str) -> String {
    let cause = match &refusal.rule {
        Some(rule) => format!("rule={}", rule.as_str()),
        None => format!("reason={}", refusal.reason.as_str()),
    };
    let (before, after) = (format!("Policy-{status} "), format!(" id={id}"));
    let room = PHRASE.saturating_sub(before.len() + after.len());
    let cause: String = cause.chars().take(room).collect();
    format!("{before}{cause}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocab::rule_id::RuleId;

    #[test]
    fn the_phrase_says_why_in_eighty_characters() {
        let by_rule = |id: &str| Refusal {
            rule: RuleId::new(id),
            ..Refusal::new(Reason::Rule, Stage::Request)
        };
        let id = "9f3c01ab-ffffffffffffffff";
        assert_eq!(
            phrase(451, &by_rule("no-cgi"), "a-1"),
            "Policy-451 rule=no-cgi id=a-1"
        );
        let denied = Refusal::new(Reason::PortDenied, Stage::Connect);
        assert_eq!(
            phrase(403, &denied, "a-1"),
            "Policy-403 reason=port_denied id=a-1"
        );
        let long = phrase(451, &by_rule(&"x".repeat(64)), id);
        assert_eq!(long.len(), PHRASE);
        assert!(
            long.is_ascii() && long.ends_with(&format!("x id={id}")),
            "{long}"
        );
    }
}
