//! Runs one row: the client's steps against a proxy and the origin's at the same time, then checks both connections.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use super::check;
use super::client::{End, RowClient};
use super::format::{ClientEnd, Maker, OriginEnd, RowAnswer, Step, WireRow};
use super::origin::{Origin, PAUSE};
use super::text::Text;

/// The time for actions of the proxy itself, such as closing or sending the rest.
const SETTLE: Duration = Duration::from_secs(4);

/// The number of polls within that time.
const LOOKS: u32 = 20;

/// The time in which bytes may arrive late at an origin that should receive nothing.
const LATE: Duration = Duration::from_millis(30);

/// A proxy, or two nodes of a fleet, and the pseudonym in `Via` of the one that sends requests on.
pub(crate) struct Named {
    /// The address for clients.
    proxy: SocketAddr,
    /// The admin listeners; the first is that of the proxy that sends requests on.
    admin: Vec<SocketAddr>,
    /// The pseudonym.
    pub(crate) via: String,
}

impl Named {
    /// Learns the pseudonym from one request; it is empty if the proxy may not dial loopback.
    pub(crate) fn new(proxy: SocketAddr, admin: Vec<SocketAddr>) -> Self {
        let origin = Origin::start(&[], "", 0);
        let mut client = RowClient::connect(proxy);
        client.send(again("a.test", &origin));
        let got = client.answer(false).unwrap_or_else(|why| panic!("{why}"));
        let via = super::wire::values(&got.message.fields, "via")
            .next()
            .unwrap_or_default();
        let via = String::from_utf8_lossy(via)
            .trim_start_matches("1.1 ")
            .to_owned();
        let refused = got.message.start.starts_with(b"HTTP/1.1 403 ");
        assert!(refused || via.starts_with("crawlgate-"), "Via: {via}");
        Self { proxy, admin, via }
    }
}

/// Checks the metrics after all rows: no request or connection in progress.
///
/// # Errors
/// The lines with other values.
pub(crate) fn nothing_is_left(named: &Named) -> Result<(), String> {
    let mut admin = named.admin.iter();
    admin.try_for_each(|admin| nothing_is_left_at(*admin))
}

fn nothing_is_left_at(admin: SocketAddr) -> Result<(), String> {
    let zeros = ["crawlgate_inflight_requests 0", "crawlgate_connections 0"];
    let mut metrics = String::new();
    for _ in 0..LOOKS {
        metrics = scraped(admin)?;
        if zeros.iter().all(|line| metrics.lines().any(|l| l == *line)) {
            return Ok(());
        }
        thread::sleep(SETTLE / LOOKS);
    }
    let families = zeros.map(|line| line.split(' ').next().unwrap_or_default());
    let lines: Vec<&str> = metrics
        .lines()
        .filter(|l| families.iter().any(|f| l.starts_with(f)))
        .collect();
    Err(format!("expected {zeros:?}, got {lines:?}"))
}

fn scraped(admin: SocketAddr) -> Result<String, String> {
    let mut client = RowClient::connect(admin);
    client.send(
        format!("GET /metrics HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n").into_bytes(),
    );
    let got = client.answer(false)?;
    Ok(String::from_utf8_lossy(&got.message.body).into_owned())
}

/// Plays a row.
///
/// # Errors
/// Everything that is not as the row expects.
pub(crate) fn row(row: &WireRow, named: &Named) -> Result<(), Vec<String>> {
    let origin = Origin::start(&row.origin, &named.via, named.admin[0].port());
    let mut client = RowClient::connect(named.proxy);
    let mut wrong = Vec::new();
    for step in &row.client {
        if let Err(why) = act(step, &mut client, &origin, &mut wrong) {
            wrong.push(why);
            break;
        }
    }
    if wrong.is_empty() {
        wrong.extend(client_end(row.client_end, &mut client));
    }
    drop(client);
    origin.wait(SETTLE, |log: &[_]| {
        check::at_origin(&row.at_origin, log, &origin.names).is_empty()
    });
    thread::sleep(LATE);
    if wrong.is_empty() {
        wrong.extend(
            row.origin_end
                .and_then(|end| origin_end(end, &row.host, &origin, named).err()),
        );
    }
    wrong.extend(check::at_origin(
        &row.at_origin,
        &origin.connections(),
        &origin.names,
    ));
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

fn act(
    step: &Step,
    client: &mut RowClient,
    origin: &Origin,
    wrong: &mut Vec<String>,
) -> Result<(), String> {
    match step {
        Step::Send(text) => client.send(text.bytes(&origin.names)),
        Step::Pause => thread::sleep(PAUSE),
        Step::HalfClose => client.half_close(),
        Step::AwaitOrigin => {
            let has_head =
                |c: &super::origin::Connection| c.bytes.windows(4).any(|w| w == b"\r\n\r\n");
            if !origin.wait(SETTLE, |log| log.iter().any(has_head)) {
                return Err("the origin never gets a request".into());
            }
        }
        Step::Sees(text) => client.sees(&text.bytes(&origin.names))?,
        Step::Leave => client.leave(),
        Step::Get(expected) => {
            let got = client.answer(expected.bodyless)?;
            wrong.extend(check::answer(expected, &got, &origin.names));
        }
        Step::GetEnd => {
            client.end()?;
        }
    }
    Ok(())
}

fn client_end(expected: ClientEnd, client: &mut RowClient) -> Option<String> {
    let told = |why: String| format!("the client's connection, expected to be {expected:?}: {why}");
    match expected {
        ClientEnd::Left => None,
        ClientEnd::Kept => kept(client).err().map(told),
        ClientEnd::Closed => client.end().err().map(told),
        ClientEnd::Reset => match client.end() {
            Ok(End::Reset) => None,
            Ok(End::Closed) => Some(told("it is closed in order".into())),
            Err(why) => Some(told(why)),
        },
    }
}

/// A reused connection answers one more request: one that the policy refuses, so that no origin is contacted.
fn kept(client: &mut RowClient) -> Result<(), String> {
    client.send(b"GET http://probe.test/ HTTP/1.1\r\nHost: probe.test\r\n\r\n".to_vec());
    let got = client.answer(false)?;
    let rule = Text::read("probe")?;
    let expected = RowAnswer {
        status: 451,
        maker: Maker::Refusal("rule".into()),
        bodyless: false,
        has: vec![("Crawl-Rule".into(), rule)],
        lacks: Vec::new(),
        body: None,
        cut: false,
    };
    let names = super::text::Names {
        port: 0,
        admin: 0,
        via: String::new(),
    };
    let wrong = check::answer(&expected, &got, &names);
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}

fn origin_end(
    expected: OriginEnd,
    host: &str,
    origin: &Origin,
    named: &Named,
) -> Result<(), String> {
    if expected == OriginEnd::Closed {
        let ended = origin.wait(SETTLE, |log| log.iter().all(|c| c.ended));
        return if ended {
            Ok(())
        } else {
            Err("the origin's connection stays open".into())
        };
    }
    let before = origin.connections().len();
    origin.end_script();
    thread::sleep(PAUSE);
    let mut client = RowClient::connect(named.proxy);
    client.send(again(host, origin));
    let got = client
        .answer(false)
        .map_err(|why| format!("one more request to the origin: {why}"))?;
    if got.message.body != b"again" {
        return Err(format!(
            "one more request got an answer that is not its own: {:?}",
            got.message
        ));
    }
    let fresh = origin.connections().len() > before;
    match (expected, fresh) {
        (OriginEnd::Reused, true) => Err("the origin's connection is not used again".into()),
        (OriginEnd::Fresh, false) => Err("the origin's connection is used again".into()),
        _ => Ok(()),
    }
}

fn again(host: &str, origin: &Origin) -> Vec<u8> {
    let port = origin.names.port;
    format!("GET http://{host}:{port}/again HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n").into_bytes()
}
