//! The permit, without which no request reaches an origin.

use crate::model::certificate_verification::CertificateVerification;
use crate::model::http_versions::OriginHttpVersions;
pub use crate::policy::options::timeouts::{BodyTimeouts, OriginTimeouts};

use super::admission::HostSlot;

/// Proof that a request or a tunnel has passed every stage, and where it may go. Nothing else names an upstream.
///
/// `T` is the URL of a request or the host of a tunnel, so that the one cannot be used for the other; `Addresses` are
/// those that may be dialled. Only the pipeline makes a permit, and redeeming it consumes it, so that one
/// evaluation sends one request:
///
/// ```compile_fail,E0451
/// fn forge(slot: crawlgate::pipeline::admission::HostSlot, options: crawlgate::pipeline::permit::SendOptions) {
///     let target = crawlgate::urls::target::UrlTarget::parse("http://example.com/").unwrap();
///     let permit = crawlgate::pipeline::permit::Permit { target, addresses: (), slot, options };
/// }
/// ```
///
/// ```compile_fail,E0382
/// fn twice(permit: crawlgate::pipeline::permit::Permit<(), ()>) {
///     permit.redeem();
///     permit.redeem();
/// }
/// ```
#[derive(Debug)]
#[must_use = "a permit that is not redeemed is a request that is not sent"]
pub struct Permit<T, Addresses> {
    target: T,
    addresses: Addresses,
    slot: HostSlot,
    options: SendOptions,
}

/// The options for sending a request, as far as the policy decides them.
#[derive(Clone, Copy, Debug)]
pub struct SendOptions {
    /// The verification of the origin's certificate.
    pub verify: CertificateVerification,
    /// The versions of HTTP that may be used.
    pub versions: OriginHttpVersions,
    /// The timeouts that replace those of the configuration.
    pub timeouts: OriginTimeouts,
}

impl<T, Addresses> Permit<T, Addresses> {
    pub(in crate::pipeline) fn new(
        target: T,
        addresses: Addresses,
        slot: HostSlot,
        options: SendOptions,
    ) -> Self {
        Self {
            target,
            addresses,
            slot,
            options,
        }
    }

    /// Returns the options for sending.
    pub fn options(&self) -> SendOptions {
        self.options
    }

    /// Returns the addresses to dial.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Exchanges the permit for the target, the addresses to dial, and the host's slot, which must be kept until the
    /// last byte of the response, or until the tunnel is open. A permit that is dropped instead returns its slot
    /// unused.
    pub fn redeem(self) -> (T, Addresses, HostSlot) {
        let mut slot = self.slot;
        slot.begin();
        (self.target, self.addresses, slot)
    }
}
