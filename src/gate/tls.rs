//! What becomes of a tunnel's TLS: the option `tls`, decided once for each CONNECT (decisions.md section 4).

use crate::metrics::record::Keep;
use crate::policy::Policy;
use crate::policy::options::schema::slot;
use crate::policy::options::{SetBy, Slot};
use crate::policy::trail::Trail;
use crate::vocab::reason::Reason;
use crate::vocab::rule_id::RuleId;
use crate::vocab::stage::Stage;

use super::refusal::{Refusal, recorded};
use super::snapshot::Snapshot;
use super::tunnel::{TunnelAsked, judge};

const TLS: Slot = slot("tls");

/// What is done with a tunnel's TLS.
#[derive(Clone, Debug)]
pub enum TlsWay {
    /// It ends here, and each request inside is judged whole.
    Intercept,
    /// It goes on to the origin unseen.
    Tunnel,
    /// Neither.
    Reject(Box<Refusal>),
}

/// What the policy says of a tunnel's TLS; nothing if it leaves that to the configuration.
///
/// The option may be set only under conditions that a CONNECT answers, so nothing that a tunnel hides can change this.
pub fn tls_way<C>(asked: &TunnelAsked, snapshot: &Snapshot<C>) -> Option<TlsWay> {
    let policy = &snapshot.policy;
    let (trail, _) = judge(policy, asked);
    match trail.word(policy, TLS)? {
        "intercept" => Some(TlsWay::Intercept),
        "tunnel" => Some(TlsWay::Tunnel),
        _ => Some(TlsWay::Reject(Box::new(rejected(policy, &trail)))),
    }
}

/// A rule's `tls: reject`, or that of the options.
fn rejected(policy: &Policy, trail: &Trail) -> Refusal {
    let refusal = Refusal {
        keep: recorded(policy, trail, Keep::Host),
        ..Refusal::new(Reason::Default, Stage::Connect)
    };
    match trail.set_by(policy, TLS) {
        SetBy::Rule(index) => {
            let rule = policy.rules().get(index.0 as usize);
            let id = rule.and_then(|rule| RuleId::new(rule.id.as_str()));
            let about = rule
                .and_then(|rule| rule.about.as_deref())
                .unwrap_or("no TLS to this host (tls: reject)");
            Refusal {
                reason: Reason::Rule,
                rule: id,
                cause: Some(index),
                ..refusal
            }
            .with_detail(about.to_owned())
        }
        SetBy::Document | SetBy::Space(_) | SetBy::BuiltIn => {
            refusal.with_detail("no TLS through this proxy (tls: reject)")
        }
    }
}
