//! The binary files of projects, made of their form in XML, and files that are not those of a project.

#[path = "../../../../tests/it/fuzz/nbt.rs"]
mod nbt;

use std::fs;
use std::io::Write;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use roxmltree::{Document, Node};

use super::seeds::root;

/// The ways in which a binary file is packed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Packing {
    None,
    Gzip,
    Zlib,
    Deflate,
}

const KINDS: [&str; 12] = [
    "End",
    "Byte",
    "Short",
    "Int",
    "Long",
    "Float",
    "Double",
    "ByteArray",
    "String",
    "List",
    "Compound",
    "IntArray",
];

/// Writes the binary form of a project.
pub(super) fn to_binary(xml: &str, packing: Packing) -> Vec<u8> {
    let document = Document::parse(xml).unwrap();
    let mut bytes = Vec::new();
    write_named(document.root_element(), &mut bytes);
    pack(&bytes, packing)
}

pub(super) fn pack(bytes: &[u8], packing: Packing) -> Vec<u8> {
    let level = Compression::best();
    match packing {
        Packing::None => bytes.to_vec(),
        Packing::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), level);
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        Packing::Zlib => {
            let mut encoder = ZlibEncoder::new(Vec::new(), level);
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        Packing::Deflate => {
            let mut encoder = DeflateEncoder::new(Vec::new(), level);
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
    }
}

fn kind(name: &str) -> u8 {
    let number = KINDS.iter().position(|kind| *kind == name).unwrap();
    u8::try_from(number).unwrap()
}

fn write_text(text: &str, bytes: &mut Vec<u8>) {
    let length = u16::try_from(text.len()).unwrap();
    bytes.extend(length.to_be_bytes());
    bytes.extend(text.as_bytes());
}

fn write_named(element: Node<'_, '_>, bytes: &mut Vec<u8>) {
    let name = element.attribute("type").unwrap();
    bytes.push(kind(name));
    let own_name = element.attribute("name");
    write_text(own_name.unwrap_or(element.tag_name().name()), bytes);
    write_value(element, name, bytes);
}

fn write_value(element: Node<'_, '_>, name: &str, bytes: &mut Vec<u8>) {
    let text: String = element.children().filter_map(|it| it.text()).collect();
    let items: Vec<Node<'_, '_>> = element.children().filter(Node::is_element).collect();
    match name {
        "Byte" => bytes.push(text.parse().unwrap()),
        "Short" => bytes.extend(text.parse::<i16>().unwrap().to_be_bytes()),
        "Int" => bytes.extend(text.parse::<i32>().unwrap().to_be_bytes()),
        "Long" => bytes.extend(text.parse::<i64>().unwrap().to_be_bytes()),
        "Float" => bytes.extend(text.parse::<f32>().unwrap().to_be_bytes()),
        "Double" => bytes.extend(text.parse::<f64>().unwrap().to_be_bytes()),
        "String" => write_text(&text, bytes),
        "List" => {
            let limit = element.attribute("limitType").unwrap();
            bytes.push(kind(limit));
            bytes.extend(u32::try_from(items.len()).unwrap().to_be_bytes());
            for item in items {
                write_value(item, limit, bytes);
            }
        }
        "Compound" => {
            for item in items {
                write_named(item, bytes);
            }
            bytes.push(0);
        }
        "IntArray" => {
            let numbers: Vec<i32> = text
                .split_whitespace()
                .map(|it| it.parse().unwrap())
                .collect();
            bytes.extend(u32::try_from(numbers.len()).unwrap().to_be_bytes());
            bytes.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
        }
        "ByteArray" => {
            let numbers: Vec<u8> = text
                .split_whitespace()
                .map(|it| it.parse().unwrap())
                .collect();
            bytes.extend(u32::try_from(numbers.len()).unwrap().to_be_bytes());
            bytes.extend(numbers);
        }
        other => panic!("{other}"),
    }
}

/// `UPDATE_EXPECT=1` writes the binary files; the packed one is compared after unpacking, as packers differ.
#[test]
fn the_binary_sources_are_those_of_their_form_in_xml() {
    for (name, packing) in [("worked-example", Packing::Gzip), ("flags", Packing::None)] {
        let directory = root().join("tests/import/webcopy").join(name);
        let xml = fs::read_to_string(directory.join("project.xml")).unwrap();
        let file = directory.join("project.cwp");
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            fs::write(&file, to_binary(&xml, packing)).unwrap();
        }
        let bytes = fs::read(&file).unwrap();
        let unpacked = match packing {
            Packing::Gzip => {
                let mut unpacked = Vec::new();
                let mut decoder = flate2::read::GzDecoder::new(bytes.as_slice());
                std::io::Read::read_to_end(&mut decoder, &mut unpacked).unwrap();
                unpacked
            }
            Packing::None | Packing::Zlib | Packing::Deflate => bytes,
        };
        assert_eq!(unpacked, to_binary(&xml, Packing::None), "{name}");
    }
}

/// The fuzz target, on changed files of its corpus; `CRAWLGATE_FUZZ_FILES` sets their number.
#[test]
fn changed_files_are_read_or_refused() {
    let files = fs::read_dir(root().join("fuzz/corpus/nbt")).unwrap();
    let corpus = files.map(|file| fs::read(file.unwrap().path()).unwrap());
    let mut corpus: Vec<Vec<u8>> = corpus.collect();
    corpus.sort();
    let count = std::env::var("CRAWLGATE_FUZZ_FILES").ok();
    let count: u64 = count.map_or(2_000, |it| it.parse().unwrap());
    let mut random = fastrand::Rng::with_seed(9);
    for number in 0..count {
        let mut input = random.choice(&corpus).unwrap().clone();
        for _ in 0..random.usize(1..5) {
            change(&mut input, &mut random);
        }
        nbt::run(&input);
        let packing = [Packing::Gzip, Packing::Zlib, Packing::Deflate];
        if number.is_multiple_of(16) {
            nbt::run(&pack(&input, *random.choice(packing.iter()).unwrap()));
        }
    }
}

fn change(input: &mut Vec<u8>, random: &mut fastrand::Rng) {
    let at = random.usize(0..=input.len());
    let to = random.usize(at..=input.len().min(at + 24));
    match random.u32(0..5) {
        0 => drop(input.splice(at..to, [])),
        1 => {
            let again = input[at..to].to_vec();
            input.splice(at..at, again);
        }
        2 => input.insert(at, random.u8(..13)),
        3 => drop(input.splice(at..to, u32::to_be_bytes(random.u32(..)))),
        _ => {
            if let Some(byte) = input.get_mut(at) {
                *byte = random.u8(..);
            }
        }
    }
}
