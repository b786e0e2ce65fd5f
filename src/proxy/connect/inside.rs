//! Behind the 200 to a CONNECT that is looked into: TLS that ends here, or HTTP in the clear. What comes of it is HTTP,
//! judged like any other.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::gate::crawlers::{Caller, Identity};
use crate::gate::refusal::Refusal;
use crate::metrics::labels::{ForeignBytes, SniCheck};
use crate::metrics::record::{Keep, Record};
use crate::proxy::drain::DrainWatch;
use crate::proxy::front::{Closed, Inside};
use crate::proxy::head::{Handover, secure};
use crate::proxy::http::{Exchange, PolicyInForce};
use crate::proxy::intercept::{Interceptor, failed};
use crate::proxy::sniff::Sniffed;
use crate::proxy::tunnel::cut_off;
use crate::tls::leaf::{MintError, Tickets};
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;
use crate::vocab::target::HostTarget;

use super::Seat;
use super::behind::{First, close, is_http};

/// What a granted CONNECT leads into.
#[derive(Debug)]
pub(super) struct Open {
    /// Who opened it: credentials cover what is inside.
    pub(super) who: Identity,
    /// Why nothing is served in there, if that is so.
    pub(super) refused: Option<Box<Refusal>>,
    pub(super) interceptor: Arc<Interceptor>,
    /// The policy that judged it.
    pub(super) under: Arc<PolicyInForce>,
}

/// Why a handshake came to nothing.
enum Broken {
    /// The client's doing.
    Client(&'static str),
    /// So many certificates were made for it that it would have to wait for too long.
    Late,
    /// No certificate can be made.
    Ours(String),
    /// The proxy is going down.
    Drained,
}

impl Exchange {
    /// Goes on to where HTTP begins.
    pub(super) async fn look_inside(
        &self,
        mut client: Handover,
        (mut record, host): (Record, HostTarget),
        mut open: Open,
        seat: &mut Seat,
        drain: &mut DrainWatch,
    ) -> Option<Handover> {
        let first = self.first(&mut client, drain).await;
        let (client, inside) = if is_plain(&first, &client) {
            record.forget();
            (client, Inside::plain(&host))
        } else {
            let check = self.check_name(first, &host)?;
            let refused = match check {
                SniCheck::Match | SniCheck::Ech | SniCheck::None => open.refused.take(),
                SniCheck::Mismatch => Some(Box::new(misnamed())),
                SniCheck::NotTls | SniCheck::Malformed | SniCheck::Timeout => {
                    self.close_unread(check, &client, record);
                    return None;
                }
            };
            let tickets = if matches!(check, SniCheck::Match | SniCheck::Ech) && refused.is_none() {
                Tickets::Stateless
            } else {
                Tickets::None
            };
            if let Some(refusal) = &refused {
                record.judged_under(&open.under.counters);
                record.rejected(
                    refusal.reason,
                    refusal.cause.map(|rule| rule.0),
                    refusal.keep,
                );
            }
            let hello = (&host, tickets, seat.caller.address());
            match self
                .handshake(client, &open.interceptor, hello, drain)
                .await
            {
                Ok(client) => (client, entered(&host, refused, &open, record)),
                Err(broken) => {
                    self.close_broken(broken, &open, &host, record);
                    return None;
                }
            }
        };
        seat.caller = Caller::inside_tunnel(seat.caller.address(), open.who);
        seat.inside = Some((inside, None));
        Some(client)
    }

    async fn handshake(
        &self,
        client: Handover,
        interceptor: &Interceptor,
        (host, tickets, address): (&HostTarget, Tickets, std::net::IpAddr),
        drain: &mut DrainWatch,
    ) -> Result<Handover, Broken> {
        let patience: Duration = self.tunnels.settings.hello;
        let clock = self.recorder.clock();
        let handshake = async {
            let leaf = interceptor
                .leaf(host.host(), address, patience)
                .await
                .map_err(Broken::of)?;
            let began = clock.now();
            // The wait for a certificate is ours: the client's time begins behind it.
            let shaken =
                tokio::time::timeout(patience, secure::accept(client, leaf.config(tickets))).await;
            let shaken = shaken.map_err(|_| Broken::Client("client_tls_timeout"))?;
            let client = shaken.map_err(|error: io::Error| Broken::Client(failed(&error)))?;
            self.recorder
                .metrics()
                .client_tls(clock.now().saturating_duration_since(began));
            Ok(client)
        };
        tokio::select! {
            shaken = handshake => shaken,
            () = cut_off(drain) => Err(Broken::Drained),
        }
    }

    /// Closes a tunnel of which the first bytes are neither TLS nor HTTP.
    fn close_unread(&self, check: SniCheck, client: &Handover, record: Record) {
        let (reason, why) = match (check, client.unread.is_empty()) {
            (SniCheck::Timeout, true) => (Reason::RequestTimeout, "tunnel_silent"),
            (SniCheck::Timeout, false) => (Reason::RequestTimeout, "client_hello_timeout"),
            (SniCheck::Malformed, _) => (Reason::BadRequest, "client_hello_malformed"),
            (
                SniCheck::NotTls
                | SniCheck::Match
                | SniCheck::Mismatch
                | SniCheck::None
                | SniCheck::Ech,
                _,
            ) => {
                self.recorder.metrics().foreign_bytes(ForeignBytes::Unknown);
                (Reason::BadRequest, "not_http")
            }
        };
        close(record, reason, Keep::Full, why);
    }

    fn close_broken(&self, broken: Broken, open: &Open, host: &HostTarget, record: Record) {
        match broken {
            Broken::Drained => record.forget(),
            Broken::Late => close(record, Reason::Overloaded, Keep::Full, "mint_rate"),
            Broken::Ours(error) => {
                tracing::error!(host = host.host(), error, "no certificate can be made");
                close(record, Reason::InternalError, Keep::Full, "mint_failed");
            }
            Broken::Client(why) => {
                let mut record = record;
                record.tunnel_closed(why);
                self.recorder.metrics().client_tls_failed(open.who.index);
                if open.interceptor.tells(self.recorder.clock().now()) {
                    tracing::warn!(
                        crawler = open.who.crawler.as_str(),
                        host = host.host(),
                        why,
                        "a client broke off its TLS handshake: does it trust the CA? `crawlgate env` prints what \
                         makes it. Told once a minute; crawlgate_client_tls_failures_total counts them all"
                    );
                }
            }
        }
    }
}

impl Broken {
    fn of(error: MintError) -> Self {
        match error {
            MintError::Late => Self::Late,
            MintError::Failed(error) => Self::Ours(error),
        }
    }
}

/// A tunnel in which TLS stands. The CONNECT of a refused one is recorded as such, unless something is asked inside.
fn entered(
    host: &HostTarget,
    refused: Option<Box<Refusal>>,
    open: &Open,
    record: Record,
) -> Inside {
    let Some(refusal) = refused else {
        record.forget();
        return Inside::tls(host, None);
    };
    Inside::tls(
        host,
        Some(Closed::new(refusal, Arc::clone(&open.under), record)),
    )
}

/// Whether a client begins with HTTP in the clear, as undici, linkinator and ureq do behind `CONNECT host:80`.
fn is_plain(first: &First, client: &Handover) -> bool {
    matches!(first, First::Sniffed(Sniffed::NotTls))
        && client.unread.first().is_some_and(|byte| is_http(*byte))
}

/// Its certificate is that of the CONNECT's host, and the answer to its first request is this.
fn misnamed() -> Refusal {
    Refusal::new(Reason::HostMismatch, Stage::Target)
        .with_detail("the server name in the ClientHello is not the host of the CONNECT")
}
