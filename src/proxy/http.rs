//! One HTTP exchange: from hyper's request to the answer, and the record that goes with it.

mod bare;
mod ends;

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE};
use http::{HeaderValue, Request, Response, request, response};
use hyper::body::Incoming;

use crate::gate::crawlers::Crawlers;
use crate::gate::hold::Hold;
use crate::gate::judged::{Asked, Judged};
use crate::gate::permit::Permit;
use crate::gate::refusal::{Form, Refusal};
use crate::gate::request::{Ledger, Outcome, Passage, Waits, Way};
use crate::gate::response::Marks;
use crate::gate::snapshot::{InForce, Snapshot};
use crate::gate::stage::identify::identify;
use crate::gate::stage::learn::{self, Learning};
use crate::gate::stage::recrawl;
use crate::gate::{request as gate_request, response as gate_response};
use crate::metrics::labels::Source;
use crate::metrics::policy::PolicyMetrics;
use crate::metrics::record::{Record, Recorder};
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;

use super::answer::{self, Asker, ProfileChoice};
use super::body::{Body, BodyTimes, Download, Upload};
use super::clean::{self, Framing, UnknownCoding, ViaName};
use super::connect::Seat;
use super::destination::Vetting;
use super::document::{self, Outgoing};
use super::front::{self, Entry, Inside, Journey};
use super::head::ServiceOpen;
use super::intercept::Interceptor;
use super::reply::{Hangup, Reply, own, travelling_far};
use super::robots::Robots;
use super::robots_tag;
use super::timing::{self, Waited};
use super::tunnel::Tunnels;
use super::upstream::{Answered, Call, Upstream, UpstreamError};

pub use bare::bare_refusal;
use ends::discarded;
pub(in crate::proxy) use ends::{Panicked, unwinding};

/// The snapshot that the proxy judges under.
pub type PolicyInForce = Snapshot<Arc<PolicyMetrics>>;

/// Everything that an exchange needs.
#[derive(Debug)]
pub struct Exchange {
    /// The policy.
    pub in_force: Arc<InForce<Arc<PolicyMetrics>>>,
    /// Where requests wait for their host's turn.
    pub hold: Arc<Hold>,
    /// Names, and which addresses may be dialled.
    pub vetting: Arc<Vetting>,
    /// Hosts' robots.txt.
    pub robots: Robots,
    /// What is remembered of URLs, once a policy needs that.
    pub ledger: Arc<OnceLock<Ledger>>,
    /// Origins.
    pub upstream: Arc<Upstream>,
    /// Records.
    pub recorder: Recorder,
    /// This process in `Via`.
    pub via: ViaName,
    /// How crawlers are answered.
    pub profile: ProfileChoice,
    /// Tunnels.
    pub tunnels: Tunnels,
    /// What looks into them; none without a certificate authority.
    pub interceptor: Option<Arc<Interceptor>>,
    /// Who may ask, and how each is recognised.
    pub crawlers: Crawlers,
    /// Bytes of a request's body.
    pub request_body: u64,
    /// How long a request's body may take.
    pub body_times: BodyTimes,
}

/// An origin's answer that may be passed on.
struct Passed {
    head: response::Parts,
    body: Outgoing,
    learning: Option<Box<Learning>>,
}

/// An answer on its way through the stages behind the origin.
struct Answer {
    head: response::Parts,
    body: Outgoing,
    marks: Marks,
}

pub(in crate::proxy) type Refused = Box<Refusal>;

impl Exchange {
    /// Answers one request. Its record ends with the last byte of the answer, or with the client.
    ///
    /// # Errors
    /// [`Hangup`], if this crawler is refused by closing its connection.
    pub fn answer<'a>(
        &'a self,
        request: Request<Incoming>,
        open: ServiceOpen,
        seat: &'a Seat,
    ) -> impl Future<Output = Reply> + Send + 'a {
        // No `async fn`: that would keep the request beside its parts, and hyper moves the whole future for each.
        let (mut parts, body) = request.into_parts();
        async move {
            self.recorder.log().room().await;
            // Boxed, since hyper moves it with the answer, several times.
            let mut record = Box::new(
                self.recorder
                    .begin(self.recorder.clock().now(), &parts.method),
            );
            record.client(seat.caller.address());
            let mut snapshot = self.in_force.load();
            if let Some(ledger) = self.ledger.get().filter(|_| snapshot.remembers) {
                ledger.room().await;
            }
            let mut asker = Asker::of(&parts.headers);
            asker.follow(&mut record);
            let made = {
                let passed = self.pass(
                    &mut parts,
                    body,
                    seat,
                    &mut asker,
                    &mut snapshot,
                    &mut record,
                );
                unwinding(pin!(passed)).await
            };
            let made = made.unwrap_or_else(|Panicked| {
                Err(Box::new(Refusal::new(
                    Reason::InternalError,
                    record.stage(),
                )))
            });
            match made {
                Ok(Made::Passed(Passed {
                    mut head,
                    body,
                    learning,
                })) => {
                    asker.tell_more(&mut head.headers, &record);
                    record.answered(head.status.as_u16(), Source::Origin);
                    let guard = travelling_far(record, learning, open);
                    Ok(Response::from_parts(head, Body::streamed(body, guard)))
                }
                Ok(Made::Own(mut response)) => {
                    asker.tell_more(response.headers_mut(), &record);
                    Ok(own(response, &parts.method, record, open))
                }
                Ok(Made::Unheard) => Err(Hangup),
                Err(refusal) => match self.refused(&refusal, &asker, &snapshot, &mut record) {
                    Some(response) => Ok(own(response, &parts.method, record, open)),
                    None => Err(Hangup),
                },
            }
        }
    }

    /// The whole way of a request: each step may refuse it. The snapshot becomes the one that judged it last. What is
    /// sent on is taken out of the parts.
    async fn pass(
        &self,
        parts: &mut request::Parts,
        body: Incoming,
        seat: &Seat,
        asker: &mut Asker,
        snapshot: &mut Arc<PolicyInForce>,
        record: &mut Record,
    ) -> Result<Made, Refused> {
        let who = match identify(&self.crawlers, &seat.caller, &parts.headers).await {
            Ok(who) => who,
            Err(refusal) => return Err(Box::pin(discarded(refusal, parts, body)).await),
        };
        record.crawler(who.index);
        asker.is(&who.crawler, record);
        record.enter(Stage::Target);
        let (target, journey) = match self.enter(parts, seat.inside()) {
            Ok(Entry { target, journey }) => (target, journey),
            Err(refusal) => return Err(Box::pin(discarded(refusal, parts, body)).await),
        };
        record.target(&target);
        if let Some(closed) = seat.inside().and_then(Inside::closed) {
            closed.told();
            *snapshot = Arc::clone(&closed.under);
            record.judged_under(&snapshot.counters);
            return Err(Box::pin(discarded(closed.refusal.clone(), parts, body)).await);
        }
        let asked = Asked::new(target, who.crawler, parts);
        let Passage {
            outcome,
            mut judged,
            held,
        } = {
            let profile = || asker.manner(self.profile).profile;
            let waits = Waits {
                hold: &self.hold,
                profile: &profile,
            };
            let (destinations, ledger) = (&*self.vetting, self.ledger.get());
            let way = Way {
                destinations,
                robots: &self.robots,
                in_force: &self.in_force,
                waits,
                ledger,
            };
            gate_request::request(asked, Arc::clone(snapshot), &way).await
        };
        note(record, &judged);
        let waited = Waited {
            found_in: judged.found_in,
            fetched_in: judged.fetched_in,
            held,
        };
        let decided = timing::decided(record, waited);
        if !Arc::ptr_eq(snapshot, &judged.snapshot) {
            *snapshot = Arc::clone(&judged.snapshot);
        }
        let permit = match sent_on(outcome, journey) {
            Ok(permit) => permit,
            Err(Instead::Own(response)) => return Ok(Made::Own(*response)),
            Err(Instead::Refused(refusal)) => {
                learn::refused(&judged, &refusal, &self.hold);
                return Err(Box::pin(discarded(refusal, parts, body)).await);
            }
        };
        let mut learning = Learning::of(&judged);
        let call = self.call(parts, body, &mut judged, record);
        let answered = self.upstream.send(permit, call, decided).await;
        if let (Some(learning), Ok(answered)) = (&mut learning, &answered) {
            learning.answered_by(answered.address.ip());
        }
        let answer = match heard(answered, decided, record) {
            Err(error) if error.client_left() => return Ok(Made::Unheard),
            answer => answer.map_err(Refusal::from),
        };
        let answer = answer.map_err(|r| {
            Box::new(Refusal {
                keep: judged.keep(r.stage),
                ..r
            })
        });
        let answer = answer.and_then(|answer| {
            self.judge_answer(answer, asker, &mut judged, record, learning.as_deref_mut())
        });
        // What stays in the request's future is big enough without a document: those are settled in one of their own.
        let staged = match answer {
            Ok(answer) if document::concerns(&judged, &answer.head) => {
                Box::pin(self.document(answer, judged, record, learning, held))
            }
            answer => return self.settled(answer, &judged, learning, held),
        };
        staged.await
    }

    /// The end of the way: the answer as it is passed on, or its refusal.
    fn settled(
        &self,
        answer: Result<Answer, Refused>,
        judged: &Judged<Arc<PolicyMetrics>>,
        mut learning: Option<Box<Learning>>,
        held: Option<Duration>,
    ) -> Result<Made, Refused> {
        let Answer {
            mut head,
            body,
            marks,
        } = answer.inspect_err(|refusal| {
            learning
                .iter_mut()
                .for_each(|learning| learning.refused(refusal, &self.hold));
        })?;
        self.describe(&mut head, marks, judged);
        if let Some(held) = held {
            answer::tell_held(&mut head.headers, held);
        }
        Ok(Made::Passed(Passed {
            head,
            body,
            learning,
        }))
    }

    fn enter(&self, parts: &request::Parts, inside: Option<&Inside>) -> Result<Entry, Refused> {
        let entry = front::enter(parts, &self.via, inside)?;
        let length = parts
            .headers
            .get(CONTENT_LENGTH)
            .and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > self.request_body) {
            return Err(Box::new(too_large()));
        }
        Ok(entry)
    }

    /// A client's request as the origin gets it.
    fn call(
        &self,
        parts: &mut request::Parts,
        body: Incoming,
        judged: &mut Judged<Arc<PolicyMetrics>>,
        record: &mut Record,
    ) -> Call {
        record.enter(Stage::Upstream);
        let mut headers = std::mem::take(&mut parts.headers);
        front::count_forward(&parts.method, &mut headers);
        clean::request(
            &mut headers,
            judged.asked.target.authority(),
            parts.version,
            &self.via,
        );
        if judged.asked.changes_origin() {
            // They were meant for the origin that the crawler named.
            headers.remove(AUTHORIZATION);
            headers.remove(COOKIE);
        }
        judged.effects().change_request(&mut headers);
        document::prepare_request(&mut headers, judged);
        recrawl::add_conditions(judged, &mut headers);
        let target = &judged.asked.target;
        let received = std::mem::take(&mut parts.uri).into_parts().path_and_query;
        let uri = received
            .filter(|p| p.as_str() == target.path_and_query())
            .map(Into::into);
        let body = Upload::new(
            body,
            self.request_body,
            self.body_times.with(judged.body_timeouts()),
        );
        if let Some(watch) = body.watch() {
            record.uploads(Arc::clone(watch.bytes()));
        }
        Call {
            method: parts.method.clone(),
            headers,
            body,
            uri,
        }
    }

    /// The document stage, for the few answers that come to it, and the end of their way.
    async fn document(
        &self,
        answer: Answer,
        mut judged: Judged<Arc<PolicyMetrics>>,
        record: &mut Record,
        mut learning: Option<Box<Learning>>,
        held: Option<Duration>,
    ) -> Result<Made, Refused> {
        let Answer {
            mut head,
            body: Outgoing::Plain(download),
            marks,
        } = answer
        else {
            return self.settled(Ok(answer), &judged, learning, held);
        };
        record.enter(Stage::Document);
        let metrics = self.recorder.metrics();
        let staged = document::stage(
            &mut judged,
            &mut head,
            download,
            learning.as_deref_mut(),
            metrics,
        )
        .await;
        note(record, &judged);
        self.settled(
            staged.map(|body| Answer { head, body, marks }),
            &judged,
            learning,
            held,
        )
    }

    /// The response stage.
    fn judge_answer(
        &self,
        response: Response<Box<Download>>,
        asker: &Asker,
        judged: &mut Judged<Arc<PolicyMetrics>>,
        record: &mut Record,
        learning: Option<&mut Learning>,
    ) -> Result<Answer, Refused> {
        let (mut head, mut download) = response.into_parts();
        match clean::settle_framing(&mut head.headers) {
            Ok(_) if head.status.is_informational() => return Err(unreadable()),
            Ok(Framing::Plain) => {}
            Ok(Framing::Doubtful) => download.end_with_it(),
            Err(UnknownCoding) => return Err(unreadable()),
        }
        record.enter(Stage::Response);
        let asked = asker.conditional();
        let verdict = gate_response::response(judged, &head, asked, learning, &self.hold);
        note(record, judged);
        // Refused: the connection is dropped with the body, of which no byte was passed on.
        let marks = verdict?;
        // As the rules on sizes: an error page is passed on.
        if let Some(most) = judged.max_body().filter(|_| head.status.is_success()) {
            download.limit(most);
        }
        download.lasts(judged.body_timeouts());
        Ok(Answer {
            head,
            body: Outgoing::Plain(download),
            marks,
        })
    }

    /// The head of an answer that passed, as the client gets it.
    fn describe(
        &self,
        parts: &mut response::Parts,
        marks: Marks,
        judged: &Judged<Arc<PolicyMetrics>>,
    ) {
        clean::response(&mut parts.headers, parts.status, parts.version, &self.via);
        if let Some(asked) = judged.asked.instead_of() {
            clean::in_place(&mut parts.headers, asked, &judged.asked.target);
        }
        answer::tell_marks(&mut parts.headers, marks);
        judged
            .tags()
            .for_each(|tag| answer::tell_tag(&mut parts.headers, tag));
        judged.effects().describe_answer(&mut parts.headers);
        if let Some(tag) = judged.effects().robots_tag() {
            robots_tag::merge(&mut parts.headers, tag);
        }
        parts.version = http::Version::HTTP_11;
    }

    /// The answer to a refused request; none for a crawler that is hung up on.
    pub(in crate::proxy) fn refused(
        &self,
        refusal: &Refusal,
        asker: &Asker,
        snapshot: &PolicyInForce,
        record: &mut Record,
    ) -> Option<Response<Bytes>> {
        record.enter(refusal.stage);
        record.rejected(
            refusal.reason,
            refusal.cause.map(|rule| rule.0),
            refusal.keep,
        );
        let decision = record.id().text();
        let in_force = answer::InForce {
            name: snapshot.policy.name(),
            revision: snapshot.policy.revision(),
        };
        let mut response = match refusal.form {
            Form::Problem => {
                answer::refuse(refusal, asker.manner(self.profile), in_force, &decision)
            }
            Form::RobotsTxt => Some(answer::robots_txt(refusal, in_force, &decision)),
        }?;
        asker.tell_more(response.headers_mut(), record);
        Some(response)
    }
}

/// What became of a request that was not refused.
enum Made {
    /// The origin's answer.
    Passed(Passed),
    /// One of our own.
    Own(Response<Bytes>),
    /// None: the client left in the middle of its request.
    Unheard,
}

/// What is said in place of sending a request on.
enum Instead {
    Own(Box<Response<Bytes>>),
    Refused(Refused),
}

/// The permit of a request that goes on to the origin.
fn sent_on<V>(outcome: Outcome<V>, journey: Journey) -> Result<Permit<V>, Instead> {
    match outcome {
        Outcome::Forward(_) if journey == Journey::EndsHere => Err(Instead::Own(options().into())),
        Outcome::Forward(permit) => Ok(permit),
        Outcome::Robots(known) => Err(Instead::Own(answer::known_robots_txt(&known).into())),
        Outcome::Answer(refusal) => Err(Instead::Refused(refusal)),
    }
}

/// Tells the record what has come from the origin.
fn heard(
    answered: Result<Answered, UpstreamError>,
    began: Instant,
    record: &mut Record,
) -> Result<Response<Box<Download>>, UpstreamError> {
    let answered = answered.inspect_err(|error| {
        if !error.client_left() && !matches!(error, UpstreamError::Resting(_)) {
            timing::failed(record, error, began);
        }
    })?;
    record.address(answered.address.ip());
    let ttfb = timing::answered(record, &answered, began);
    let response = answered.response;
    record.origin_answered(
        response.status().as_u16(),
        response.headers().get(CONTENT_TYPE),
        ttfb,
    );
    Ok(response)
}

/// Tells the record what the policy has done so far.
fn note(record: &mut Record, judged: &Judged<Arc<PolicyMetrics>>) {
    record.judged_under(&judged.snapshot.counters);
    record.matched(judged.matched().iter().map(|rule| rule.0));
    record.allowed(judged.cause().map(|rule| rule.0));
    record.shadows(judged.shadow_notes());
    if let Some(source) = judged.effects().source() {
        record.source(source);
    }
}

/// RFC 9110 section 9.3.7: OPTIONS that goes no further is answered with what the proxy itself can do.
fn options() -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    response.headers_mut().insert(
        http::header::ALLOW,
        HeaderValue::from_static(answer::ALLOWED),
    );
    response
}

fn unreadable() -> Refused {
    Box::new(Refusal::new(Reason::UpstreamProtocol, Stage::Upstream))
}

fn too_large() -> Refusal {
    Refusal::new(Reason::RequestTooLarge, Stage::Target)
        .with_detail("the request's body is larger than the limit")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How big the future is that serves a request.
    fn size<'a, F>(
        _: impl FnOnce(&'a Exchange, Request<Incoming>, ServiceOpen, &'a Seat) -> F,
    ) -> usize {
        size_of::<F>()
    }

    #[test]
    fn what_serves_a_request_is_small_enough_to_move() {
        assert!(
            size(Exchange::answer) <= 2_816,
            "{}",
            size(Exchange::answer)
        );
    }
}
