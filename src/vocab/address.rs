//! Which addresses belong to whom: the special ranges that a proxy must not be led into.
//!
//! An address is public only if nothing here claims it; IPv6 is public only inside 2000::/3. Addresses that carry an
//! IPv4 address inside are judged by that one too, so that no spelling leads round the table.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The kind of range that an address is in; the value of the `range` label and of `address_class`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressClass {
    /// Reachable by everybody.
    Public,
    /// 127.0.0.0/8, ::1.
    Loopback,
    /// RFC 1918.
    Private,
    /// 169.254.0.0/16, fe80::/10: metadata services live here.
    LinkLocal,
    /// 100.64.0.0/10, RFC 6598.
    SharedSpace,
    /// 0.0.0.0/8.
    ThisNetwork,
    /// 0.0.0.0 and ::.
    Unspecified,
    /// fc00::/7, RFC 4193.
    UniqueLocal,
    /// fec0::/10, deprecated by RFC 3879.
    SiteLocal,
    /// 224.0.0.0/4, ff00::/8.
    Multicast,
    /// 255.255.255.255.
    Broadcast,
    /// RFC 5737, RFC 3849, RFC 9637.
    Documentation,
    /// 198.18.0.0/15, RFC 2544.
    Benchmarking,
    /// IETF protocol assignments, and ranges that nobody has been given.
    Reserved,
    /// Ways into IPv4 whose inside cannot be judged: 6to4, local NAT64, IPv4-compatible and -translated.
    Translated,
    /// The wire server of a large cloud, which has a public address but is no public host.
    CloudService,
}

use AddressClass as Class;

impl AddressClass {
    /// Every class.
    pub const ALL: [Self; 16] = [
        Self::Public,
        Self::Loopback,
        Self::Private,
        Self::LinkLocal,
        Self::SharedSpace,
        Self::ThisNetwork,
        Self::Unspecified,
        Self::UniqueLocal,
        Self::SiteLocal,
        Self::Multicast,
        Self::Broadcast,
        Self::Documentation,
        Self::Benchmarking,
        Self::Reserved,
        Self::Translated,
        Self::CloudService,
    ];

    /// The word used in metrics and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::LinkLocal => "link_local",
            Self::SharedSpace => "shared_space",
            Self::ThisNetwork => "this_network",
            Self::Unspecified => "unspecified",
            Self::UniqueLocal => "unique_local",
            Self::SiteLocal => "site_local",
            Self::Multicast => "multicast",
            Self::Broadcast => "broadcast",
            Self::Documentation => "documentation",
            Self::Benchmarking => "benchmarking",
            Self::Reserved => "reserved",
            Self::Translated => "translated",
            Self::CloudService => "cloud_service",
        }
    }
}

/// IPv4 ranges, most specific first: address, prefix length, class.
const V4: [([u8; 4], u32, Class); 18] = [
    ([0, 0, 0, 0], 32, Class::Unspecified),
    ([0, 0, 0, 0], 8, Class::ThisNetwork),
    ([10, 0, 0, 0], 8, Class::Private),
    ([100, 64, 0, 0], 10, Class::SharedSpace),
    ([127, 0, 0, 0], 8, Class::Loopback),
    ([168, 63, 129, 16], 32, Class::CloudService),
    ([169, 254, 0, 0], 16, Class::LinkLocal),
    ([172, 16, 0, 0], 12, Class::Private),
    ([192, 0, 0, 0], 24, Class::Reserved),
    ([192, 0, 2, 0], 24, Class::Documentation),
    ([192, 88, 99, 0], 24, Class::Translated),
    ([192, 168, 0, 0], 16, Class::Private),
    ([198, 18, 0, 0], 15, Class::Benchmarking),
    ([198, 51, 100, 0], 24, Class::Documentation),
    ([203, 0, 113, 0], 24, Class::Documentation),
    ([255, 255, 255, 255], 32, Class::Broadcast),
    ([224, 0, 0, 0], 4, Class::Multicast),
    ([240, 0, 0, 0], 4, Class::Reserved),
];

/// IPv6 ranges, most specific first: address, prefix length, class.
const V6: [([u16; 8], u32, Class); 16] = [
    ([0, 0, 0, 0, 0, 0, 0, 0], 128, Class::Unspecified),
    ([0, 0, 0, 0, 0, 0, 0, 1], 128, Class::Loopback),
    ([0, 0, 0, 0, 0, 0, 0, 0], 96, Class::Translated),
    ([0, 0, 0, 0, 0xffff, 0, 0, 0], 96, Class::Translated),
    ([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, Class::Translated),
    ([0x100, 0, 0, 0, 0, 0, 0, 0], 64, Class::Reserved),
    ([0x100, 0, 0, 1, 0, 0, 0, 0], 64, Class::Reserved),
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, Class::Reserved),
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32, Class::Documentation),
    ([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, Class::Translated),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, Class::Documentation),
    ([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16, Class::Reserved),
    ([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, Class::UniqueLocal),
    ([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, Class::LinkLocal),
    ([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, Class::SiteLocal),
    ([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, Class::Multicast),
];

/// The range that an address is in.
pub fn classify(address: IpAddr) -> AddressClass {
    match address {
        IpAddr::V4(v4) => classify_v4(v4),
        IpAddr::V6(v6) => classify_v6(v6),
    }
}

/// The IPv4 address inside an IPv4-mapped one, else the address itself.
pub fn unmapped(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

fn classify_v4(address: Ipv4Addr) -> AddressClass {
    let bits = address.to_bits();
    let holds = |net: [u8; 4], length: u32| (bits ^ Ipv4Addr::from(net).to_bits()) >> (32 - length) == 0;
    V4.iter().find(|(net, length, _)| holds(*net, *length)).map_or(Class::Public, |(_, _, class)| *class)
}

fn classify_v6(address: Ipv6Addr) -> AddressClass {
    if let Some(inner) = decoded(address) {
        return classify_v4(inner);
    }
    let bits = address.to_bits();
    let holds = |net: [u16; 8], length: u32| (bits ^ Ipv6Addr::from(net).to_bits()) >> (128 - length) == 0;
    if let Some((_, _, class)) = V6.iter().find(|(net, length, _)| holds(*net, *length)) {
        return *class;
    }
    if !holds([0x2000, 0, 0, 0, 0, 0, 0, 0], 3) {
        return Class::Reserved;
    }
    isatap(address).map_or(Class::Public, classify_v4)
}

/// The address inside ::ffff:0:0/96 (RFC 4291) and 64:ff9b::/96 (RFC 6052), which are ways of writing it.
fn decoded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let inner = Ipv4Addr::from_bits(address.to_bits() as u32);
    let nat64 = address.to_bits() >> 32 == 0x64_ff9b_0000_0000_0000_0000;
    address.to_ipv4_mapped().or(nat64.then_some(inner))
}

/// The address inside an ISATAP interface identifier, `::[02]00:5efe:a.b.c.d` (RFC 5214).
fn isatap(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [.., high, low, _, _] = address.segments();
    let is_isatap = low == 0x5efe && high & !0x0200 == 0;
    is_isatap.then(|| Ipv4Addr::from_bits(address.to_bits() as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> = Class::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(names.len(), Class::ALL.len());
    }

    #[test]
    fn an_inner_address_is_judged_too() {
        for (address, class) in [
            ("::ffff:127.0.0.1", Class::Loopback),
            ("::ffff:8.8.8.8", Class::Public),
            ("64:ff9b::8.8.8.8", Class::Public),
            ("64:ff9b::10.0.0.1", Class::Private),
            ("64:ff9b:1::8.8.8.8", Class::Translated),
            ("::127.0.0.1", Class::Translated),
            ("::ffff:0:127.0.0.1", Class::Translated),
            ("2a00::5efe:169.254.169.254", Class::LinkLocal),
            ("2a00::200:5efe:10.0.0.1", Class::Private),
            ("2a00::5efe:8.8.8.8", Class::Public),
            ("2002:7f00:1::", Class::Translated),
            ("4000::1", Class::Reserved),
        ] {
            assert_eq!(classify(address.parse().unwrap()), class, "{address}");
        }
    }
}
