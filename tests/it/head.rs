//! The head reader and the accept loop, over real sockets.

mod echo;
mod random;

use std::time::{Duration, Instant};

use crawlgate::proxy::accept::AcceptLimits;
use crawlgate::proxy::drain::DrainOutcome;
use crawlgate::proxy::head::{ForeignProtocol, HeadError, HeadReaderSettings};
use tokio::io::AsyncReadExt;

use echo::{LONG, Listening, MOMENT, limits, until};

const SHORT: Duration = Duration::from_millis(60);

fn with(reader: impl FnOnce(&mut HeadReaderSettings)) -> AcceptLimits {
    let mut limits = limits();
    reader(&mut limits.reader);
    limits
}

#[tokio::test]
async fn a_connection_is_reused() {
    let proxy = Listening::new(limits()).await;
    let mut client = proxy.connect().await;
    for n in 0..5 {
        client
            .send(format!("GET http://h/{n} HTTP/1.1\r\nHost: h\r\n\r\n"))
            .await;
        assert_eq!(client.answer().await, (200, format!("GET http://h/{n} []")));
    }
    client.send("\r\n").await;
    tokio::time::sleep(MOMENT).await;
    client
        .send("GET /1.0 HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        .await;
    assert_eq!(client.answer().await.1, "GET /1.0 []");
    client.send("GET /last HTTP/1.0\r\n\r\n").await;
    assert!(client.rest().await.ends_with("GET /last []"));
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order_and_one_at_a_time() {
    let proxy = Listening::new(limits()).await;
    let mut client = proxy.connect().await;
    let paths = ["/wait/60", "/b", "/wait/10", "/d", "/big/300000", "/f"];
    let heads = paths.map(|path| format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
    client.send(heads.concat()).await;
    proxy.until_in_service(1).await;
    assert_eq!(proxy.seen(), ["GET /wait/60"]);
    for path in paths {
        let (_, body) = client.answer().await;
        assert!(
            body == format!("GET {path} []") || body.len() == 300_000,
            "{path}"
        );
    }
    assert_eq!(proxy.seen(), paths.map(|path| format!("GET {path}")));
}

const SCRIPT: &str = "\r\nGET http://h/a<b HTTP/1.1\r\nHost: h\r\n\r\n\
    GET /wait/2 HTTP/1.1\r\nA: b\r\nContent-Length: 0\r\n\r\n\r\n\r\n\
    POST /b HTTP/1.1\r\nContent-Length: 5\r\n\r\nGET /\r\n\
    POST /c HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nGET \r\n0\r\n\r\n\
    GET /d HTTP/1.1\r\n\r\n";

#[tokio::test]
async fn where_a_head_is_split_makes_no_difference() {
    let proxy = Listening::new(limits()).await;
    let expected = [
        "GET http://h/a%3Cb []",
        "GET /wait/2 []",
        "POST /b [GET /]",
        "POST /c [GET ]",
    ];
    for at in 1..SCRIPT.len() {
        let mut client = proxy.connect().await;
        let (first, second) = SCRIPT.split_at(at);
        client.send(first).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        client.send(second).await;
        for body in expected {
            assert_eq!(
                client.answer().await,
                (200, body.to_owned()),
                "split at {at}"
            );
        }
        assert_eq!(client.rest().await, "");
    }
    let mut client = proxy.connect().await;
    for byte in SCRIPT.as_bytes() {
        client.send([*byte]).await;
        tokio::task::yield_now().await;
    }
    for body in expected {
        assert_eq!(client.answer().await.1, body);
    }
    assert_eq!(client.rest().await, "");
    assert!(
        !proxy.seen().contains(&"GET /d".into()),
        "nothing is served behind chunks"
    );
}

#[tokio::test]
async fn heads_that_could_be_read_in_two_ways_are_refused_in_full() {
    let proxy = Listening::new(limits()).await;
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(256));
    let large = format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "b".repeat(2048));
    let endless = format!("GET / HTTP/1.1\r\nA: {}", "b".repeat(3000));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(11));
    for (head, status, why) in [
        ("GET / HTTP/1.1\nHost: h\n\n", 400, "LF"),
        ("GET / HTTP/1.1\r\nA: b\r\n c: d\r\n\r\n", 400, "folded"),
        ("GET / HTTP/1.1\r\nA: b\0c\r\n\r\n", 400, "control"),
        ("GET / HTTP/1.1\r\nA: b\rc\r\n\r\n", 400, "control"),
        ("GET / HTTP/1.1\r\nA : b\r\n\r\n", 400, "field name"),
        ("GET / HTTP/1.1\r\nno colon\r\n\r\n", 400, "colon"),
        (
            "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
            400,
            "both",
        ),
        (
            "POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
            400,
            "more than one",
        ),
        (
            "POST / HTTP/1.1\r\nContent-Length: +3\r\n\r\nabc",
            400,
            "not a number",
        ),
        (
            "POST / HTTP/1.1\r\nContent-Length: 3, 3\r\n\r\nabc",
            400,
            "not a number",
        ),
        (
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
            400,
            "other than chunked",
        ),
        (
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            "HTTP/1.0",
        ),
        ("GET  / HTTP/1.1\r\n\r\n", 400, "space"),
        ("GET /a b HTTP/1.1\r\n\r\n", 400, "space"),
        ("GET\t/ HTTP/1.1\r\n\r\n", 400, "request line"),
        ("GET / HTTP/1.10\r\n\r\n", 400, "version"),
        ("GET /a\x01 HTTP/1.1\r\n\r\n", 400, "control"),
        // hyper refuses these, and would say nothing.
        (
            "GET http://b\u{fc}cher.example/ HTTP/1.1\r\n\r\n",
            400,
            "invalid request line",
        ),
        (
            "GET http://h:port:port/ HTTP/1.1\r\n\r\n",
            400,
            "invalid request line",
        ),
        (&long, 414, "target"),
        (&large, 431, "head"),
        (&endless, 431, "head"),
        (&many, 431, "head"),
    ] {
        let answer = proxy.ask(head.as_bytes()).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{head:?}: {answer}"
        );
        assert!(answer.contains("crawl-reason: full"), "{head:?}: {answer}");
        assert!(answer.contains(why), "{head:?}: {answer}");
        assert_eq!(
            answer.matches("HTTP/1.1 4").count(),
            1,
            "{head:?}: {answer}"
        );
        let (_, partial) = proxy.echo.refused.lock().unwrap().pop().unwrap();
        assert!(head.as_bytes().starts_with(&partial), "{head:?}");
    }
    assert_eq!(proxy.seen(), [""; 0]);
}

#[tokio::test]
async fn bytes_that_crawlers_send_reach_the_service_encoded() {
    let proxy = Listening::new(limits()).await;
    for (target, seen) in [
        (&b"http://h/caf\xe9?\xe9"[..], "http://h/caf%E9?%E9"),
        ("http://h/\u{e9}".as_bytes(), "http://h/%C3%A9"),
        (b"http://h/<a>`\"{|}^\\", "http://h/%3Ca%3E%60\"{|}^\\"),
        (b"http://h/?<a>`\"{|}^\\", "http://h/?%3Ca%3E`%22{|}^\\"),
        (b"/%zz%", "/%zz%"),
    ] {
        let head = [
            b"GET ",
            target,
            b" HTTP/1.1\r\nX: \xe9<\r\nConnection: close\r\n\r\n",
        ]
        .concat();
        let answer = proxy.ask(&head).await;
        assert!(answer.ends_with(&format!("GET {seen} []")), "{answer}");
    }
}

#[tokio::test]
async fn a_bad_head_is_answered_after_earlier_responses() {
    let proxy = Listening::new(limits()).await;
    for bad in ["GET / HTTP/1.1\nA: b\n\n", "GET http://%/ HTTP/1.1\r\n\r\n"] {
        let mut client = proxy.connect().await;
        client
            .send(format!(
                "GET /wait/20 HTTP/1.1\r\n\r\nGET /big/6000000 HTTP/1.1\r\n\r\n{bad}"
            ))
            .await;
        client.send("GET /never HTTP/1.1\r\n\r\n").await;
        // The large answer is stuck in the socket when hyper is done with its body.
        tokio::time::sleep(3 * MOMENT).await;
        assert_eq!(client.answer().await.1, "GET /wait/20 []");
        let (status, body) = client.answer().await;
        assert!(status == 200 && body.len() == 6_000_000 && body.bytes().all(|b| b == b'x'));
        assert_eq!(client.answer().await.0, 400);
        assert_eq!(client.rest().await, "");
    }
    assert!(!proxy.seen().contains(&"GET /never".into()));
}

const POST: &str = "POST /p HTTP/1.1\r\nContent-Length: 5\r\n\r\nGET /";
const POSTED: &str = "POST /p [GET /]";

#[tokio::test]
async fn bodies_are_skipped_and_the_connection_is_reused() {
    let proxy = Listening::new(limits()).await;
    let mut client = proxy.connect().await;
    client
        .send(format!(
            "{POST}GET /wait/5 HTTP/1.1\r\n\r\n{POST}GET /<> HTTP/1.1\r\n\r\n{POST}"
        ))
        .await;
    for body in [POSTED, "GET /wait/5 []", POSTED, "GET /%3C%3E []", POSTED] {
        assert_eq!(client.answer().await, (200, body.into()));
    }
    let large = "x".repeat(300_000);
    client
        .send(format!(
            "PUT /l HTTP/1.1\r\nContent-Length: 300000\r\n\r\n{large}{POST}"
        ))
        .await;
    assert_eq!(client.answer().await, (200, format!("PUT /l [{large}]")));
    assert_eq!(client.answer().await.1, POSTED);
    client
        .send("POST /e HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
        .await;
    let mut interim = [0; 25];
    client.0.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    client.send("abcGET /kept HTTP/1.1\r\n\r\n").await;
    assert_eq!(client.answer().await.1, "POST /e [abc]");
    assert_eq!(client.answer().await.1, "GET /kept []");
}

#[tokio::test]
async fn a_head_after_a_body_waits_for_its_turn() {
    let proxy = Listening::new(limits()).await;
    let mut client = proxy.connect().await;
    client
        .send("POST /read/80 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\n\r\n")
        .await;
    proxy.until_in_service(1).await;
    tokio::time::sleep(MOMENT).await;
    assert_eq!(proxy.seen(), ["POST /read/80"]);
    assert_eq!(client.answer().await.1, "POST /read/80 [abc]");
    assert_eq!(client.answer().await.1, "GET /b []");
}

#[tokio::test]
async fn heads_after_a_body_are_read_as_strictly() {
    let proxy = Listening::new(limits()).await;
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(257));
    let large = format!("GET / HTTP/1.1\r\nA: {}\r\n\r\n", "b".repeat(2048));
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(11));
    let empty = "GET /p HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
    for (bad, status) in [
        (
            "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
            400,
        ),
        ("GET / HTTP/1.1\nHost: h\n\n", 400),
        ("GET http://h/a#b HTTP/1.1\r\n\r\n", 400),
        ("GET http://h:port:port/ HTTP/1.1\r\n\r\n", 400),
        (&long, 414),
        (&large, 431),
        (&many, 431),
    ] {
        for (good, later) in [(POST, false), (POST, true), (empty, false), (empty, true)] {
            let mut client = proxy.connect().await;
            if later {
                client.send(good).await;
                assert_eq!(client.answer().await.0, 200);
                client.send(bad).await;
            } else {
                client.send(format!("{good}{bad}")).await;
                assert_eq!(client.answer().await.0, 200);
            }
            let answer = client.rest().await;
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{bad:?}: {answer}"
            );
            assert!(answer.contains("crawl-reason: full"), "{bad:?}: {answer}");
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{bad:?}: {answer}");
        }
    }
    assert!(
        proxy.seen().iter().all(|seen| seen.ends_with("/p")),
        "{:?}",
        proxy.seen()
    );
}

#[tokio::test]
async fn nothing_is_served_after_an_unreadable_body() {
    let proxy = Listening::new(limits()).await;
    let never = "GET /never HTTP/1.1\r\n\r\n";
    for (request, body) in [
        (
            "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "POST /a [abc]",
        ),
        ("GET /a HTTP/1.1\r\nUpgrade: h2c\r\n\r\n", "GET /a []"),
        (
            "GET /a HTTP/1.0\r\nConnection: keep-alive\r\nUpgrade: h2c\r\n\r\n",
            "GET /a []",
        ),
        (
            "POST /a HTTP/1.1\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc",
            "POST /a [abc]",
        ),
    ] {
        for behind in ["", never] {
            let answer = proxy
                .ask(format!("{POST}{request}{behind}").as_bytes())
                .await;
            let (first, last) = answer
                .split_once(POSTED)
                .unwrap_or_else(|| panic!("{request:?}: {answer}"));
            assert!(
                !first.contains("connection: close"),
                "{request:?}: {answer}"
            );
            assert!(last.contains("connection: close"), "{request:?}: {answer}");
            assert!(last.ends_with(body), "{request:?}: {answer}");
        }
    }
    // A service that leaves its body unread: hyper closes, and the following bytes are neither head nor body.
    for behind in ["", "abc", "abcdefghi", never] {
        let mut client = proxy.connect().await;
        client
            .send(format!(
                "POST /early HTTP/1.1\r\nContent-Length: 1000\r\n\r\n{behind}"
            ))
            .await;
        assert!(client.rest().await.ends_with("POST /early []"));
    }
    assert!(!proxy.seen().contains(&"GET /never".into()));
}

#[tokio::test]
async fn an_answer_is_not_lost_though_the_client_goes_on_sending() {
    let proxy = Listening::new(limits()).await;
    for head in [
        "GET / HTTP/1.1\nA: b\n\n",
        "POST / HTTP/1.0\r\nContent-Length: 1\r\n\r\nx",
    ] {
        let mut client = proxy.connect().await;
        client.send(head).await;
        client.answer().await;
        for _ in 0..3 {
            tokio::time::sleep(MOMENT).await;
            client.send([b'x'; 10_000]).await;
        }
        assert_eq!(client.rest().await, "");
    }
    let full = AcceptLimits {
        connections: 0,
        ..limits()
    };
    let mut client = Listening::new(full).await.connect().await;
    assert_eq!(client.answer().await.0, 503);
    for _ in 0..3 {
        tokio::time::sleep(MOMENT).await;
        client.send([b'x'; 10_000]).await;
    }
    assert_eq!(client.rest().await, "");
    // More bytes than are waited for: the connection still closes.
    let mut client = proxy.connect().await;
    client.send("GET / HTTP/1.1\nA: b\n\n").await;
    let flood = async {
        while tokio::io::AsyncWriteExt::write_all(&mut client.0, &[0; 4096])
            .await
            .is_ok()
        {}
    };
    tokio::time::timeout(LONG, flood).await.expect("still open");
}

#[tokio::test]
async fn other_protocols_are_closed_and_counted() {
    let proxy = Listening::new(limits()).await;
    assert_eq!(proxy.ask(b"\x16\x03\x01\x02\x00\x01").await, "");
    assert_eq!(proxy.ask(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await, "");
    let kept = proxy
        .ask(b"GET /wait/10 HTTP/1.1\r\n\r\n\x16\x03\x01")
        .await;
    assert!(kept.ends_with("GET /wait/10 []"), "{kept}");
    let foreign = proxy.echo.foreign.lock().unwrap().clone();
    assert_eq!(
        foreign,
        [
            ForeignProtocol::ClientHello,
            ForeignProtocol::Http2,
            ForeignProtocol::ClientHello
        ]
    );
}

#[tokio::test]
async fn slow_heads_are_refused_and_silence_just_ends() {
    let proxy = Listening::new(with(|r| (r.head, r.idle) = (SHORT, SHORT))).await;
    assert_eq!(proxy.ask(b"").await, "", "a silent new connection");
    assert_eq!(proxy.ask(b"\r\n\r\n").await, "", "empty lines are no head");
    let late = proxy.ask(b"GET / HTTP/1.1\r\nA: ").await;
    assert!(late.starts_with("HTTP/1.1 408 "), "{late}");
    assert!(late.contains("crawl-reason: full"), "{late}");
    let partial = b"GET / HTTP/1.1\r\nA: ".to_vec();
    assert_eq!(
        proxy.echo.refused.lock().unwrap().pop(),
        Some((HeadError::Late, partial))
    );
    let idle = proxy.ask(b"GET /a HTTP/1.1\r\n\r\n").await;
    assert!(idle.ends_with("GET /a []"), "{idle}");
    let behind = proxy.ask(b"GET /wait/100 HTTP/1.1\r\n\r\nGET /b").await;
    assert!(behind.contains("GET /wait/100 []HTTP/1.1 408 "), "{behind}");
    let post = proxy
        .ask(b"POST /c HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
        .await;
    assert!(post.ends_with("POST /c [x]"), "{post}");
    let mut client = proxy.connect().await;
    client
        .send("POST /c HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
        .await;
    assert_eq!(client.answer().await.1, "POST /c [x]");
    client.send("\r\nGET /d HTTP").await;
    assert_eq!(client.answer().await.0, 408);
    assert_eq!(client.rest().await, "");
    let proxy = Listening::new(with(|r| r.head = SHORT)).await;
    let mut client = proxy.connect().await;
    client.send("GET /a HTTP/1.1\r\n\r\n").await;
    assert_eq!(client.answer().await.0, 200);
    tokio::time::sleep(SHORT).await;
    client.send("GET /b HTTP/1.1\r\n").await;
    assert_eq!(
        client.answer().await.0,
        408,
        "a head's time is not that of silence"
    );
    let trickle = async {
        let mut client = proxy.connect().await;
        for byte in SCRIPT.bytes().cycle() {
            if tokio::io::AsyncWriteExt::write_all(&mut client.0, &[byte])
                .await
                .is_err()
            {
                break;
            }
            tokio::time::sleep(SHORT / 10).await;
        }
    };
    tokio::time::timeout(LONG, trickle)
        .await
        .expect("bytes that trickle in keep a head alive");
}

#[tokio::test]
async fn patience_in_service_is_not_the_readers() {
    let proxy = Listening::new(with(|r| (r.head, r.idle) = (SHORT, SHORT))).await;
    let mut client = proxy.connect().await;
    client
        .send("GET /wait/300 HTTP/1.1\r\n\r\nGET /wait/200 HT")
        .await;
    assert_eq!(client.answer().await.1, "GET /wait/300 []");
    client.send("TP/1.1\r\n\r\n").await;
    assert_eq!(client.answer().await.1, "GET /wait/200 []");
    client
        .send("POST /wait/200 HTTP/1.1\r\nContent-Length: 1\r\n\r\nx")
        .await;
    assert_eq!(client.answer().await.1, "POST /wait/200 [x]");
}

#[tokio::test]
async fn a_leaving_client_frees_its_request() {
    let proxy = Listening::new(limits()).await;
    let long = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(200)).repeat(60);
    let body = format!(
        "POST /unread HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n{}",
        "x".repeat(50_000)
    );
    let chunked = format!(
        "PUT /unread HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nC350\r\n{}",
        "x".repeat(50_000)
    );
    let next = "GET /next HTTP/1.1\r\n\r\n";
    for (what, behind) in [
        ("nothing unread", ""),
        ("a part of the next head", "GET /nex"),
        ("the next head", next),
        ("two heads", &next.repeat(2)),
        ("many heads", &long),
        ("a bad head", "GET / HTTP/1.1\n\n"),
        ("a body", &body),
        ("a chunked body", &chunked),
        (
            "the next head behind a body",
            &format!("POST /unread HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc{next}"),
        ),
        (
            "one behind a kept connection's body",
            &format!("{POST}GET /unread HTTP/1.1\r\n\r\n{next}"),
        ),
        (
            "one behind an upgrade",
            &format!("GET /unread HTTP/1.1\r\nUpgrade: h2c\r\n\r\n{next}"),
        ),
        (
            "a body that is awaited",
            "POST /unread HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n",
        ),
    ] {
        for (resets, later) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut client = proxy.connect().await;
            if !behind.contains("unread") {
                client.send("GET /wait/60000 HTTP/1.1\r\n\r\n").await;
            }
            if later {
                tokio::time::sleep(MOMENT).await;
            }
            client.send(behind).await;
            proxy.until_in_service(1).await;
            tokio::time::sleep(MOMENT).await;
            assert_eq!(proxy.in_service(), 1, "{what}: it is there");
            if resets {
                client.reset()
            } else {
                drop(client)
            }
            until(|| proxy.in_service() == 0, what).await;
        }
    }
    assert!(!proxy.seen().contains(&"GET /next".into()));
}

#[tokio::test]
async fn a_client_that_stops_reading_is_closed() {
    let proxy = Listening::new(with(|r| r.write_stall = SHORT)).await;
    let mut client = proxy.connect().await;
    client.send("GET /big/50000000 HTTP/1.1\r\n\r\n").await;
    proxy.until_in_service(1).await;
    until(|| proxy.in_service() == 0, "the stalled answer is given up").await;
    // One that reads slowly, but reads, is not.
    let mut client = proxy.connect().await;
    client
        .send("GET /big/20000000 HTTP/1.1\r\nConnection: close\r\n\r\n")
        .await;
    let began = Instant::now();
    let mut read = 0;
    let mut part = vec![0; 1_000_000];
    loop {
        match client.0.read(&mut part).await.unwrap() {
            0 => break,
            n => read += n,
        }
        tokio::time::sleep(SHORT / 8).await;
    }
    assert!(read > 20_000_000 && began.elapsed() > SHORT);
}

#[tokio::test]
async fn connections_are_limited_and_the_excess_gets_a_503() {
    for limits in [
        AcceptLimits {
            connections: 3,
            ..limits()
        },
        AcceptLimits {
            per_client: 3,
            ..limits()
        },
    ] {
        let proxy = Listening::new(limits).await;
        let mut kept = Vec::new();
        for _ in 0..3 {
            let mut client = proxy.connect().await;
            client.send("GET /a HTTP/1.1\r\n\r\n").await;
            assert_eq!(client.answer().await.0, 200);
            kept.push(client);
        }
        let excess = proxy.ask(b"GET /b HTTP/1.1\r\n\r\n").await;
        assert!(excess.starts_with("HTTP/1.1 503 "), "{excess}");
        assert!(excess.ends_with("overloaded"), "{excess}");
        drop(kept.pop());
        let mut answer = String::new();
        while !answer.ends_with("GET /c []") {
            answer = proxy
                .ask(b"GET /c HTTP/1.1\r\nConnection: close\r\n\r\n")
                .await;
        }
        assert_eq!(proxy.seen().len(), 4);
    }
}

#[tokio::test]
async fn a_panic_ends_one_connection() {
    let proxy = Listening::new(limits()).await;
    let mut other = proxy.connect().await;
    other.send("GET /a HTTP/1.1\r\n\r\n").await;
    assert_eq!(other.answer().await.0, 200);
    assert_eq!(proxy.ask(b"GET /panic HTTP/1.1\r\n\r\n").await, "");
    other.send("GET /b HTTP/1.1\r\n\r\n").await;
    assert_eq!(other.answer().await.1, "GET /b []");
}

#[tokio::test]
async fn a_drain_finishes_the_requests_in_progress() {
    let proxy = Listening::new(limits()).await;
    let mut idle = proxy.connect().await;
    let mut silent = proxy.connect().await;
    let mut busy = proxy.connect().await;
    idle.send("GET /a HTTP/1.1\r\n\r\n").await;
    assert_eq!(idle.answer().await.0, 200);
    busy.send("GET /wait/200 HTTP/1.1\r\n\r\nGET /never HTTP/1.1\r\n\r\n")
        .await;
    proxy.until_in_service(1).await;
    let (drained, (), rest) = tokio::join!(
        proxy.drain(LONG),
        async {
            assert_eq!(idle.rest().await, "");
            assert_eq!(silent.rest().await, "");
            assert_eq!(proxy.in_service(), 1);
        },
        busy.rest(),
    );
    assert_eq!(drained, DrainOutcome::Finished);
    assert!(rest.ends_with("GET /wait/200 []"), "{rest}");
    assert!(rest.contains("connection: close"), "{rest}");
    assert!(tokio::net::TcpStream::connect(proxy.address).await.is_err());
}

#[tokio::test]
async fn a_drain_does_not_wait_for_ever() {
    let proxy = Listening::new(limits()).await;
    let mut client = proxy.connect().await;
    client.send("GET /wait/60000 HTTP/1.1\r\n\r\n").await;
    proxy.until_in_service(1).await;
    assert_eq!(proxy.drain(SHORT).await, DrainOutcome::CutOff(1));
    assert_eq!(proxy.in_service(), 0);
    assert_eq!(client.rest().await, "");
}
