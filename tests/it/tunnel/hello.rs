//! ClientHellos made by hand, right and wrong.

/// The body of a ClientHello with these extensions.
pub(super) fn body(extensions: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(32);
    body.extend([9; 32]);
    body.extend([0, 4, 0x13, 0x01, 0x13, 0x02]);
    body.extend([1, 0]);
    let all: Vec<u8> = extensions
        .iter()
        .flat_map(|(kind, data)| [&kind.to_be_bytes()[..], &long(data)].concat())
        .collect();
    body.extend(long(&all));
    body
}

/// Bytes after their length in two bytes.
pub(super) fn long(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u16).to_be_bytes()[..], bytes].concat()
}

/// The extension `server_name` with one host.
pub(super) fn server_name(name: &str) -> (u16, Vec<u8>) {
    (0, long(&[&[0][..], &long(name.as_bytes())].concat()))
}

/// The extension of Encrypted Client Hello, with some content.
pub(super) fn ech() -> (u16, Vec<u8>) {
    (0xfe0d, vec![0; 40])
}

/// A handshake message.
pub(super) fn message(body: &[u8]) -> Vec<u8> {
    let length = body.len() as u32;
    [&[1][..], &length.to_be_bytes()[1..], body].concat()
}

/// A message in records with this number of its bytes each.
pub(super) fn records(message: &[u8], fragment: usize) -> Vec<u8> {
    message
        .chunks(fragment)
        .flat_map(|part| [&[22, 3, 1][..], &long(part)].concat())
        .collect()
}

/// A usual ClientHello.
pub(crate) fn hello(name: Option<&str>) -> Vec<u8> {
    let extensions: Vec<_> = [(0x2b, vec![2, 3, 4])]
        .into_iter()
        .chain(name.map(server_name))
        .chain([(0x0a, vec![0, 2, 0, 29])])
        .collect();
    records(&message(&body(&extensions)), 16_384)
}
