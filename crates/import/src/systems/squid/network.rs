//! Networks as squid writes them: `10.0.0.0/8`, `10.0.0.0/255.0.0.0`, `10.0.0.1-10.0.0.9`, `all`.

use std::net::IpAddr;

/// A range of addresses of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SquidRange {
    /// 32 or 128.
    pub bits: u32,
    pub first: u128,
    pub last: u128,
}

impl SquidRange {
    /// Reads a value of `src` or `dst`. Names of hosts are no ranges. `all` is two of them.
    pub fn parse(text: &str) -> Option<Vec<Self>> {
        match text {
            "all" => return Some(vec![Self::whole(32), Self::whole(128)]),
            "ipv4" => return Some(vec![Self::whole(32)]),
            "ipv6" => return Some(vec![Self::whole(128)]),
            _ => {}
        }
        let (addresses, mask) = match text.split_once('/') {
            Some((addresses, mask)) => (addresses, Some(mask)),
            None => (text, None),
        };
        let (first, last) = match addresses.split_once('-') {
            Some((first, last)) => (first, last),
            None => (addresses, addresses),
        };
        let (bits, first) = parse_address(first)?;
        let (last_bits, last) = parse_address(last)?;
        if bits != last_bits {
            return None;
        }
        let hosts = match mask {
            Some(mask) => host_mask(mask, bits)?,
            None => 0,
        };
        let range = Self {
            bits,
            first: first & !hosts,
            last: last | hosts,
        };
        (range.first <= range.last).then(|| vec![range])
    }

    fn whole(bits: u32) -> Self {
        Self {
            bits,
            first: 0,
            last: ones(bits),
        }
    }

    /// Returns `true` if it has all addresses of its family.
    pub fn is_whole(self) -> bool {
        self == Self::whole(self.bits)
    }

    /// Returns `true` if another range is in it.
    pub fn contains(self, other: Self) -> bool {
        self.bits == other.bits && self.first <= other.first && other.last <= self.last
    }

    /// Returns `true` if the two have an address in common.
    pub fn overlaps(self, other: Self) -> bool {
        self.bits == other.bits && self.first <= other.last && other.first <= self.last
    }

    /// Returns the range of one address.
    pub fn of_address(text: &str) -> Option<Self> {
        let (bits, first) = parse_address(text)?;
        Some(Self {
            bits,
            first,
            last: first,
        })
    }

    /// Returns the networks that make up the range.
    pub fn to_networks(self) -> Vec<String> {
        let mut networks = Vec::new();
        let mut first = self.first;
        loop {
            let mut size = first.trailing_zeros().min(self.bits);
            while ones(size) > self.last - first {
                size -= 1;
            }
            networks.push(self.network(first, size));
            match first.checked_add(ones(size)).filter(|end| *end < self.last) {
                Some(end) => first = end + 1,
                None => return networks,
            }
        }
    }

    fn network(self, first: u128, size: u32) -> String {
        let address = match u32::try_from(first) {
            Ok(first) if self.bits == 32 => IpAddr::from(first.to_be_bytes()),
            Ok(_) | Err(_) => IpAddr::from(first.to_be_bytes()),
        };
        format!("{address}/{}", self.bits - size)
    }
}

/// Returns a number of which the lowest bits are set.
fn ones(bits: u32) -> u128 {
    match bits {
        128.. => u128::MAX,
        bits => (1 << bits) - 1,
    }
}

fn parse_address(text: &str) -> Option<(u32, u128)> {
    // squid accepts the short forms of the C library in one place that people use: `0/0`.
    let text = if text == "0" { "0.0.0.0" } else { text };
    let text = text.strip_prefix('[').unwrap_or(text);
    let text = text.strip_suffix(']').unwrap_or(text);
    match text.parse().ok()? {
        IpAddr::V4(address) => Some((32, u128::from(address.to_bits()))),
        IpAddr::V6(address) => Some((128, address.to_bits())),
    }
}

/// Reads a mask as a number of bits or as an address; returns the bits that it leaves open.
fn host_mask(mask: &str, bits: u32) -> Option<u128> {
    if let Ok(length) = mask.parse::<u32>() {
        return Some(ones(bits.checked_sub(length)?));
    }
    let (mask_bits, mask) = parse_address(mask)?;
    let hosts = !mask & ones(bits);
    (mask_bits == bits && hosts & hosts.wrapping_add(1) == 0).then_some(hosts)
}
