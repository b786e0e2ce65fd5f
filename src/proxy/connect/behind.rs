//! What follows the 200 to a CONNECT: the first bytes tell what it is, and whether it may go on.

use std::io;
use std::sync::Arc;

use bytes::BufMut;
use tokio::net::TcpStream;

use crate::gate::crawlers::Caller;
use crate::metrics::labels::{ForeignBytes, SniCheck};
use crate::metrics::record::{Keep, Record};
use crate::proxy::accept::part;
use crate::proxy::drain::DrainWatch;
use crate::proxy::front::Inside;
use crate::proxy::head::Handover;
use crate::proxy::http::Exchange;
use crate::proxy::sniff::{self, Sniffed, Sniffer};
use crate::proxy::tunnel::{End, Meter, Standing, Watching, carry, cut_off};
use crate::vocab::reason::Reason;
use crate::vocab::stage::Stage;
use crate::vocab::target::HostTarget;

use super::{Blind, Granted, Onward, Seat, note};

/// Bytes that are received at a time, until it is known what they are.
const PART: usize = 2048;

/// What a client does behind the 200.
pub(super) enum First {
    /// It sent enough to tell.
    Sniffed(Sniffed),
    /// It left, or the proxy is going down.
    Left,
    /// It did neither in time.
    Late,
}

/// What a tunnel to a port without TLS begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plain {
    Http,
    Foreign(ForeignBytes),
    Late,
    Left,
}

impl Exchange {
    /// Goes on behind the answer to a CONNECT. HTTP inside a tunnel comes back, to be served like any other.
    pub(in crate::proxy) async fn behind_connect(
        &self,
        mut client: Handover,
        seat: &mut Seat,
        drain: &mut DrainWatch,
    ) -> Option<Handover> {
        let Some(granted) = seat.granted() else {
            part(&mut client).await;
            return None;
        };
        let Granted {
            record,
            host,
            onward,
        } = *granted;
        match onward {
            Onward::Blind(blind, _place) => {
                let first = self.first(&mut client, drain).await;
                let check = self.check_name(first, &host)?;
                if sniff::passes(check, &host) {
                    Box::pin(self.tunnel(client, *blind, record, drain)).await;
                } else {
                    let (reason, why) = closed_for(check);
                    close(record, reason, blind.judged.keep(), why);
                }
                None
            }
            Onward::Plain(who, place) => {
                let plain = self.plain(&mut client, drain).await;
                if plain == Plain::Http {
                    record.finish(self.recorder.clock().now());
                    // Its credentials came with the CONNECT, and cover what is inside.
                    seat.caller = Caller::inside_tunnel(seat.caller.address(), who);
                    seat.inside = Some((Inside::plain(&host), Some(place)));
                    return Some(client);
                }
                self.close_plain(plain, record);
                None
            }
            Onward::Open(open) => {
                self.look_inside(client, (record, host), *open, seat, drain)
                    .await
            }
        }
    }

    /// Reads as far as it takes to know what a client sends to a TLS port.
    pub(super) async fn first(&self, client: &mut Handover, drain: &mut DrainWatch) -> First {
        let mut sniffer = Sniffer::default();
        let mut sniffed = sniffer.feed(&client.unread);
        let reading = async {
            while sniffed == Sniffed::More {
                match receive(client.tcp(), sniffer.room()).await {
                    Ok(bytes) if !bytes.is_empty() => sniffed = sniffer.feed(&bytes),
                    Ok(_) | Err(_) => return First::Left,
                }
            }
            First::Sniffed(sniffed)
        };
        let first = tokio::select! {
            first = tokio::time::timeout(self.tunnels.settings.hello, reading) => first.unwrap_or(First::Late),
            () = cut_off(drain) => First::Left,
        };
        client.unread = sniffer.into_bytes();
        first
    }

    /// Counts what a ClientHello says of the tunnel's host; nothing of a client that left.
    pub(super) fn check_name(&self, first: First, host: &HostTarget) -> Option<SniCheck> {
        let check = match first {
            First::Left => return None,
            First::Late => SniCheck::Timeout,
            First::Sniffed(Sniffed::Hello(hello)) => sniff::check(&hello, host),
            First::Sniffed(Sniffed::NotTls) => SniCheck::NotTls,
            First::Sniffed(Sniffed::Malformed | Sniffed::More) => SniCheck::Malformed,
        };
        self.recorder.metrics().sni_checked(check);
        Some(check)
    }

    /// Reads the first bytes in a tunnel to a port without TLS.
    async fn plain(&self, client: &mut Handover, drain: &mut DrainWatch) -> Plain {
        if client.unread.is_empty() {
            let received = tokio::select! {
                received = tokio::time::timeout(self.tunnels.settings.hello, receive(client.tcp(), PART)) => received,
                () = cut_off(drain) => return Plain::Left,
            };
            match received {
                Ok(Ok(bytes)) => client.unread = bytes,
                Ok(Err(_)) => return Plain::Left,
                Err(_) => return Plain::Late,
            }
        }
        match client.unread.first() {
            None => Plain::Left,
            Some(0x16) => Plain::Foreign(ForeignBytes::ClientHello),
            Some(byte) if is_http(*byte) => Plain::Http,
            Some(_) => Plain::Foreign(ForeignBytes::Unknown),
        }
    }

    fn close_plain(&self, plain: Plain, record: Record) {
        match plain {
            Plain::Http | Plain::Left => {}
            Plain::Late => close(record, Reason::RequestTimeout, Keep::Full, "tunnel_silent"),
            Plain::Foreign(foreign) => {
                self.recorder.metrics().foreign_bytes(foreign);
                let (reason, why) = match foreign {
                    ForeignBytes::ClientHello => (Reason::PortDenied, "tls_on_plain_port"),
                    ForeignBytes::Http2Preface | ForeignBytes::Unknown => {
                        (Reason::BadRequest, "not_http")
                    }
                };
                close(record, reason, Keep::Full, why);
            }
        }
    }

    /// Carries a blind tunnel to its end.
    async fn tunnel(
        &self,
        mut client: Handover,
        blind: Blind,
        mut record: Record,
        drain: &mut DrainWatch,
    ) {
        let Blind {
            origin,
            address,
            mut judged,
        } = blind;
        let meter = Meter::new(self.recorder.clock().clone());
        let mut refused = None;
        let judge = || {
            let now = self.in_force.load();
            if !Arc::ptr_eq(&now, &judged.snapshot) {
                refused = judged.judge_again(now, address.ip()).err();
            }
            if refused.is_some() {
                return Standing::Refused;
            }
            refused = judged.stopped(&self.hold);
            if refused.is_some() {
                Standing::Stopped
            } else {
                Standing::Admitted
            }
        };
        let (policies, stops) = (self.in_force.changes(), self.hold.stops().changes());
        let watching = Watching {
            settings: &self.tunnels.settings,
            drain,
            policies,
            stops,
            judge,
        };
        // A tunnel inside TLS there is not: CONNECT is refused there.
        let unread = std::mem::take(&mut client.unread);
        let Some(tcp) = client.tcp() else { return };
        let end = carry(tcp, &origin, unread, &meter, watching).await;
        let (up, down) = meter.bytes();
        record.add_up(up);
        record.add_down(down);
        if let Some(refusal) = refused {
            note(&mut record, &judged);
            record.enter(refusal.stage);
            record.rejected(
                refusal.reason,
                refusal.cause.map(|rule| rule.0),
                refusal.keep,
            );
        }
        ended(record, end);
    }
}

/// Whether HTTP begins so: with a method, or the blank line that some clients send before one.
pub(super) fn is_http(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || matches!(byte, b'\r' | b'\n')
}

/// Receives what there is, at most so much; nothing if nothing will come.
async fn receive(client: Option<&Arc<TcpStream>>, most: usize) -> io::Result<Vec<u8>> {
    let client = client.ok_or(io::ErrorKind::Unsupported)?;
    let room = most.min(PART);
    let mut bytes = Vec::with_capacity(room);
    loop {
        client.readable().await?;
        match client.try_read_buf(&mut (&mut bytes).limit(room)) {
            Ok(_) => return Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

/// Why a tunnel is closed behind its ClientHello: the reason that is counted, and the word of the log.
fn closed_for(check: SniCheck) -> (Reason, &'static str) {
    match check {
        SniCheck::Mismatch => (Reason::HostMismatch, "sni_mismatch"),
        SniCheck::None | SniCheck::Match | SniCheck::Ech => (Reason::HostMismatch, "sni_none"),
        SniCheck::NotTls => (Reason::BadRequest, "not_tls"),
        SniCheck::Malformed => (Reason::BadRequest, "client_hello_malformed"),
        SniCheck::Timeout => (Reason::RequestTimeout, "client_hello_timeout"),
    }
}

/// Closes a tunnel for what its first bytes are.
pub(super) fn close(mut record: Record, reason: Reason, keep: Keep, why: &'static str) {
    record.enter(Stage::Connect);
    record.rejected(reason, None, keep);
    record.tunnel_closed(why);
}

/// Tells the record how its tunnel ended.
fn ended(mut record: Record, end: End) {
    match end {
        End::Closed => record.complete(),
        // A record that is not complete is that of a client that left.
        End::ClientLeft => {}
        End::OriginLeft => record.upstream_failed("connection_terminated"),
        End::Idle => record.tunnel_closed("tunnel_idle"),
        End::Expired => record.tunnel_closed("tunnel_expired"),
        End::Drained => record.tunnel_closed("shutting_down"),
        End::Refused => record.tunnel_closed("policy_changed"),
        End::Stopped => record.tunnel_closed("stopped"),
    }
}
