//! Registrable domains: what one owner has registered, by the Public Suffix List that is compiled in.

use super::target::UrlTarget;

/// The registrable domain of a target's host, private suffixes such as `github.io` counted; the host itself where it
/// has none: an address, a single label.
pub fn registrable(target: &UrlTarget) -> &str {
    let host = target.host();
    if target.ip().is_some() {
        return host;
    }
    psl::domain_str(host).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_of_one_owner_have_one_domain() {
        for (url, domain) in [
            ("http://www.example.com/", "example.com"),
            ("http://a.b.example.co.uk:81/", "example.co.uk"),
            ("http://me.github.io/", "me.github.io"),
            ("http://www.shop.test/", "shop.test"),
            ("http://co.uk/", "co.uk"),
            ("http://localhost/", "localhost"),
            ("http://10.1.2.3/", "10.1.2.3"),
            ("http://[2001:db8::1]/", "[2001:db8::1]"),
        ] {
            assert_eq!(registrable(&UrlTarget::parse(url).unwrap()), domain, "{url}");
        }
    }
}
