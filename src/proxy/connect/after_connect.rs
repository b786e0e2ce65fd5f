//! Handles a connection after the 200 to a CONNECT: the first bytes show the protocol and decide
//! whether the tunnel may continue.

use std::sync::Arc;

use crate::metrics::labels::{ForeignBytesKind, SniCheck};
use crate::metrics::record::{RequestRecord, UrlRetention};
use crate::model::reason::Reason;
use crate::model::stage::Stage;
use crate::pipeline::crawlers::ConnectedClient;
use crate::proxy::accept::close_lingering;
use crate::proxy::drain::DrainWatch;
use crate::proxy::head::ClientSocket;
use crate::proxy::http::{ProxyService, record_policy};
use crate::proxy::request_target::EnclosingTunnel;
use crate::proxy::sniff::{self, SniffResult, Sniffer};
use crate::proxy::tunnel::{
    TunnelAdmission, TunnelEnd, TunnelMeter, TunnelWatch, relay, relay_layered, wait_cut_off,
};
use crate::urls::target::HostTarget;

use super::{ConnectionContext, GrantedTunnel, OpaqueTunnel, TunnelMode, TunnelRoute};

/// The number of bytes received at a time before the protocol is known.
const READ_SIZE: usize = 2048;

/// The client's behaviour after the 200.
pub(super) enum FirstBytes {
    /// It sent enough bytes to recognize the protocol.
    Sniffed(SniffResult),
    /// It left, or the proxy is shutting down.
    ClientLeft,
    /// It did neither in time.
    TimedOut,
}

/// The first bytes in a tunnel to a port without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlainTunnelStart {
    Http,
    Foreign(ForeignBytesKind),
    TimedOut,
    ClientLeft,
}

impl ProxyService {
    /// Continues after the response to a CONNECT. Returns the socket if HTTP follows inside the
    /// tunnel, to be served like any other.
    pub(crate) async fn continue_after_connect(
        &self,
        mut client: ClientSocket,
        context: &mut ConnectionContext,
        drain: &mut DrainWatch,
    ) -> Option<ClientSocket> {
        let Some(granted) = context.take_granted() else {
            close_lingering(&mut client).await;
            return None;
        };
        let GrantedTunnel { record, host, mode } = *granted;
        match mode {
            TunnelMode::Opaque(tunnel, _slot) => {
                let first = self.sniff_first_bytes(&mut client, drain).await;
                let check = self.check_sni(first, &host)?;
                if sniff::is_allowed(check, &host) {
                    Box::pin(self.relay_opaque(client, *tunnel, record, drain)).await;
                } else {
                    let (reason, close_reason) = close_reason(check);
                    record_rejected(
                        record,
                        reason,
                        tunnel.evaluation.url_retention_after_sending(),
                        close_reason,
                    );
                }
                None
            }
            TunnelMode::Plain(identity, gauge) => {
                let plain = self.read_plain_start(&mut client, drain).await;
                if plain == PlainTunnelStart::Http {
                    record.finish(self.recorder.clock().now());
                    // The credentials of the CONNECT apply to the requests inside.
                    context.caller =
                        ConnectedClient::for_tunnel(context.caller.address(), identity);
                    context.enclosing_tunnel = Some((EnclosingTunnel::plain(&host), Some(gauge)));
                    return Some(client);
                }
                self.close_plain(plain, record);
                None
            }
            TunnelMode::Intercepted(tunnel) => {
                self.start_interception(client, (record, host), *tunnel, context, drain)
                    .await
            }
            TunnelMode::Forwarded(tunnel) => {
                record.discard();
                Box::pin(self.relay_to_owner(client, *tunnel, drain)).await;
                None
            }
        }
    }

    /// Reads until it is clear what a client sends to a TLS port.
    pub(super) async fn sniff_first_bytes(
        &self,
        client: &mut ClientSocket,
        drain: &mut DrainWatch,
    ) -> FirstBytes {
        let mut sniffer = Sniffer::default();
        let mut sniffed = sniffer.feed(&client.unread);
        let reading = async {
            while sniffed == SniffResult::NeedMore {
                let room = sniffer.remaining().min(READ_SIZE);
                match client.receive(room).await {
                    Ok(bytes) if !bytes.is_empty() => sniffed = sniffer.feed(&bytes),
                    Ok(_) | Err(_) => return FirstBytes::ClientLeft,
                }
            }
            FirstBytes::Sniffed(sniffed)
        };
        let first = tokio::select! {
            first = tokio::time::timeout(self.tunnels.settings.hello, reading) => first.unwrap_or(FirstBytes::TimedOut),
            () = wait_cut_off(drain) => FirstBytes::ClientLeft,
        };
        client.unread = sniffer.into_bytes();
        first
    }

    /// Compares the ClientHello with the tunnel's host and counts the result, unless the client
    /// left.
    pub(super) fn check_sni(&self, first: FirstBytes, host: &HostTarget) -> Option<SniCheck> {
        let check = match first {
            FirstBytes::ClientLeft => return None,
            FirstBytes::TimedOut => SniCheck::Timeout,
            FirstBytes::Sniffed(SniffResult::Hello(hello)) => sniff::check_sni(&hello, host),
            FirstBytes::Sniffed(SniffResult::NotTls) => SniCheck::NotTls,
            FirstBytes::Sniffed(SniffResult::Malformed | SniffResult::NeedMore) => {
                SniCheck::Malformed
            }
        };
        self.recorder.metrics().record_sni_check(check);
        Some(check)
    }

    /// Reads the first bytes in a tunnel to a port without TLS.
    async fn read_plain_start(
        &self,
        client: &mut ClientSocket,
        drain: &mut DrainWatch,
    ) -> PlainTunnelStart {
        if client.unread.is_empty() {
            let received = tokio::select! {
                received = tokio::time::timeout(self.tunnels.settings.hello, client.receive(READ_SIZE)) => received,
                () = wait_cut_off(drain) => return PlainTunnelStart::ClientLeft,
            };
            match received {
                Ok(Ok(bytes)) => client.unread = bytes,
                Ok(Err(_)) => return PlainTunnelStart::ClientLeft,
                Err(_) => return PlainTunnelStart::TimedOut,
            }
        }
        match client.unread.first() {
            None => PlainTunnelStart::ClientLeft,
            Some(0x16) => PlainTunnelStart::Foreign(ForeignBytesKind::ClientHello),
            Some(byte) if starts_http(*byte) => PlainTunnelStart::Http,
            Some(_) => PlainTunnelStart::Foreign(ForeignBytesKind::Unknown),
        }
    }

    fn close_plain(&self, plain: PlainTunnelStart, record: RequestRecord) {
        match plain {
            PlainTunnelStart::Http | PlainTunnelStart::ClientLeft => {}
            PlainTunnelStart::TimedOut => record_rejected(
                record,
                Reason::RequestTimeout,
                UrlRetention::Full,
                "tunnel_silent",
            ),
            PlainTunnelStart::Foreign(foreign) => {
                self.recorder.metrics().record_foreign_bytes(foreign);
                let (reason, close_reason) = match foreign {
                    ForeignBytesKind::ClientHello => (Reason::PortDenied, "tls_on_plain_port"),
                    ForeignBytesKind::Http2Preface | ForeignBytesKind::Unknown => {
                        (Reason::BadRequest, "not_http")
                    }
                };
                record_rejected(record, reason, UrlRetention::Full, close_reason);
            }
        }
    }

    /// Relays an opaque tunnel until it ends.
    async fn relay_opaque(
        &self,
        client: ClientSocket,
        tunnel: OpaqueTunnel,
        mut record: RequestRecord,
        drain: &mut DrainWatch,
    ) {
        let OpaqueTunnel {
            mut origin,
            address,
            via,
            mut evaluation,
            ownership,
        } = tunnel;
        let address = (via == TunnelRoute::Direct).then_some(address.ip());
        let meter = TunnelMeter::new(self.recorder.clock().clone());
        let mut refused = None;
        let evaluate = || {
            let now = self.active_policy.load();
            if !Arc::ptr_eq(&now, evaluation.snapshot()) {
                refused = evaluation.re_evaluate(now, address).err();
            }
            if refused.is_some() {
                return TunnelAdmission::Refused;
            }
            refused = evaluation.stop_refusal(&self.admission_queue);
            if refused.is_some() {
                TunnelAdmission::Stopped
            } else {
                TunnelAdmission::Admitted
            }
        };
        let watching = TunnelWatch {
            settings: &self.tunnels.settings,
            drain,
            policies: self.active_policy.subscribe(),
            stops: self.admission_queue.stops().subscribe(),
            ownership,
            evaluate,
        };
        // Without TCP of its own, the tunnel is inside TLS to the proxy or an HTTP/2 connection.
        // The same applies to an origin behind an HTTPS proxy.
        let end = match (client.tcp().cloned(), origin.as_plain_tcp()) {
            (Some(tcp), Some(origin)) => relay(&tcp, origin, client.unread, &meter, watching).await,
            (Some(_), None) | (None, _) => {
                Box::pin(relay_layered(client, &mut origin, &meter, watching)).await
            }
        };
        let (up, down) = meter.bytes();
        record.add_received_bytes(up);
        record.add_sent_bytes(down);
        if let Some(refusal) = refused {
            record_policy(&mut record, &evaluation);
            record.enter_stage(refusal.stage);
            refusal.record_in(&mut record);
        }
        record_end(record, end);
    }
}

/// Returns `true` if HTTP can begin with this byte: a method, or the blank line that some clients
/// send before one.
pub(super) fn starts_http(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'\r' | b'\n')
}

/// Returns the reason that is counted and the logged word for a tunnel that is closed after its
/// ClientHello.
fn close_reason(check: SniCheck) -> (Reason, &'static str) {
    match check {
        SniCheck::Mismatch => (Reason::HostMismatch, "sni_mismatch"),
        SniCheck::None | SniCheck::Match | SniCheck::Ech => (Reason::HostMismatch, "sni_none"),
        SniCheck::NotTls => (Reason::BadRequest, "not_tls"),
        SniCheck::Malformed => (Reason::BadRequest, "client_hello_malformed"),
        SniCheck::Timeout => (Reason::RequestTimeout, "client_hello_timeout"),
    }
}

/// Records that a tunnel is closed because of its first bytes.
pub(super) fn record_rejected(
    mut record: RequestRecord,
    reason: Reason,
    url_retention: UrlRetention,
    close_reason: &'static str,
) {
    record.enter_stage(Stage::Connect);
    record.set_rejected(reason, None, url_retention);
    record.set_close_reason(close_reason);
}

/// Records how a tunnel ended.
fn record_end(mut record: RequestRecord, end: TunnelEnd) {
    match end {
        TunnelEnd::Closed => record.mark_complete(),
        // A record that is not complete means that the client left.
        TunnelEnd::ClientLeft => {}
        TunnelEnd::OriginLeft => record.set_upstream_error("connection_terminated"),
        TunnelEnd::Idle => record.set_close_reason("tunnel_idle"),
        TunnelEnd::Expired => record.set_close_reason("tunnel_expired"),
        TunnelEnd::Drained => record.set_close_reason("shutting_down"),
        TunnelEnd::Refused => record.set_close_reason("policy_changed"),
        TunnelEnd::Stopped => record.set_close_reason("stopped"),
        TunnelEnd::LeaseEnded => record.set_close_reason("lease_ended"),
    }
}
