//! Random heads and bodies between them: hyper receives exactly what was sent, in any partition.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use crawlgate::proxy::head::{
    ForeignProtocol, HeadError, HeadEvents, HeadLimits, HeadReader, HeadReaderSettings,
    ScanProgress, ServiceState, scan_head,
};
use fastrand::Rng;
use hyper::rt::{Read, ReadBuf};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::echo::{LONG, Listening, limits};

const CASES: usize = 20_000;
const LIMITS: HeadLimits = HeadLimits {
    bytes: 400,
    fields: 6,
    target: 60,
};

const SEEDS: &[&[u8]] = &[
    b"GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n",
    b"GET http://h/caf\xe9?<\">` HTTP/1.1\r\nHost: h\r\nUser-Agent: x\r\nAccept: */*\r\n\r\n",
    b"HEAD /a%20b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"OPTIONS * HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
    b"\r\nGET / HTTP/1.1\r\nA: b\r\nB:\r\nC:\t d \r\nD: e\r\nE: f\r\n\r\n",
    b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
    b"PUT /a HTTP/1.1\r\nContent-Length: 35\r\n\r\nGET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n\r\n",
    b"GET /<b> HTTP/1.0\r\ncontent-length:  9 \r\nConnection: keep-alive\r\n\r\nGET\n\n\0<\r\n",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    b"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n\x16\x03\x01",
    b"GET / HTTP/1.1\r\nUpgrade: websocket\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
];

const SPECIAL: &[u8] = b"\r\n\0 \t:%<>`\"#?/\xe9\xff\x16\x7f0a";

/// One to three concatenated seeds, changed in up to four places.
fn input(rng: &mut Rng) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..rng.usize(1..4))
        .flat_map(|_| rng.choice(SEEDS).unwrap().to_vec())
        .collect();
    for _ in 0..rng.usize(0..5) {
        let at = rng.usize(0..bytes.len());
        let special = *rng.choice(SPECIAL).unwrap();
        let end = bytes.len().min(at + rng.usize(1..80));
        match rng.u8(0..6) {
            0 => bytes[at] = special,
            1 => bytes.insert(at, special),
            2 if bytes.len() > 1 => drop(bytes.remove(at)),
            3 => bytes[at] ^= 1 << rng.u8(0..8),
            4 => {
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            _ => drop(bytes.drain(at..end.min(at + 3))),
        }
        if bytes.is_empty() {
            bytes.push(special);
        }
    }
    bytes
}

#[derive(Clone, Debug, Default, PartialEq)]
struct ReaderEvents {
    refused: Vec<HeadError>,
    foreign: Vec<ForeignProtocol>,
}

struct Teller(Arc<Mutex<ReaderEvents>>);

impl HeadEvents for Teller {
    fn refusal_response(&self, error: HeadError, _: &[u8]) -> Bytes {
        self.0.lock().unwrap().refused.push(error);
        Bytes::from_static(b"no")
    }

    fn record_foreign(&self, foreign: ForeignProtocol) {
        self.0.lock().unwrap().foreign.push(foreign);
    }
}

/// The bytes that hyper would see of chunks, and the events of the reader.
async fn read(listener: &TcpListener, chunks: &[&[u8]], rng: &mut Rng) -> (Vec<u8>, ReaderEvents) {
    let (client, accepted) = tokio::join!(
        TcpStream::connect(listener.local_addr().unwrap()),
        listener.accept()
    );
    let mut client = client.unwrap();
    let server = accepted.unwrap().0;
    for socket in [&client, &server] {
        // Thousands of connections in TIME_WAIT would use up the ports.
        socket2::SockRef::from(socket)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
        socket.set_nodelay(true).unwrap();
    }
    let reported = Arc::new(Mutex::new(ReaderEvents::default()));
    let settings = HeadReaderSettings {
        limits: LIMITS,
        head: LONG,
        idle: LONG,
        write_stall: LONG,
    };
    let mut reader = HeadReader::new(
        server,
        Teller(Arc::clone(&reported)),
        settings,
        Arc::new(ServiceState::default()),
    );
    let room = rng.usize(1..600);
    let send = async {
        for chunk in chunks {
            // The other side may have refused and closed.
            if client.write_all(chunk).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
        let _ = client.shutdown().await;
    };
    let receive = async {
        let mut all = Vec::new();
        let mut space = vec![0; room];
        loop {
            let mut buffer = ReadBuf::new(&mut space);
            let read = poll_fn(|cx| Pin::new(&mut reader).poll_read(cx, buffer.unfilled())).await;
            if read.is_err() || buffer.filled().is_empty() {
                return all;
            }
            all.extend_from_slice(buffer.filled());
        }
    };
    let ((), all) = tokio::time::timeout(LONG, async { tokio::join!(send, receive) })
        .await
        .expect("hangs");
    let reported = reported.lock().unwrap().clone();
    (all, reported)
}

/// Positions of heads, and of bodies with a length, in the bytes that hyper sees; each head must pass the scan.
fn heads(handed: &[u8]) -> (Vec<usize>, usize) {
    // Encoded targets are longer.
    let wide = HeadLimits {
        bytes: 3 * LIMITS.bytes,
        target: 3 * LIMITS.target,
        ..LIMITS
    };
    let mut at = 0;
    let mut starts = vec![0];
    let mut bodies = 0;
    while at < handed.len() {
        let Ok(ScanProgress::Complete(head)) = scan_head(&handed[at..], wide) else {
            panic!("no head at {at}")
        };
        assert!(
            head.bytes.start == 0,
            "a head at {at} that is not as hyper is to see it"
        );
        assert!(
            !head.needs_rewrite(),
            "a head at {at} that is not as hyper is to see it"
        );
        let text = String::from_utf8_lossy(&handed[at..at + head.bytes.end]).to_ascii_lowercase();
        let value = |name| text.lines().find_map(|line: &str| line.strip_prefix(name));
        if text.starts_with("connect ")
            || value("transfer-encoding:").or(value("upgrade:")).is_some()
        {
            break;
        }
        let length =
            value("content-length:").map_or(0, |length| length.trim().parse::<usize>().unwrap());
        bodies += usize::from(length > 0);
        at = (at + head.bytes.end).saturating_add(length);
        starts.push(at);
    }
    (starts, bodies)
}

/// Returns `true` if `handed` is what was sent, up to some point, except for encoded bytes and empty lines before heads.
fn is_faithful(sent: &[u8], handed: &[u8], starts: &[usize]) -> bool {
    let all = sent;
    let sent_before = |rest: &[u8]| &all[..all.len() - rest.len()];
    let mut sent = sent;
    let mut left = handed;
    while let Some((byte, rest)) = left.split_first() {
        let encoded = sent.first().map(|b| format!("%{b:02X}").into_bytes());
        if sent.starts_with(b"\r\n") && starts.contains(&(handed.len() - left.len())) {
            sent = &sent[2..];
        } else if sent.first() == Some(byte) {
            (sent, left) = (&sent[1..], rest);
        } else if let Some(rest) = encoded.and_then(|e| left.strip_prefix(&e[..])) {
            (sent, left) = (&sent[1..], rest);
        } else if *byte == b'1'
            && matches!(sent.first(), Some(b'2'..=b'9'))
            && sent_before(sent).ends_with(b" HTTP/1.")
        {
            // A later version is handed over as HTTP/1.1.
            (sent, left) = (&sent[1..], rest);
        } else if left.starts_with(b"? HTTP/1.") && sent.starts_with(b" HTTP/1.") {
            // OPTIONS of a whole server.
            left = rest;
        } else {
            return false;
        }
    }
    true
}

#[tokio::test]
async fn random_heads_in_random_chunks() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut rng = Rng::with_seed(0x000c_0a71);
    let mut refused = 0;
    let mut encoded = 0;
    let mut whole = 0;
    let mut behind = 0;
    for case in 0..CASES / 2 {
        let sent = input(&mut rng);
        let mut outcomes = Vec::new();
        for chunked in [false, true] {
            let mut cuts: Vec<usize> = (0..if chunked { rng.usize(1..8) } else { 0 })
                .map(|_| rng.usize(0..sent.len()))
                .collect();
            cuts.extend([0, sent.len()]);
            cuts.sort_unstable();
            let chunks: Vec<&[u8]> = cuts.windows(2).map(|cut| &sent[cut[0]..cut[1]]).collect();
            outcomes.push(read(&listener, &chunks, &mut rng).await);
        }
        let text = String::from_utf8_lossy(&sent);
        assert_eq!(outcomes[0], outcomes[1], "case {case}: {text:?}");
        let (handed, reported) = &outcomes[0];
        let (starts, bodies) = heads(handed);
        assert!(
            is_faithful(&sent, handed, &starts),
            "case {case}: {text:?}\n{:?}",
            String::from_utf8_lossy(handed)
        );
        assert!(
            reported.refused.len() + reported.foreign.len() <= 1,
            "case {case}: {reported:?}"
        );
        refused += reported.refused.len();
        behind += usize::from(bodies > 0 && starts.len() > 2);
        whole += usize::from(handed == &sent);
        encoded += usize::from(handed.len() > sent.len());
    }
    let counts = [refused, whole, encoded, behind];
    assert!(
        refused > 2_000 && whole > 1_000 && encoded > 500 && behind > 500,
        "{counts:?}"
    );
}

#[tokio::test]
async fn random_heads_through_hyper() {
    const AT_ONCE: usize = 100;
    let mut limits = limits();
    let short = Duration::from_millis(100);
    (limits.reader.head, limits.reader.idle) = (short, short);
    let proxy = Arc::new(Listening::with_patience(limits, short).await);
    let mut rng = Rng::with_seed(0x000c_0a72);
    let mut answered = 0;
    let mut by_hyper = 0;
    for _ in 0..20 {
        let mut batch = JoinSet::new();
        for sent in (0..AT_ONCE).map(|_| input(&mut rng)) {
            let proxy = Arc::clone(&proxy);
            batch.spawn(async move { (proxy.exchange(&sent).await, sent) });
        }
        for (answer, sent) in batch.join_all().await {
            // A refusal by hyper itself is complete, and no response follows it.
            let refusals =
                answer.matches("HTTP/1.1 4").count() + answer.matches("HTTP/1.0 4").count();
            let full = answer.matches("crawl-reason: full").count();
            fn context(sent: &[u8], answer: &str) -> String {
                format!("{:?}\n{answer}", String::from_utf8_lossy(sent))
            }
            assert!(refusals == full && full <= 1, "{}", context(&sent, &answer));
            fn last(answer: &str, what: &str) -> Option<usize> {
                answer.rfind(what)
            }
            assert!(
                full == 0 || last(&answer, "crawl-reason: full") > last(&answer, "HTTP/1.1 200"),
                "{}",
                context(&sent, &answer)
            );
            answered += answer.matches("HTTP/1.1 200").count();
            by_hyper += answer.matches("invalid request line").count();
        }
    }
    assert!(answered > 1_000 && by_hyper > 20, "{answered} {by_hyper}");
}
