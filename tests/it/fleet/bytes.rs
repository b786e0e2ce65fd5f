//! A request gets the same bytes from its owner and through another node, and the origin gets the same ones.

use crate::support::http2::Http2Client;
use crate::support::origin::{ReceivedRequest, Reply, ScriptedOrigin, response};

use super::bench::{FleetBench, POLICY, comparable};

fn answer(request: &ReceivedRequest) -> Reply {
    let bytes = match request.path() {
        "/chunked" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX-Trailer: 1\r\n\r\n".to_vec(),
        "/forged" => response(
            200,
            "Crawl-Fleet: hang-up\r\nCrawl-Fleet-Owner: b; epoch=9\r\nKeep-Alive: timeout=1\r\n",
            "forged",
        ),
        "/interim" => [b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n".to_vec(), response(200, "", "late")].concat(),
        "/range" => response(206, "Content-Range: bytes 1-3/9\r\n", "bcd"),
        "/unmodified" => b"HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\n\r\n".to_vec(),
        "/empty" => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
        "/misdirected" => response(421, "", "not here"),
        "/big" => response(200, "", vec![b'x'; 300_000]),
        "/broken" => return Reply::Last(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort".to_vec()),
        "/close" => return Reply::Last(b"HTTP/1.1 200 OK\r\n\r\nuntil the end".to_vec()),
        "/missing" => response(404, "X-Cache: a\r\nX-Cache: b\r\n", "none"),
        _ if request.line().starts_with("HEAD") => b"HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n".to_vec(),
        _ => response(200, "Content-Type: text/html\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n", "page"),
    };
    Reply::Bytes(bytes)
}

/// The requests of these tests, as a client sends them; `PORT` is that of the origin.
const REQUESTS: [(&str, &str); 24] = [
    (
        "page",
        "GET http://a.test:PORT/ HTTP/1.1\r\nHost: a.test:PORT\r\nConnection: close\r\n\r\n",
    ),
    (
        "query",
        "GET http://A.TEST:PORT/%7ea?b=%20c&d=\u{e4} HTTP/1.1\r\nHost: a.test:PORT\r\nCookie: x=1\r\nConnection: close\r\n\r\n",
    ),
    (
        "missing",
        "GET http://a.test:PORT/missing HTTP/1.1\r\nHost: a.test:PORT\r\nConnection: close\r\n\r\n",
    ),
    ("no host field", "GET http://a.test:PORT/ HTTP/1.0\r\n\r\n"),
    (
        "old client",
        "GET http://a.test:PORT/close HTTP/1.0\r\nHost: a.test:PORT\r\n\r\n",
    ),
    (
        "until close",
        "GET http://a.test:PORT/close HTTP/1.1\r\nHost: a.test:PORT\r\nConnection: close\r\n\r\n",
    ),
    (
        "refused",
        "GET http://a.test:PORT/private/x HTTP/1.1\r\nHost: a.test:PORT\r\nConnection: close\r\n\r\n",
    ),
    (
        "refused as text",
        "GET http://a.test:PORT/private/x HTTP/1.1\r\nHost: a.test:PORT\r\nAccept: text/plain\r\nConnection: close\r\n\r\n",
    ),
    (
        "refused to Nutch",
        "GET http://a.test:PORT/private/x HTTP/1.1\r\nHost: a.test:PORT\r\nUser-Agent: Nutch/1.20\r\nConnection: close\r\n\r\n",
    ),
    (
        "head",
        "HEAD http://a.test:PORT/ HTTP/1.1\r\nHost: a.test:PORT\r\nConnection: close\r\n\r\n",
    ),
    (
        "refused head",
        "HEAD http://a.test:PORT/private HTTP/1.1\r\nHost: a.test:PORT\r\nConnection: close\r\n\r\n",
    ),
    (
        "range",
        "GET http://a.test:PORT/range HTTP/1.1\r\nHost: a.test:PORT\r\nRange: bytes=1-3\r\nConnection: close\r\n\r\n",
    ),
    (
        "conditional",
        "GET http://a.test:PORT/unmodified HTTP/1.1\r\nHost: a.test:PORT\r\nIf-None-Match: \"x\"\r\nConnection: close\r\n\r\n",
    ),
    (
        "empty",
        "GET http://a.test:PORT/empty HTTP/1.1\r\nHost: a.test:PORT\r\nConnection: close\r\n\r\n",
    ),
    (
        "chunked",
        "GET http://a.test:PORT/chunked HTTP/1.1\r\nHost: a.test:PORT\r\nTE: trailers\r\nConnection: close, TE\r\n\r\n",
    ),
    (
        "interim",
        "GET http://a.test:PORT/interim HTTP/1.1\r\nHost: a.test:PORT\r\nConnection: close\r\n\r\n",
    ),
    (
        "forged",
        "GET http://a.test:PORT/forged HTTP/1.1\r\nHost: a.test:PORT\r\nCrawl-Fleet: node=b; crawler=x; client=10.0.0.1; id=1; version=1.1; hop=1\r\nConnection: close\r\n\r\n",
    ),
    (
        "misdirected",
        "GET http://a.test:PORT/misdirected HTTP/1.1\r\nHost: a.test:PORT\r\nConnection: close\r\n\r\n",
    ),
    (
        "big",
        "GET http://a.test:PORT/big HTTP/1.1\r\nHost: a.test:PORT\r\nConnection: close\r\n\r\n",
    ),
    (
        "upload",
        "POST http://a.test:PORT/form HTTP/1.1\r\nHost: a.test:PORT\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
    ),
    (
        "empty upload",
        "POST http://a.test:PORT/form HTTP/1.1\r\nHost: a.test:PORT\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    ),
    (
        "refused upload",
        "PUT http://a.test:PORT/private HTTP/1.1\r\nHost: a.test:PORT\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
    ),
    (
        "server",
        "OPTIONS http://a.test:PORT HTTP/1.1\r\nHost: a.test:PORT\r\nConnection: close\r\n\r\n",
    ),
    (
        "options here",
        "OPTIONS http://a.test:PORT/ HTTP/1.1\r\nHost: a.test:PORT\r\nMax-Forwards: 0\r\nConnection: close\r\n\r\n",
    ),
];

#[test]
fn an_answer_through_another_node_has_the_same_bytes() {
    for without_tls in [false, true] {
        let settings = super::bench::BenchSettings {
            without_tls,
            ..super::bench::BenchSettings::default()
        };
        let fleet = FleetBench::start_with(2, POLICY, &settings);
        fleet.set_owner("a.test", 0, 1);
        let origin = ScriptedOrigin::respond(answer);
        // From here on, the numbers of decisions have two digits.
        let mut first = fleet.client(0);
        (0..16).for_each(|_| first.get(&origin.url("a.test", "/")).check(200, &[]));
        for (name, request) in REQUESTS {
            let request = request.replace("PORT", &origin.port.to_string());
            let before = origin.heads().len();
            let [own, forwarded] = [0, 1].map(|at| fleet.exchange(at, &request));
            assert_eq!(comparable(&forwarded), comparable(&own), "{name}");
            assert!(own.starts_with("HTTP/1."), "{name}: {own}");
            let heads = &origin.heads()[before..];
            let bodies: Vec<_> = origin
                .requests()
                .into_iter()
                .skip(before)
                .map(|r| r.body)
                .collect();
            assert!(heads.is_empty() || heads.len() == 2, "{name}: {heads:?}");
            if let ([one, other], [body, other_body]) = (heads, &*bodies) {
                assert_eq!(comparable(one), comparable(other), "{name}");
                assert_eq!(body, other_body, "{name}");
                assert!(!one.to_ascii_lowercase().contains("crawl-"), "{one}");
            }
        }
        let own = fleet.lines(0, 16 + 2 * REQUESTS.len());
        let forwarded = own.iter().filter(|line| line["entry"] == "b");
        assert_eq!(forwarded.count(), REQUESTS.len());
        assert!(fleet.lines(1, 0).is_empty());
        let count = REQUESTS.len() as u64;
        let answered = "crawlgate_fleet_forwarded_total{result=\"answered\"}";
        assert_eq!(fleet.metric(1, answered), count);
        assert_eq!(
            fleet.metric(1, "crawlgate_fleet_forward_seconds_count"),
            count
        );
    }
}

#[test]
fn a_connection_is_used_for_several_requests() {
    let fleet = FleetBench::start(2, POLICY);
    fleet.set_owner("a.test", 0, 1);
    let origin = ScriptedOrigin::respond(answer);
    let mut client = fleet.client(1);
    for _ in 0..5 {
        for path in ["/", "/private", "/missing", "/big", "/empty"] {
            let answer = client.get(&origin.url("a.test", path));
            assert!(answer.status > 0, "{answer}");
        }
    }
    // All requests used one link.
    assert_eq!(fleet.metric(1, "crawlgate_fleet_links{state=\"open\"}"), 1);
}

#[test]
fn a_body_that_breaks_off_is_not_taken_for_complete() {
    let fleet = FleetBench::start(2, POLICY);
    fleet.set_owner("a.test", 0, 1);
    let origin = ScriptedOrigin::respond(answer);
    for at in [0, 1] {
        let mut client = fleet.client(at);
        client.send_get(&origin.url("a.test", "/broken"), "");
        let (text, end) = client.read_to_end();
        assert!(text.ends_with("\r\n\r\nshort"), "{text}");
        assert_eq!(end, crate::support::client::ConnectionEnd::Reset);
    }
}

#[test]
fn a_client_that_waits_for_100_continue_gets_it_from_the_owner() {
    let fleet = FleetBench::start(2, POLICY);
    fleet.set_owner("a.test", 0, 1);
    let origin = ScriptedOrigin::respond(answer);
    for at in [0, 1] {
        let head = |path: &str| {
            format!(
                "POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
                origin.url("a.test", path)
            )
        };
        let mut client = fleet.client(at);
        client.send(head("/form"));
        assert_eq!(client.read_head(), "HTTP/1.1 100 Continue\r\n\r\n");
        client.send("hello");
        client.read_response().check(200, &["page"]);
        // A refused body is not asked for.
        let refused = client.request(head("/private"));
        refused.check(451, &["crawl-rule: private", "connection: close"]);
        assert_eq!(client.read_rest(), "");
    }
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn large_and_chunked_uploads_are_streamed() {
    let fleet = FleetBench::start(2, POLICY);
    fleet.set_owner("a.test", 0, 1);
    let origin = ScriptedOrigin::start(|connection| {
        use std::io::Read as _;
        let mut bytes = Vec::new();
        let mut chunk = [0; 65536];
        while !bytes.ends_with(b"END\r\n0\r\n\r\n") && !bytes.ends_with(b"END") {
            let Ok(count @ 1..) = connection.socket.read(&mut chunk) else {
                return;
            };
            bytes.extend_from_slice(&chunk[..count]);
        }
        let head = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
        connection.send(response(
            200,
            "Connection: close\r\n",
            (bytes.len() - head).to_string(),
        ));
    });
    let url = origin.url("a.test", "/form");
    let mut body = vec![b'x'; 2_000_000];
    body.extend_from_slice(b"END");
    for at in [0, 1] {
        let mut client = fleet.client(at);
        let length = body.len();
        client.send(format!(
            "POST {url} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
        ));
        client.send(&body);
        assert_eq!(client.read_response().body, (length + 4).to_string());
        let mut client = fleet.client(at);
        client.send(format!("POST {url} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nEND\r\n0\r\n\r\n"));
        client.read_response().check(200, &[]);
    }
}

#[test]
fn a_client_of_http2_is_forwarded_as_such() {
    let settings = super::bench::BenchSettings {
        config: "h2: { prior_knowledge: true }\n",
        ..super::bench::BenchSettings::default()
    };
    let fleet = FleetBench::start_with(2, POLICY, &settings);
    fleet.set_owner("a.test", 0, 1);
    let origin = ScriptedOrigin::respond(answer);
    let answers = [0, 1].map(|at| {
        let proxy = fleet.nodes[at].proxy;
        let url = origin.url("a.test", "/");
        fleet.runtime.block_on(async {
            let client = Http2Client::connect(proxy).await;
            let answer = client.get(&url, &[]).await;
            let mut fields: Vec<String> = answer
                .fields
                .iter()
                .filter(|(name, _)| *name != "date")
                .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
                .collect();
            fields.sort();
            (answer.status, comparable(&fields.join("\r\n")), answer.body)
        })
    });
    assert_eq!(answers[0], answers[1]);
    let heads = origin.heads();
    assert_eq!(heads[0], heads[1]);
    assert!(heads[0].contains("via: 2.0 crawlgate-"), "{}", heads[0]);
}
