//! The first bytes of a tunnel: the result is the same however they are cut, and they are kept for forwarding.

use crawlgate::proxy::sniff::{SniffResult, Sniffer};

/// The fuzz target `client_hello`.
pub(crate) fn run(input: &[u8]) {
    let mut whole = Sniffer::default();
    let fits = input.len() <= whole.remaining();
    let result = whole.feed(input);
    if !fits {
        assert_ne!(result, SniffResult::NeedMore);
        return;
    }
    let mut byte_by_byte = Sniffer::default();
    let mut last = SniffResult::NeedMore;
    let mut fed = 0;
    for byte in input {
        last = byte_by_byte.feed(&[*byte]);
        fed += 1;
        if last != SniffResult::NeedMore {
            break;
        }
    }
    assert_eq!(last, result, "after {fed} of {} bytes", input.len());
    assert_eq!(byte_by_byte.into_bytes(), &input[..fed]);
    assert_eq!(whole.into_bytes(), input);
}
