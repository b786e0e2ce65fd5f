//! The binary files of projects, made of their form in XML, and files that are not those of a project.

#[path = "../../../../tests/it/fuzz/nbt.rs"]
mod nbt;

use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use crawlgate_import::{ImportError, ImportInput, System};
use crawlgate_policy::MemoryFileSystem;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};
use roxmltree::{Document, Node};

use super::seeds::{import_fixture, root};
use super::webcopy::{dump, source, try_import};

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

#[test]
fn each_form_of_a_file_is_read_and_recognized() {
    let xml = source("flags");
    let variables = [("crawlMode.0", "site")];
    let expected = try_import(&to_binary(&xml, Packing::None), &variables).unwrap();
    let utf_16: Vec<u8> = [0xff, 0xfe]
        .into_iter()
        .chain(
            xml.replace("utf-8", "utf-16")
                .encode_utf16()
                .flat_map(u16::to_le_bytes),
        )
        .collect();
    let with_mark = format!("\u{feff}{xml}");
    for bytes in [
        to_binary(&xml, Packing::Gzip),
        to_binary(&xml, Packing::Zlib),
        to_binary(&xml, Packing::Deflate),
        xml.clone().into_bytes(),
        with_mark.into_bytes(),
        utf_16,
    ] {
        let imported = try_import(&bytes, &variables).unwrap();
        assert_eq!(imported.files, expected.files);
    }
    for (name, bytes) in [
        ("gzip", to_binary(&xml, Packing::Gzip)),
        ("zlib", to_binary(&xml, Packing::Zlib)),
        ("deflate", to_binary(&xml, Packing::Deflate)),
        ("raw", to_binary(&xml, Packing::None)),
        ("xml", xml.into_bytes()),
    ] {
        let files = MemoryFileSystem::new().with_file("p", bytes);
        let input = ImportInput::new(&files, ["p"]);
        assert_eq!(
            System::recognize(&input).unwrap(),
            [System::WebCopy],
            "{name}"
        );
    }
}

#[test]
fn the_place_of_a_part_is_its_line_in_the_dump() {
    let directory = root().join("tests/import/webcopy/flags");
    let bytes = fs::read(directory.join("project.cwp")).unwrap();
    let dump = dump(&bytes).unwrap();
    let lines: Vec<&str> = dump.lines().collect();
    let imported = import_fixture(System::WebCopy, "flags");
    let parts = imported
        .report
        .parts()
        .iter()
        .filter(|part| !part.text.starts_with("link "));
    for part in parts {
        let line = lines[part.place.line as usize - 1];
        assert_eq!(line.trim_start(), part.text);
        assert_eq!(
            line.len() - line.trim_start().len() + 1,
            part.place.column as usize
        );
    }
    assert!(
        dump.contains("    String = \"images.example.org\"\n"),
        "{dump}"
    );
}

/// The bytes of a compound with one tag of a type, whose payload follows.
fn with_tag(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![10, 0, 1, b'r', kind, 0, 1, b'x'];
    bytes.extend(payload);
    bytes
}

/// Imports a file, which ends with an error at a place.
#[expect(
    clippy::disallowed_methods,
    reason = "the time of an import is measured"
)]
fn check_hostile(name: &str, bytes: &[u8], message: &str) {
    let begin = Instant::now();
    let error = try_import(bytes, &[]).err();
    let error = error.unwrap_or_else(|| panic!("{name}"));
    let time = begin.elapsed();
    assert!(time < Duration::from_secs(5), "{name}: {time:?}");
    assert!(
        matches!(error, ImportError::Invalid { .. }),
        "{name}: {error}"
    );
    let error: String = error.to_string().chars().take(300).collect();
    assert!(error.contains(message), "{name}: {error}");
}

#[test]
fn hostile_binary_files_end_with_an_error() {
    let deep: Vec<u8> = [10, 0, 0].repeat(100_000);
    let deep_lists = with_tag(9, &[9, 0, 0, 0, 1].repeat(100_000));
    let zeros = vec![0; 40 << 20];
    let bomb = pack(&zeros, Packing::Gzip);
    let mut many = with_tag(9, &[8, 0, 0x60, 0, 0]);
    many.extend(vec![0; 14 << 20]);
    let few = [with_tag(9, &[8, 0, 1, 0, 0]), vec![0; 2 << 16], vec![0]].concat();
    for (name, bytes, message) in [
        (
            "4 GiB of strings",
            with_tag(9, &[8, 0xff, 0xff, 0xff, 0xff]),
            "-1 items",
        ),
        (
            "2 GiB of longs",
            with_tag(9, &[4, 0x7f, 0xff, 0xff, 0xff]),
            "are announced",
        ),
        (
            "a negative array",
            with_tag(7, &[0x80, 0, 0, 0]),
            "-2147483648 items",
        ),
        (
            "2 GiB of bytes",
            with_tag(7, &[0x7f, 0xff, 0xff, 0xff]),
            "are announced",
        ),
        (
            "2 GiB of numbers",
            with_tag(11, &[0x7f, 0xff, 0xff, 0xff]),
            "are announced",
        ),
        (
            "a long string",
            with_tag(8, &[0xff, 0xff, b'a']),
            "are announced",
        ),
        (
            "ends in a list",
            with_tag(9, &[0, 0, 0, 0, 9]),
            "are announced",
        ),
        (
            "an unknown type",
            with_tag(12, &[0, 0, 0, 0]),
            "unknown type 12",
        ),
        (
            "an unknown type in a list",
            with_tag(9, &[13, 0, 0, 0, 1]),
            "unknown type 13",
        ),
        (
            "the same tag twice",
            with_tag(1, &[0, 1, 0, 1, b'x', 0, 0]),
            "`x` twice",
        ),
        (
            "no end",
            with_tag(1, &[0]),
            "1 bytes are announced, 0 are left",
        ),
        (
            "bytes after the end",
            with_tag(1, &[0, 0, 7]),
            "1 bytes after the end",
        ),
        (
            "a first tag that is a string",
            vec![31, 139, 8],
            "cannot be unpacked",
        ),
        ("deep compounds", deep, "200 deep"),
        ("deep lists", deep_lists, "200 deep"),
        ("a bomb", bomb, "larger than 16 MiB"),
        ("many parts", few, "50000 tags outside"),
        ("many tags", many, "250000 tags"),
        ("nothing", Vec::new(), "neither NBT"),
        ("something else", b"GIF89a".to_vec(), "neither NBT"),
        (
            "no project",
            vec![10, 0, 1, b'r', 0],
            "not a project of WebCopy",
        ),
    ] {
        check_hostile(name, &bytes, message);
    }
}

#[test]
fn hostile_documents_end_with_an_error() {
    let entities = "<!DOCTYPE a [<!ENTITY b \"c\">]><a type=\"Compound\">&b;</a>";
    let nested = "<a type=\"Compound\">".repeat(100_000);
    let twice = "<b type=\"Int\">1</b>".repeat(2);
    let twice = format!("<a type=\"Compound\">{twice}</a>");
    for (name, text, message) in [
        ("entities", entities, "not well-formed XML"),
        ("deep elements", &nested, "200 deep"),
        ("the same element twice", &twice, "`b` twice"),
        ("no type", "<a><b/></a>", "no attribute `type`"),
        (
            "a type that is none",
            "<a type=\"Thing\"/>",
            "unknown type `Thing`",
        ),
        (
            "a number that is none",
            "<a type=\"Compound\"><b type=\"Int\">x</b></a>",
            "not a number",
        ),
        (
            "a list without type",
            "<a type=\"Compound\"><b type=\"List\"/></a>",
            "limitType",
        ),
        (
            "a list as the first tag",
            "<a type=\"List\" limitType=\"Int\"/>",
            "not a compound",
        ),
    ] {
        check_hostile(name, text.as_bytes(), message);
    }
}

#[test]
fn text_that_is_no_utf_8_is_read() {
    let bytes = [with_tag(8, &[0, 2, 0xff, b'a']), vec![0]].concat();
    assert!(dump(&bytes).unwrap().contains("\u{fffd}a"));
}
