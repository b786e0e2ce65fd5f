//! The detection of the protocol by the first bytes inside a tunnel.

use crawlgate::metrics::labels::SniCheck;
use crawlgate::proxy::sniff::{
    ClientHello, EchExtension, MAX_CLIENT_HELLO, SniffResult, Sniffer, check_sni, is_allowed,
};
use crawlgate::urls::target::HostTarget;
use fastrand::Rng;

use super::hello::{body, ech, hello, long, message, records, server_name};

/// The result is the same for all bytes at once, byte by byte, and for random parts.
#[track_caller]
fn sniffed(bytes: &[u8]) -> SniffResult {
    let whole = Sniffer::default().feed(bytes);
    let mut rng = Rng::with_seed(7);
    for most in [1, 3, 700] {
        let mut sniffer = Sniffer::default();
        let mut rest = bytes;
        let mut last = SniffResult::NeedMore;
        while !rest.is_empty() && last == SniffResult::NeedMore {
            let (part, behind) = rest.split_at(rng.usize(1..=most).min(rest.len()));
            last = sniffer.feed(part);
            rest = behind;
        }
        assert_eq!(last, whole, "in parts of up to {most}");
    }
    whole
}

/// The ClientHello of `openssl` 3.0 by way of Python's `ssl`, for a.test.
const OPENSSL: &str = "\
    1603010200010001fc0303b1082f1b4c7715704573a76fb4ce5473e7aa95b7bfcf37a15ce145ec367f636620cbbd290183d0\
    946b2303fd20eebcc5de3da6c421c8444859dfbcf19c0c7053c80024130213031301c02cc030c02bc02fcca9cca8c024c028\
    c023c027009f009e006b006700ff0100018f0000000b0009000006612e74657374000b000403000102000a00160014001d00\
    17001e0019001801000101010201030104002300000016000000170000000d002a0028040305030603080708080809080a08\
    0b080408050806040105010601030303010302040205020602002b00050403040303002d00020101003300260024001d0020\
    48245fa680b9fc68f7be207aee7fc3a7d8620b0f5cba4622eb4fc23b25299c7a001500e70000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000\
    0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000\
    0000000000000000000000000000000000";

#[test]
fn names_are_read_from_whole_and_broken_up_hellos() {
    fn named(name: &str) -> SniffResult {
        SniffResult::Hello(ClientHello {
            server_name: Some(name.into()),
            ech: EchExtension::Absent,
        })
    }
    let nameless = SniffResult::Hello(ClientHello {
        server_name: None,
        ech: EchExtension::Absent,
    });
    let openssl: Vec<u8> = (0..OPENSSL.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&OPENSSL[at..at + 2], 16).unwrap())
        .collect();
    assert_eq!(sniffed(&openssl), named("a.test"));
    assert_eq!(sniffed(&hello(Some("example.com"))), named("example.com"));
    assert_eq!(sniffed(&hello(None)), nameless);
    let plain = message(&body(&[server_name("example.com")]));
    for fragment in [1, 2, 3, 40, 63, 1000] {
        assert_eq!(
            sniffed(&records(&plain, fragment)),
            named("example.com"),
            "{fragment}"
        );
    }
    // The following bytes belong to another record or to early data.
    assert_eq!(
        sniffed(&[&records(&plain, 50)[..], &[23, 3, 3, 0, 1, 9]].concat()),
        named("example.com")
    );
    let with_ech = records(
        &message(&body(&[ech(), server_name("public.example")])),
        999,
    );
    let expected = ClientHello {
        server_name: Some("public.example".into()),
        ech: EchExtension::Present,
    };
    assert_eq!(sniffed(&with_ech), SniffResult::Hello(expected));
    // TLS 1.0 without extensions.
    let mut old = body(&[]);
    old.truncate(old.len() - 2);
    assert_eq!(sniffed(&records(&message(&old), 999)), nameless);
    // The largest allowed size.
    let large = body(&[(0x15, vec![0; 15_000]), server_name("example.com")]);
    assert_eq!(
        sniffed(&records(&message(&large), 16_384)),
        named("example.com")
    );
}

#[test]
fn other_bytes_are_not_a_client_hello() {
    for (bytes, what) in [
        (&b"GET / HTTP/1.1\r\n"[..], "HTTP"),
        (b"SSH-2.0-OpenSSH_9\r\n", "SSH"),
        (b"\x80\x2e\x01\x03\x01", "an SSL 2 hello"),
        (b"\0", "nothing known"),
        (b"\x15\x03\x01\0\x02\x02\x28", "an alert"),
        (b"\x17\x03\x03\0\x01x", "data"),
    ] {
        assert_eq!(sniffed(bytes), SniffResult::NotTls, "{what}");
    }
    fn name() -> (u16, Vec<u8>) {
        server_name("example.com")
    }
    fn hello_of(body: Vec<u8>) -> Vec<u8> {
        records(&message(&body), 16_384)
    }
    fn with(extension: (u16, Vec<u8>)) -> Vec<u8> {
        hello_of(body(&[extension]))
    }
    fn list(list: &[u8]) -> Vec<u8> {
        with((0, long(list)))
    }
    let mut trailing = body(&[name()]);
    trailing.push(0);
    for (bytes, what) in [
        (b"\x16\x02\x01\0\x01\x01".to_vec(), "a version before 3"),
        (b"\x16\x03\x01\0\0".to_vec(), "an empty record"),
        (
            b"\x16\x03\x01\x40\x01".to_vec(),
            "a record that is too long",
        ),
        (b"\x16\x03\x01\0\x04\x02\0\0\0".to_vec(), "a ServerHello"),
        (b"\x16\x03\x01\0\x04\x01\0\0\0".to_vec(), "an empty hello"),
        (
            b"\x16\x03\x01\0\x04\x01\xff\xff\xff".to_vec(),
            "one of 16 MiB",
        ),
        (
            [
                records(&message(&body(&[name()]))[..50], 50),
                b"\x14\x03\x03\0\x01\x01".to_vec(),
            ]
            .concat(),
            "an interruption",
        ),
        (hello_of(trailing), "bytes behind the extensions"),
        (hello_of(body(&[name(), name()])), "two of the extension"),
        (
            hello_of(body(&[name(), server_name("b.test")])),
            "two names in two extensions",
        ),
        (
            list(&[&[0][..], &long(b"a.test"), &[0], &long(b"b.test")].concat()),
            "two names",
        ),
        (
            list(&[&[1][..], &long(b"a.test")].concat()),
            "a name of another kind",
        ),
        (list(&[&[0][..], &long(b"")].concat()), "an empty name"),
        (
            list(&[&[0][..], &long(b"a.test"), b"x"].concat()),
            "bytes behind the name",
        ),
        (list(b"\0\0\x07a.test"), "a name that is too short"),
        (list(b""), "an empty list"),
        (with((0, vec![])), "an empty extension"),
        (
            with((
                0,
                [long(&[&[0][..], &long(b"a.test")].concat()), vec![0]].concat(),
            )),
            "bytes behind the list",
        ),
        (
            with((
                0,
                long(&[&[0][..], &long("bücher.test".as_bytes())].concat()),
            )),
            "a name that is no ASCII",
        ),
    ] {
        assert_eq!(sniffed(&bytes), SniffResult::Malformed, "{what}");
    }
    for length in 1..hello(Some("example.com")).len() {
        assert_eq!(
            sniffed(&hello(Some("example.com"))[..length]),
            SniffResult::NeedMore,
            "{length} bytes"
        );
    }
}

/// Every change of one byte, every cut, and random bytes: no panic, never more than the limit, and always the same
/// result for any partition.
#[test]
fn hostile_bytes_are_read_to_the_cap_at_most() {
    let mut rng = Rng::with_seed(20_261_121);
    let good = records(&message(&body(&[server_name("example.com"), ech()])), 60);
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] = rng.u8(..);
        sniffed(&bytes);
    }
    for round in 0..2000 {
        let mut bytes = vec![22, 3, 1];
        bytes.extend((0..rng.usize(0..600)).map(|_| {
            if round % 2 == 0 {
                rng.u8(..)
            } else {
                rng.u8(0..4)
            }
        }));
        sniffed(&bytes);
    }
    for record in [&b"\x16\x03\x01\0\x01\x01"[..], b"\x16\x03\x01\0\x01\0"] {
        let mut sniffer = Sniffer::default();
        let mut given = 0;
        sniffer.feed(b"\x16\x03\x01\0\x04\x01\0\x3f\xf0");
        loop {
            let part = &record[..record.len().min(sniffer.remaining())];
            given += part.len();
            let sniffed = sniffer.feed(part);
            if sniffed != SniffResult::NeedMore {
                assert_eq!(sniffed, SniffResult::Malformed);
                break;
            }
            assert!(given < MAX_CLIENT_HELLO, "reads on for ever");
        }
        assert!(sniffer.into_bytes().len() <= MAX_CLIENT_HELLO);
    }
}

#[test]
fn a_name_is_compared_in_its_canonical_form() {
    fn check_one(name: Option<&str>, inner: EchExtension, connect: &str) -> (SniCheck, bool) {
        let host = HostTarget::parse_authority(connect).unwrap();
        let output = check_sni(
            &ClientHello {
                server_name: name.map(Into::into),
                ech: inner,
            },
            &host,
        );
        (output, is_allowed(output, &host))
    }
    for (name, inner, connect, expected, open) in [
        (
            Some("example.com"),
            EchExtension::Absent,
            "example.com:443",
            SniCheck::Match,
            true,
        ),
        (
            Some("EXAMPLE.com"),
            EchExtension::Absent,
            "Example.COM:443",
            SniCheck::Match,
            true,
        ),
        (
            Some("example.com."),
            EchExtension::Absent,
            "example.com:443",
            SniCheck::Match,
            true,
        ),
        (
            Some("xn--bcher-kva.example"),
            EchExtension::Absent,
            "xn--bcher-kva.example:443",
            SniCheck::Match,
            true,
        ),
        (
            Some("example.com"),
            EchExtension::Present,
            "example.com:443",
            SniCheck::Ech,
            true,
        ),
        (
            Some("public.example"),
            EchExtension::Present,
            "example.com:443",
            SniCheck::Mismatch,
            false,
        ),
        (
            Some("www.example.com"),
            EchExtension::Absent,
            "example.com:443",
            SniCheck::Mismatch,
            false,
        ),
        (
            Some("example.com\0.evil.test"),
            EchExtension::Absent,
            "example.com:443",
            SniCheck::Mismatch,
            false,
        ),
        (
            Some("example.com/"),
            EchExtension::Absent,
            "example.com:443",
            SniCheck::Mismatch,
            false,
        ),
        (
            Some("user@example.com"),
            EchExtension::Absent,
            "example.com:443",
            SniCheck::Mismatch,
            false,
        ),
        (
            Some("example.com:443"),
            EchExtension::Absent,
            "example.com:443",
            SniCheck::Mismatch,
            false,
        ),
        (
            None,
            EchExtension::Absent,
            "example.com:443",
            SniCheck::None,
            false,
        ),
        (
            None,
            EchExtension::Present,
            "example.com:443",
            SniCheck::None,
            false,
        ),
        (
            None,
            EchExtension::Absent,
            "192.0.2.1:443",
            SniCheck::None,
            true,
        ),
        (
            None,
            EchExtension::Absent,
            "[2001:db8::1]:443",
            SniCheck::None,
            true,
        ),
        (
            Some("192.0.2.1"),
            EchExtension::Absent,
            "192.0.2.1:443",
            SniCheck::Match,
            true,
        ),
        (
            Some("example.com"),
            EchExtension::Absent,
            "192.0.2.1:443",
            SniCheck::Mismatch,
            false,
        ),
    ] {
        assert_eq!(
            check_one(name, inner, connect),
            (expected, open),
            "{name:?} {inner:?} in {connect}"
        );
    }
}
