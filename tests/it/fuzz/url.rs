//! A URL: both parsers agree, and each reading by lax servers leads to the same file as the URL does for a server that
//! decodes everything.

use crawlgate::urls::target::{LaxReading, UrlTarget};

/// The fuzz target `url`.
pub(crate) fn run(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    for text in [text.to_string(), format!("http://h.test/{text}")] {
        let parsed = UrlTarget::parse(&text);
        let by_library = UrlTarget::parse_with_url(&text);
        assert_eq!(parsed.is_ok(), by_library.is_ok(), "{text:?}");
        if let (Ok(target), Ok(other)) = (parsed, by_library) {
            assert_eq!(target, other, "{text:?}");
            readings(&target);
        }
    }
}

fn readings(target: &UrlTarget) {
    let again = UrlTarget::parse(target.as_str()).expect("the canonical form is canonical");
    assert_eq!(again, *target);
    let readings = target.readings();
    assert_eq!(target.has_readings(), !readings.is_empty(), "{target:?}");
    for (reading, url) in &readings {
        assert_ne!(url, target, "{reading:?}");
        assert_eq!(url.authority(), target.authority());
        assert!(
            url.path().starts_with('/') && !url.path().contains("//"),
            "{url:?}"
        );
        if *reading == LaxReading::Decoded {
            let segments = plain_segments(url.path().as_bytes());
            assert_eq!(segments, file_of(target.path()), "{target:?}");
        }
    }
    if target.reading(LaxReading::Decoded).is_none() {
        let path = target.path();
        assert_eq!(file_of(path), plain_segments(path.as_bytes()), "{target:?}");
    }
}

/// Returns the segments of the file that a server serves which decodes the whole path first.
fn file_of(path: &str) -> Vec<Vec<u8>> {
    let mut decoded = Vec::new();
    let mut rest = path.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = after
            .get(..2)
            .filter(|hex| hex.iter().all(u8::is_ascii_hexdigit));
        match hex.filter(|_| byte == b'%') {
            // What no path contains unescaped stays as it is in every reading.
            Some(hex) => {
                let code = u8::from_str_radix(std::str::from_utf8(hex).unwrap(), 16).unwrap();
                if (code.is_ascii_graphic() || code == 0) && !b"\"#%<>?`{}".contains(&code) {
                    decoded.push(code);
                } else {
                    decoded.extend([b'%', hex[0], hex[1]]);
                }
                rest = &after[2..];
            }
            None => {
                decoded.push(byte);
                rest = after;
            }
        }
    }
    let end = decoded
        .iter()
        .position(|b| *b == 0)
        .unwrap_or(decoded.len());
    plain_segments(&decoded[..end])
}

fn plain_segments(path: &[u8]) -> Vec<Vec<u8>> {
    let mut segments = Vec::new();
    for segment in path.split(|b| matches!(b, b'/' | b'\\')) {
        match segment {
            b"" | b"." => {}
            b".." => drop(segments.pop()),
            _ => segments.push(segment.to_vec()),
        }
    }
    segments
}
