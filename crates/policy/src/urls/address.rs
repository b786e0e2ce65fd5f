//! Special-purpose address ranges (RFC 6890), which a proxy must not connect to.
//!
//! An address is public only if no range here contains it; IPv6 addresses are public only inside
//! 2000::/3. Addresses with an embedded IPv4 address are classified by that address, too, so that
//! no spelling bypasses the table.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::model::words::words;

words! {
    /// The class of an address: the value of the label `range` and of `address_class`.
    pub enum AddressClass {
        /// Globally reachable.
        Public = "public",
        /// 127.0.0.0/8, ::1.
        Loopback = "loopback",
        /// RFC 1918.
        Private = "private",
        /// 169.254.0.0/16, fe80::/10: used by metadata services.
        LinkLocal = "link_local",
        /// 100.64.0.0/10, RFC 6598.
        SharedSpace = "shared_space",
        /// 0.0.0.0/8.
        ThisNetwork = "this_network",
        /// 0.0.0.0 and ::.
        Unspecified = "unspecified",
        /// fc00::/7, RFC 4193.
        UniqueLocal = "unique_local",
        /// fec0::/10, deprecated by RFC 3879.
        SiteLocal = "site_local",
        /// 224.0.0.0/4, ff00::/8.
        Multicast = "multicast",
        /// 255.255.255.255.
        Broadcast = "broadcast",
        /// RFC 5737, RFC 3849, RFC 9637.
        Documentation = "documentation",
        /// 198.18.0.0/15, RFC 2544.
        Benchmarking = "benchmarking",
        /// IETF protocol assignments and unassigned ranges.
        Reserved = "reserved",
        /// Transition addresses whose IPv4 part cannot be checked: 6to4, IPv4-compatible and
        /// IPv4-translated.
        Translated = "translated",
        /// 64:ff9b:1::/48, NAT64 of a local network (RFC 8215).
        Nat64 = "nat64",
        /// The wire server of a large cloud: a public address that is not a public host.
        CloudService = "cloud_service",
    }
}

use AddressClass as Class;

impl AddressClass {
    /// Returns `true` for the only class that needs no exception.
    pub fn is_public(self) -> bool {
        self == Self::Public
    }
}

/// A range that is not public, and the document that defines it.
struct AddressRange<Bits> {
    network: Bits,
    mask: Bits,
    class: Class,
    source: &'static str,
}

const fn v4(
    network: [u8; 4],
    length: u32,
    class: Class,
    source: &'static str,
) -> AddressRange<u32> {
    AddressRange {
        network: u32::from_be_bytes(network),
        mask: u32::MAX << (32 - length),
        class,
        source,
    }
}

const fn v6(
    network: [u16; 8],
    length: u32,
    class: Class,
    source: &'static str,
) -> AddressRange<u128> {
    let [a, b, c, d, e, f, g, h] = network;
    let network = Ipv6Addr::new(a, b, c, d, e, f, g, h).to_bits();
    AddressRange {
        network,
        mask: u128::MAX << (128 - length),
        class,
        source,
    }
}

/// IPv4 ranges, most specific first.
const V4: [AddressRange<u32>; 18] = [
    v4([0, 0, 0, 0], 32, Class::Unspecified, "RFC 1122"),
    v4([0, 0, 0, 0], 8, Class::ThisNetwork, "RFC 791"),
    v4([10, 0, 0, 0], 8, Class::Private, "RFC 1918"),
    v4([100, 64, 0, 0], 10, Class::SharedSpace, "RFC 6598"),
    v4([127, 0, 0, 0], 8, Class::Loopback, "RFC 1122"),
    v4(
        [168, 63, 129, 16],
        32,
        Class::CloudService,
        "Azure wire server",
    ),
    v4([169, 254, 0, 0], 16, Class::LinkLocal, "RFC 3927"),
    v4([172, 16, 0, 0], 12, Class::Private, "RFC 1918"),
    v4([192, 0, 0, 0], 24, Class::Reserved, "RFC 6890"),
    v4([192, 0, 2, 0], 24, Class::Documentation, "RFC 5737"),
    v4([192, 88, 99, 0], 24, Class::Translated, "RFC 7526"),
    v4([192, 168, 0, 0], 16, Class::Private, "RFC 1918"),
    v4([198, 18, 0, 0], 15, Class::Benchmarking, "RFC 2544"),
    v4([198, 51, 100, 0], 24, Class::Documentation, "RFC 5737"),
    v4([203, 0, 113, 0], 24, Class::Documentation, "RFC 5737"),
    v4([255, 255, 255, 255], 32, Class::Broadcast, "RFC 919"),
    v4([224, 0, 0, 0], 4, Class::Multicast, "RFC 5771"),
    v4([240, 0, 0, 0], 4, Class::Reserved, "RFC 1112"),
];

/// IPv6 ranges, most specific first.
const V6: [AddressRange<u128>; 16] = [
    v6(
        [0, 0, 0, 0, 0, 0, 0, 0],
        128,
        Class::Unspecified,
        "RFC 4291",
    ),
    v6([0, 0, 0, 0, 0, 0, 0, 1], 128, Class::Loopback, "RFC 4291"),
    v6(
        [0, 0, 0, 0, 0, 0, 0, 0],
        96,
        Class::Translated,
        "RFC 4291, IPv4-compatible",
    ),
    v6(
        [0, 0, 0, 0, 0xffff, 0, 0, 0],
        96,
        Class::Translated,
        "RFC 2765, IPv4-translated",
    ),
    v6(
        [0x64, 0xff9b, 1, 0, 0, 0, 0, 0],
        48,
        Class::Nat64,
        "RFC 8215, local NAT64",
    ),
    v6(
        [0x100, 0, 0, 0, 0, 0, 0, 0],
        64,
        Class::Reserved,
        "RFC 6666",
    ),
    v6(
        [0x100, 0, 0, 1, 0, 0, 0, 0],
        64,
        Class::Reserved,
        "RFC 9780",
    ),
    v6(
        [0x2001, 0, 0, 0, 0, 0, 0, 0],
        23,
        Class::Reserved,
        "RFC 2928",
    ),
    v6(
        [0x2001, 0xdb8, 0, 0, 0, 0, 0, 0],
        32,
        Class::Documentation,
        "RFC 3849",
    ),
    v6(
        [0x2002, 0, 0, 0, 0, 0, 0, 0],
        16,
        Class::Translated,
        "RFC 3056, 6to4",
    ),
    v6(
        [0x3fff, 0, 0, 0, 0, 0, 0, 0],
        20,
        Class::Documentation,
        "RFC 9637",
    ),
    v6(
        [0x5f00, 0, 0, 0, 0, 0, 0, 0],
        16,
        Class::Reserved,
        "RFC 9602",
    ),
    v6(
        [0xfc00, 0, 0, 0, 0, 0, 0, 0],
        7,
        Class::UniqueLocal,
        "RFC 4193",
    ),
    v6(
        [0xfe80, 0, 0, 0, 0, 0, 0, 0],
        10,
        Class::LinkLocal,
        "RFC 4291",
    ),
    v6(
        [0xfec0, 0, 0, 0, 0, 0, 0, 0],
        10,
        Class::SiteLocal,
        "RFC 3879",
    ),
    v6(
        [0xff00, 0, 0, 0, 0, 0, 0, 0],
        8,
        Class::Multicast,
        "RFC 4291",
    ),
];

/// The only range of IPv6 from which public addresses are assigned.
const GLOBAL_UNICAST: AddressRange<u128> =
    v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3, Class::Public, "RFC 4291");

/// Returns the class of an address.
pub fn classify(address: IpAddr) -> AddressClass {
    classify_with_source(address).0
}

/// Returns the document that defines the range of an address, in most cases an RFC; `None` if the
/// address is public.
pub fn classification_source(address: IpAddr) -> Option<&'static str> {
    let (class, source) = classify_with_source(address);
    (!class.is_public()).then_some(source)
}

/// Returns the IPv4 address inside an IPv4-mapped one, else the address itself.
pub fn to_unmapped(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Returns the IPv4 address to which packets for an IPv6 address are delivered (mapped, or through
/// NAT64), else the address itself.
pub fn effective_address(address: IpAddr) -> IpAddr {
    let inner = match address {
        IpAddr::V6(v6) => embedded_ipv4(v6).map(IpAddr::V4),
        IpAddr::V4(_) => None,
    };
    inner.unwrap_or(address)
}

/// A class and the document that defines the range.
type Classification = (Class, &'static str);

fn classify_with_source(address: IpAddr) -> Classification {
    match address {
        IpAddr::V4(v4) => find_v4(v4),
        IpAddr::V6(v6) => find_v6(v6),
    }
}

fn find_v4(address: Ipv4Addr) -> Classification {
    let bits = address.to_bits();
    let range = V4.iter().find(|range| bits & range.mask == range.network);
    range.map_or((Class::Public, ""), |range| (range.class, range.source))
}

fn find_v6(address: Ipv6Addr) -> Classification {
    if let Some(inner) = embedded_ipv4(address) {
        return find_v4(inner);
    }
    let bits = address.to_bits();
    if let Some(range) = V6.iter().find(|range| bits & range.mask == range.network) {
        return (range.class, range.source);
    }
    if bits & GLOBAL_UNICAST.mask != GLOBAL_UNICAST.network {
        return (Class::Reserved, GLOBAL_UNICAST.source);
    }
    isatap_ipv4(address).map_or((Class::Public, ""), find_v4)
}

/// Returns the IPv4 address inside ::ffff:0:0/96 (RFC 4291) or 64:ff9b::/96 (RFC 6052).
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let inner = Ipv4Addr::from_bits(address.to_bits() as u32);
    let nat64 = address.to_bits() >> 32 == 0x64_ff9b_0000_0000_0000_0000;
    address.to_ipv4_mapped().or(nat64.then_some(inner))
}

/// Returns the address inside an ISATAP interface identifier, `::[02]00:5efe:a.b.c.d` (RFC 5214).
fn isatap_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
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
    fn embedded_addresses_are_checked() {
        for (address, class) in [
            ("::ffff:127.0.0.1", Class::Loopback),
            ("::ffff:8.8.8.8", Class::Public),
            ("64:ff9b::8.8.8.8", Class::Public),
            ("64:ff9b::10.0.0.1", Class::Private),
            ("64:ff9b:1::8.8.8.8", Class::Nat64),
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

    #[test]
    fn a_range_names_its_source() {
        for (address, named) in [
            ("10.1.2.3", Some("RFC 1918")),
            ("::ffff:10.1.2.3", Some("RFC 1918")),
            ("64:ff9b:1::1", Some("RFC 8215, local NAT64")),
            ("4000::1", Some("RFC 4291")),
            ("8.8.8.8", None),
            ("2a00::5efe:8.8.8.8", None),
            ("2606:4700::1111", None),
        ] {
            assert_eq!(
                classification_source(address.parse().unwrap()),
                named,
                "{address}"
            );
        }
    }

    /// A network with bits outside its mask would never match.
    #[test]
    fn networks_have_no_host_bits() {
        assert!(
            V4.iter()
                .all(|range| range.network & !range.mask == 0 && !range.source.is_empty())
        );
        assert!(
            V6.iter()
                .all(|range| range.network & !range.mask == 0 && !range.source.is_empty())
        );
    }
}
