//! The bytes of a connection: the scan of a head gives the same result however they arrive, and hyper's parser reads each
//! head that passes it to the same end.

use crawlgate::proxy::head::{HeadLimits, ScanProgress, scan_head};

const LIMITS: HeadLimits = HeadLimits {
    bytes: 2048,
    fields: 32,
    target: 1024,
};

/// The fuzz target `head`.
pub(crate) fn run(input: &[u8]) {
    let result = scan_head(input, LIMITS);
    let mut decided = false;
    for length in (1..input.len()).take(512) {
        let early = scan_head(&input[..length], LIMITS);
        match early {
            Ok(ScanProgress::More | ScanProgress::Blank) => {
                assert!(!decided, "undecided again at {length}")
            }
            // What follows a head is not known before it has arrived.
            Ok(ScanProgress::Complete(head)) => {
                decided = true;
                let Ok(ScanProgress::Complete(whole)) = &result else {
                    panic!("complete at {length}, then {result:?}")
                };
                assert_eq!((&head.bytes, &head.target), (&whole.bytes, &whole.target));
            }
            Ok(ScanProgress::Foreign(protocol)) => {
                decided = true;
                assert!(
                    matches!(&result, Ok(ScanProgress::Foreign(whole)) if *whole == protocol),
                    "{protocol:?} at {length}, then {result:?}"
                );
            }
            Err(error) => {
                decided = true;
                assert!(result.is_err(), "{error:?} at {length}, then {result:?}");
            }
        }
    }
    if let Ok(ScanProgress::Complete(head)) = result
        && !head.needs_encoding
        && !head.has_later_version
    {
        let head = &input[head.bytes];
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let parsed = httparse::Request::new(&mut fields).parse(head);
        assert_eq!(
            parsed,
            Ok(httparse::Status::Complete(head.len())),
            "{}",
            head.escape_ascii()
        );
    }
}
