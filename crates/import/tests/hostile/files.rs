//! The hostile sources.

use std::io::Write as _;

use crawlgate_import::System;
use flate2::Compression;
use flate2::write::GzEncoder;

/// A source that is made to do harm. Its first file is the one whose name begins with `source`.
pub(super) struct HostileSource {
    pub name: &'static str,
    pub system: System,
    pub files: fn() -> Vec<(&'static str, Vec<u8>)>,
    /// A part of the error, or of what the report says about the part that is not converted.
    pub message: &'static str,
}

macro_rules! hostile {
    ($($name:literal $system:ident $message:literal [$($file:literal: $text:expr),+])+) => {
        pub(super) const HOSTILE: &[HostileSource] = &[$(HostileSource {
            name: $name,
            system: System::$system,
            files: || vec![$(($file, Vec::<u8>::from($text))),+],
            message: $message,
        }),+];
    };
}

const BOMB: &str = "<!DOCTYPE a [<!ENTITY a \"aaaaaaaaaa\">
<!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;\"><!ENTITY c \"&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;\">
<!ENTITY d \"&c;&c;&c;&c;&c;&c;&c;&c;&c;&c;\"><!ENTITY e \"&d;&d;&d;&d;&d;&d;&d;&d;&d;&d;\">]>";

hostile! {
    "an entity bomb" Velocity "DTD"
        ["source.xml": format!("{BOMB}<crawler>&e;</crawler>")]
    "an entity bomb in a template" Norconex "DTD"
        ["source.xml": format!("{BOMB}<httpcollector id=\"a\"><crawlers>&e;</crawlers></httpcollector>")]
    "an entity that is a file" Heritrix "DTD"
        ["source.cxml": "<!DOCTYPE beans [<!ENTITY x SYSTEM \"file:///etc/passwd\">]><beans>&x;</beans>"]
    "a DTD that is elsewhere" Nutch "DTD"
        ["source-site.xml": "<!DOCTYPE configuration SYSTEM \"http://a.example/x.dtd\"><configuration/>"]
    "elements that are nested deeply" Exalead "nested more than 200 deep"
        ["source.xml": format!("<CrawlConfig>{}", "<And>".repeat(100_000))]
    "elements that are nested deeply in a template" Norconex "nested more than 200 deep"
        ["source.xml": format!("<httpcollector id=\"a\">{}{}</httpcollector>", "<a>".repeat(1_000), "</a>".repeat(1_000))]
    "a large document" Heritrix "larger than 16 MiB"
        ["source.cxml": format!("<beans>{}</beans>", " ".repeat(17 << 20))]
    "millions of elements" Nutch "more than"
        ["source-site.xml": format!("<configuration>{}</configuration>", "<a/>".repeat(3_000_000))]
    "an element with many attributes" Exalead "more than"
        ["source.xml": attributes(200_000)]
    "an XInclude" Nutch "include"
        ["source-site.xml": "<configuration xmlns:xi=\"http://www.w3.org/2001/XInclude\"><xi:include href=\"/etc/passwd\" parse=\"text\"/></configuration>"]
    "templates that include each other" Norconex "nested more than 20 deep"
        ["source.xml": "<httpcollector id=\"a\">#parse(\"b.xml\")</httpcollector>", "b.xml": "#parse(\"source.xml\") #parse(\"source.xml\")"]
    "a template outside of the directory" Norconex "/etc/passwd"
        ["source.xml": "<httpcollector id=\"a\">#parse(\"/etc/passwd\")<crawlers/></httpcollector>"]
    "variables that double" Norconex ""
        ["source.xml": format!("#set($a = \"{}\")\n{}<httpcollector id=\"$a\"><crawlers/></httpcollector>", "a".repeat(1_000), "#set($a = \"$a$a\")\n".repeat(40))]
    "files that include each other" Squid "include"
        ["source.conf": "include b.conf\nhttp_access deny all\n", "b.conf": "include source.conf\ninclude source.conf\n"]
    "values outside of the directory" Squid "/etc/passwd"
        ["source.conf": "acl bad dstdomain \"/etc/passwd\"\nhttp_access deny bad\n"]
    "a robots.txt of 60 MB" Robots "larger than 512 KiB"
        ["source.txt": "Disallow: /a\n".repeat(60_000_000 / 13)]
    "patterns of stars" Robots ""
        ["source.txt": format!("User-agent: *\n{}", format!("Disallow: /{}$\n", "*a".repeat(1_000)).repeat(200))]
    "bytes that are no UTF-8" Nutch ""
        ["source-regex-urlfilter.txt": b"-\xff\xfe\x80[\xc3\n+\xf0\x9f\n-(\xed\xa0\x80\n".to_vec()]
    "half of a UTF-16 unit" Wget "not valid UTF-16"
        ["source.sh": b"\xff\xfew\0g".to_vec()]
    "a gzip bomb" Velocity "not a text file"
        ["source.xml": gzip(200 << 20)]
    "aliases of aliases" Brozzler ""
        ["source.yaml": aliases(30)]
    "YAML that is nested deeply" Brozzler ""
        ["source.yaml": "[".repeat(100_000)]
    "YAML that is nested deeply, for another reader" Norconex ""
        ["source.yaml": format!("crawlers:\n  - id: {}", "{a: ".repeat(100_000))]
    "JSON that is nested deeply" StormCrawler ""
        ["source.json": "[".repeat(100_000)]
    "a pickle that is called settings" Scrapy "not a text file"
        ["source.py": b"\x80\x04\x95\x1d\0\0\0\0\0\0\0\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x02id\x94\x85\x94R\x94.".to_vec()]
    "Python that is nested deeply" Scrapy ""
        ["source.py": format!("ROBOTSTXT_OBEY = {}", "(".repeat(100_000))]
    "a list of more than 64 MiB" Lists "larger than 64 MiB"
        ["source.txt": "a.example\n".repeat(7_000_000)]
    "millions of lines" Nutch "more than"
        ["source-regex-urlfilter.txt": "-a\n".repeat(4_000_000)]
    "thousands of expressions" Nutch ""
        ["source-regex-urlfilter.txt": numbered(5_000)]
    "a thousand expressions of classes" Nutch ""
        ["source-regex-urlfilter.txt": classes(1_000)]
    "expressions that take long" Nutch ""
        ["source-regex-urlfilter.txt": "-((a{900}){900}){900}\n-(a+)+(b+)+$\n-(x*)*(?!(a|b)*)\\1{50}\n-(a?){1000}a{1000}\n"]
    "beans that contain each other" Heritrix ""
        ["source.cxml": "<beans><bean id=\"scope\" class=\"org.archive.modules.deciderules.DecideRuleSequence\"><property name=\"rules\"><list><ref bean=\"scope\"/><ref bean=\"b\"/></list></property></bean><bean id=\"b\" class=\"org.archive.modules.deciderules.DecideRuleSequence\"><property name=\"rules\"><list><ref bean=\"scope\"/></list></property></bean></beans>"]
    "seeds outside of the directory" Wget "/etc/passwd"
        ["source.sh": "wget -r -i /etc/passwd http://a.example/\n"]
    "a line of millions of words" Wget "more than"
        ["source.sh": format!("wget {}", "-r ".repeat(3_000_000))]
    "rules of crawlers without end" Omnifind ""
        ["source.rules": "forbid prefix http://*a*a*a*a*a*a*a*a*a*a*a*a*a*b*\n".repeat(300)]
}

fn attributes(count: usize) -> String {
    let attributes: String = (0..count).map(|at| format!(" a{at}=\"\"")).collect();
    format!("<CrawlConfig{attributes}/>")
}

fn numbered(count: usize) -> String {
    let lines: String = (0..count)
        .map(|at| format!("-/page{at}[a-z]*/\n"))
        .collect();
    lines + "+.\n"
}

fn classes(count: usize) -> String {
    let lines: String = (0..count)
        .map(|at| {
            format!(
                "-/[a-m]{{{}}}[0-9]+[n-z]{{{}}}/\n",
                1 + at / 40,
                1 + at % 40
            )
        })
        .collect();
    lines + "+.\n"
}

fn aliases(depth: usize) -> String {
    let mut text = "a0: &a0 [x, x]\n".to_owned();
    for at in 1..depth {
        let before = at - 1;
        text.push_str(&format!(
            "a{at}: &a{at} [*a{before}, *a{before}, *a{before}]\n"
        ));
    }
    text + &format!("seeds: *a{}\n", depth - 1)
}

fn gzip(size: usize) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![0; 1 << 20];
    for _ in 0..size >> 20 {
        encoder.write_all(&zeros).unwrap();
    }
    encoder.finish().unwrap()
}
