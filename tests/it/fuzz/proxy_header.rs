//! The PROXY protocol: the result is the same however the bytes are cut, and depends on the header only.

use crawlgate::proxy::accept::proxy_header::{ProxiedClient, parse};

/// The fuzz target `proxy_header`.
pub(crate) fn run(input: &[u8]) {
    let whole = parse(input);
    let first = (0..=input.len()).find_map(|end| match parse(&input[..end]) {
        Ok(None) => None,
        decided => Some((end, decided)),
    });
    let Some((end, decided)) = first else {
        assert_eq!(whole, Ok(None));
        return;
    };
    assert_eq!(decided, whole, "after {end} bytes");
    let Ok(Some(header)) = decided else { return };
    assert_eq!(header.length, end);
    assert!(end <= 4096, "the limit");
    if input.starts_with(b"PROXY ") {
        assert!(end <= 107, "the limit of version 1");
        let line = std::str::from_utf8(&input[..end]).expect("text");
        if let ProxiedClient::Address(address) = header.client {
            let fields: Vec<&str> = line.trim_end().split(' ').collect();
            assert_eq!(fields.len(), 6, "{line:?}");
            assert_eq!(fields[2].parse(), Ok(address.ip()), "{line:?}");
            assert_eq!(fields[4], address.port().to_string(), "{line:?}");
        }
    }
}
