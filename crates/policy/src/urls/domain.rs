//! Registrable domains, by the compiled-in Public Suffix List.

use std::net::Ipv4Addr;

/// Returns the registrable domain of a host in canonical form. Private suffixes such as `github.io`
/// count as public suffixes. Returns the host itself if it has none, such as an address or a single
/// label.
pub fn registrable_domain(host: &str) -> &str {
    let is_address = host.starts_with('[') || host.parse::<Ipv4Addr>().is_ok();
    if is_address {
        host
    } else {
        psl::domain_str(host).unwrap_or(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_one_owner_have_one_domain() {
        for (host, domain) in [
            ("www.example.com", "example.com"),
            ("a.b.example.co.uk", "example.co.uk"),
            ("me.github.io", "me.github.io"),
            ("www.shop.test", "shop.test"),
            ("co.uk", "co.uk"),
            ("localhost", "localhost"),
            ("10.1.2.3", "10.1.2.3"),
            ("[2001:db8::1]", "[2001:db8::1]"),
        ] {
            assert_eq!(registrable_domain(host), domain, "{host}");
        }
    }
}
