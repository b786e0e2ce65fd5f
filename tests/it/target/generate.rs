//! URLs by chance: parts that a canonical form must see to, put together. Not what a crawl asks for on average.

use fastrand::Rng;

const SCHEMES: [&str; 8] = [
    "http://", "http://", "http://", "http://", "https://", "https://", "HTTP://", "ftp://",
];
const HOSTS: [&str; 42] = [
    "example.com",
    "www.example.com",
    "a-b.example.org",
    "x1.y2",
    "EXAMPLE.com",
    "example.com.",
    "1.2.3.4",
    "127.1",
    "0x7f.1",
    "[::1]",
    "[::FFFF:1.2.3.4]",
    "bücher.de",
    "xn--bcher-kva.de",
    "a..b",
    "",
    "exa%6dple.com",
    "a_b.com",
    "example.com..",
    "256.1.1.1",
    "1.2.3",
    "u@h",
    "[::1",
    "a b",
    "xn--a",
    "ex--ample.com",
    "４.example",
    "-a-.b-",
    "a.-b",
    "a-b-c.d",
    "1a.b2.c3",
    "h.1a",
    "h.a1",
    "h.0x1",
    "h.09",
    "1.2.3.4.",
    "1.2.3.4..",
    "0x7f.1..",
    "2130706433",
    "１２７.1",
    "a。b。",
    "a\u{ad}b",
    "[64:ff9b::8.8.8.8]",
];
const PORTS: [&str; 12] = [
    "", "", "", "", ":80", ":8080", ":443", ":0", ":65535", ":65536", ":080", ":",
];
const PIECES: [&str; 42] = [
    "a",
    "b/c",
    "index.html",
    "/",
    "//",
    "/.",
    "/..",
    "/./",
    "/../x",
    "%2e",
    "%2E%2e/",
    "/%2E",
    "/%2e%2E/",
    "%2f",
    "%",
    "%zz",
    "é",
    "\"",
    "<",
    ">",
    "`",
    "{",
    "}",
    "|",
    "^",
    "'",
    ";p=1",
    "~",
    "!$&()*+,",
    "=",
    ":@",
    "?",
    "?a=b&c",
    "&x='",
    "#f",
    "\\",
    " ",
    "\t",
    "%41",
    ".well-known",
    "..a",
    "[1]",
];

/// A URL put together from parts; most are nearly canonical, and one in five has one character changed.
pub(super) fn random_url(rng: &mut Rng) -> String {
    let mut url = String::from(*rng.choice(&SCHEMES).unwrap());
    url.push_str(if rng.u8(0..4) == 0 {
        rng.choice(&HOSTS).unwrap()
    } else {
        HOSTS[rng.usize(0..4)]
    });
    url.push_str(if rng.u8(0..4) == 0 {
        rng.choice(&PORTS).unwrap()
    } else {
        rng.choice(&["", "", ":8080"]).unwrap()
    });
    if rng.u8(0..10) > 0 {
        url.push('/');
    }
    let tame = rng.u8(0..4) > 0;
    for _ in 0..rng.usize(0..6) {
        let piece = if tame {
            *rng.choice(&["a", "b/c", "index.html", "?q=1&r", "%20x", "~u", ";s"])
                .unwrap()
        } else {
            rng.choice(&PIECES).unwrap()
        };
        url.push_str(piece);
    }
    if rng.u8(0..5) == 0 {
        with_one_change(rng, &url)
    } else {
        url
    }
}

/// The text with one character replaced, put in, taken out or turned to a capital, anywhere.
fn with_one_change(rng: &mut Rng, text: &str) -> String {
    let mut chars: Vec<char> = text.chars().collect();
    let at = rng.usize(0..chars.len());
    let any = char::from(rng.u8(0..=255));
    match rng.u8(0..4) {
        0 => chars[at] = any,
        1 => chars.insert(at, any),
        2 => drop(chars.remove(at)),
        _ => chars[at] = chars[at].to_ascii_uppercase(),
    }
    chars.into_iter().collect()
}
