//! The option `tls`: what happens to a tunnel's TLS, decided once for each CONNECT.

use crate::metrics::record::UrlRetention;
use crate::model::reason::Reason;
use crate::model::rule_id::RuleId;
use crate::model::stage::Stage;
use crate::policy::Policy;
use crate::policy::options::schema::option_index;
use crate::policy::options::{OptionIndex, OptionSetter};
use crate::policy::trail::Trail;

use super::facts::{EvaluationFacts, TunnelFacts};
use super::refusal::{Refusal, recorded_url_retention};
use super::snapshot::PolicySnapshot;

const TLS: OptionIndex = option_index("tls");

/// The handling of a tunnel's TLS.
#[derive(Clone, Debug)]
pub enum TlsHandling {
    /// The proxy terminates it, and evaluates each request inside.
    Intercept,
    /// It is forwarded to the origin without being read.
    Tunnel,
    /// The tunnel is refused.
    Reject(Box<Refusal>),
}

/// Returns the policy's choice for a tunnel's TLS; `None` if it leaves that to the configuration.
///
/// The option may be set only under conditions that a CONNECT can answer, so nothing inside the tunnel can change this.
pub fn tls_handling(tunnel_facts: &TunnelFacts, snapshot: &PolicySnapshot) -> Option<TlsHandling> {
    let policy = &snapshot.policy;
    let (trail, _) = tunnel_facts.decide(snapshot);
    match trail.word(policy, TLS)? {
        "intercept" => Some(TlsHandling::Intercept),
        "tunnel" => Some(TlsHandling::Tunnel),
        _ => Some(TlsHandling::Reject(Box::new(tls_refusal(policy, &trail)))),
    }
}

/// Returns the refusal by `tls: reject` of a rule or of the options.
fn tls_refusal(policy: &Policy, trail: &Trail) -> Refusal {
    let refusal = Refusal {
        url_retention: recorded_url_retention(policy, trail, UrlRetention::Host),
        ..Refusal::new(Reason::Default, Stage::Connect)
    };
    match trail.set_by(policy, TLS) {
        OptionSetter::Rule(index) => {
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
        OptionSetter::Document
        | OptionSetter::Space(_)
        | OptionSetter::Host(_)
        | OptionSetter::BuiltIn => refusal.with_detail("no TLS through this proxy (tls: reject)"),
    }
}
