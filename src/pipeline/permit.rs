//! The permit: no request reaches an origin without one.

use crate::model::certificate_verification::CertificateVerification;
pub use crate::policy::options::timeouts::{BodyTimeouts, OriginTimeouts};
use crate::urls::target::{HostTarget, UrlTarget};

use super::admission::HostSlot;

/// Proof that a request passed every stage, and where it may go: nothing else names an upstream.
///
/// Only the gate makes one, and sending consumes it, so that one judgement sends one request:
///
/// ```compile_fail
/// let target = crawlgate::urls::target::UrlTarget::parse("http://example.com/").unwrap();
/// let permit = crawlgate::pipeline::permit::Permit { target, vetted: (), slot: panic!(), manner: panic!() };
/// ```
///
/// ```compile_fail
/// fn twice(permit: crawlgate::pipeline::permit::Permit<()>) {
///     permit.redeem();
///     permit.redeem();
/// }
/// ```
#[derive(Debug)]
#[must_use = "a permit that is not redeemed is a request that is not sent"]
pub struct Permit<V> {
    target: UrlTarget,
    vetted: V,
    slot: HostSlot,
    options: SendOptions,
}

/// How a request is sent, as far as the policy says.
#[derive(Clone, Copy, Debug)]
pub struct SendOptions {
    /// Whether the origin's certificate must be verified.
    pub verify: CertificateVerification,
    /// In place of the configuration's time-outs.
    pub timeouts: OriginTimeouts,
}

impl<V> Permit<V> {
    pub(in crate::pipeline) fn new(
        target: UrlTarget,
        vetted: V,
        slot: HostSlot,
        options: SendOptions,
    ) -> Self {
        Self {
            target,
            vetted,
            slot,
            options,
        }
    }

    /// How it is sent.
    pub fn options(&self) -> SendOptions {
        self.options
    }

    /// Gives up the permit for the target to ask, the addresses to dial, and the host's slot, which must be kept to
    /// the origin's last byte. A permit that is dropped instead returns its slot unused.
    pub fn redeem(self) -> (UrlTarget, V, HostSlot) {
        let mut slot = self.slot;
        slot.begin();
        (self.target, self.vetted, slot)
    }
}

/// Proof that a tunnel to a host may be opened, and to which addresses. Nothing is dialled for a CONNECT without one.
///
/// As with [`Permit`], only the gate makes one, and opening the tunnel consumes it:
///
/// ```compile_fail
/// let host = crawlgate::urls::target::HostTarget::parse_authority("example.com:443").unwrap();
/// let permit = crawlgate::pipeline::permit::TunnelPermit { host, vetted: (), slot: panic!() };
/// ```
#[derive(Debug)]
#[must_use = "a permit that is not redeemed is a tunnel that is not opened"]
pub struct TunnelPermit<V> {
    host: HostTarget,
    vetted: V,
    slot: HostSlot,
}

impl<V> TunnelPermit<V> {
    pub(in crate::pipeline) fn new(host: HostTarget, vetted: V, slot: HostSlot) -> Self {
        Self { host, vetted, slot }
    }

    /// Gives up the permit for the host, the addresses to dial, and the host's turn, to be kept until the tunnel is
    /// open.
    pub fn redeem(self) -> (HostTarget, V, HostSlot) {
        let mut slot = self.slot;
        slot.begin();
        (self.host, self.vetted, slot)
    }
}
