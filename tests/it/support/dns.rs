//! A DNS server on loopback, by UDP, whose answers a test scripts.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::thread;

/// The answer to a query.
#[derive(Clone, Debug)]
pub(crate) enum DnsAnswer {
    Addresses(Vec<Ipv4Addr>),
    /// A CNAME record, and the address of the canonical name.
    Alias(&'static str, Ipv4Addr),
    /// No records and this RCODE.
    Code(u8),
    /// No answer at all.
    Silence,
}

/// The server; it runs until the test process ends.
pub(crate) struct DnsServer {
    pub(crate) address: SocketAddr,
    queries: Arc<Mutex<Vec<String>>>,
}

const NAME_TYPE_A: [u8; 2] = [0, 1];
const CLASS_IN: [u8; 2] = [0, 1];

impl DnsServer {
    /// Answers by a function of the name and of the number of earlier queries for its IPv4 addresses.
    pub(crate) fn start(script: impl Fn(&str, usize) -> DnsAnswer + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let server = Self {
            address: socket.local_addr().unwrap(),
            queries: Arc::default(),
        };
        let queries = Arc::clone(&server.queries);
        thread::spawn(move || {
            let mut packet = [0; 1500];
            while let Ok((length, from)) = socket.recv_from(&mut packet) {
                if let Some(answer) = answer(&packet[..length], &script, &queries) {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
        server
    }

    /// The number of queries for a name's IPv4 addresses.
    pub(crate) fn queries(&self, name: &str) -> usize {
        let queries = self.queries.lock().unwrap();
        queries.iter().filter(|query| *query == name).count()
    }
}

/// RFC 1035 section 4: the response repeats the question, followed by the records.
fn answer(
    packet: &[u8],
    script: &impl Fn(&str, usize) -> DnsAnswer,
    queries: &Mutex<Vec<String>>,
) -> Option<Vec<u8>> {
    let (labels, end) = labels(packet, 12);
    let name = labels.join(".").to_ascii_lowercase();
    let is_a = packet[end..end + 2] == NAME_TYPE_A;
    let mut queries = queries.lock().unwrap();
    let scripted = script(
        &name,
        queries.iter().filter(|query| **query == name).count(),
    );
    if is_a {
        queries.push(name);
    }
    let (code, records) = match scripted {
        DnsAnswer::Silence => return None,
        DnsAnswer::Code(code) => (code, vec![]),
        _ if !is_a => (0, vec![]),
        DnsAnswer::Addresses(all) => (
            0,
            all.iter()
                .map(|a| record(&[0xc0, 12], 1, &a.octets()))
                .collect(),
        ),
        DnsAnswer::Alias(name, address) => {
            let canonical = encode_name(name);
            (
                0,
                vec![
                    record(&[0xc0, 12], 5, &canonical),
                    record(&canonical, 1, &address.octets()),
                ],
            )
        }
    };
    let mut answer = packet[..2].to_vec();
    answer.extend([
        0x81,
        0x80 | code,
        0,
        1,
        0,
        u8::try_from(records.len()).unwrap(),
        0,
        0,
        0,
        0,
    ]);
    answer.extend(&packet[12..end + 4]);
    answer.extend(records.concat());
    Some(answer)
}

fn labels(packet: &[u8], mut at: usize) -> (Vec<String>, usize) {
    let mut labels = vec![];
    while packet[at] != 0 {
        let next = at + 1 + usize::from(packet[at]);
        labels.push(String::from_utf8_lossy(&packet[at + 1..next]).into_owned());
        at = next;
    }
    (labels, at + 1)
}

fn encode_name(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in name.split('.').chain([""]) {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend_from_slice(label.as_bytes());
    }
    bytes
}

/// A record with a TTL of 0.
fn record(name: &[u8], kind: u8, data: &[u8]) -> Vec<u8> {
    let length = u8::try_from(data.len()).unwrap();
    [name, &[0, kind], &CLASS_IN, &[0; 4], &[0, length], data].concat()
}
