//! Hostile files: they take little time and at most a few times the size limit of memory. The times of a release build
//! are in benches/robots.rs; here the limit is loose, so that only a blow-up fails.

use std::time::{Duration, Instant};

use crawlgate::robots::{MAX_FILE_BYTES, RobotsAccess, RobotsFile};

fn check(name: &str, body: &str, path: &str, access: RobotsAccess) {
    let start = Instant::now();
    let parsed = RobotsFile::parse(body.as_bytes());
    let ruling = parsed.decide("x", path);
    assert!(parsed.usage_rules("x", path).len() <= 64, "{name}");
    let took = start.elapsed();
    assert_eq!(ruling.access, access, "{name}");
    assert!(took < Duration::from_secs(2), "{name}: {took:?}");
    let bytes = parsed.memory_size();
    assert!(bytes < 12 * MAX_FILE_BYTES, "{name}: {bytes} bytes");
}

#[test]
fn the_work_of_a_decision_is_known_before() {
    let work = |line: &str, url_length| {
        let file = format!("User-agent: *\n{}", line.repeat(10_000));
        RobotsFile::parse(file.as_bytes()).decision_work(url_length)
    };
    assert_eq!(work("Disallow: /folder/\n", 8_000), 0);
    assert!(work("Disallow: /*a\n", 100) > 1_000_000);
    assert!(work("Disallow: /*a\n", 8_000) > 50_000_000);
    assert!(work("Disallow: /*a*b*c\n", 100) > work("Disallow: /*a\n", 100));
    let ordinary = "User-agent: *\nDisallow: /*?sort=\nDisallow: /*.php$\nDisallow: /search\n";
    assert!(RobotsFile::parse(ordinary.as_bytes()).decision_work(100) < 1_000);
}

#[test]
fn hostile_files() {
    let head = "User-agent: *\n";
    fn lines(head: &str, count: usize, line: &dyn Fn(usize) -> String) -> String {
        std::iter::once(head.to_owned())
            .chain((0..count).map(line))
            .collect()
    }
    let long = format!("/{}", "a".repeat(8000));
    let stars = format!("{head}Disallow: /{}b\n", "*a".repeat(5000));
    check("5,000 stars", &stars, &long, RobotsAccess::Allow);
    check(
        "a run of stars",
        &format!("{head}Disallow: /{}b\n", "*".repeat(5000)),
        &long,
        RobotsAccess::Allow,
    );
    let wild = lines(head, 10_000, &|n| format!("Disallow: /*a{n}*b$\n"));
    check("10,000 wildcard rules", &wild, &long, RobotsAccess::Allow);
    check(
        "10 MB",
        &lines(head, 400_000, &|n| format!("Disallow: /folder/{n}/x\n")),
        "/folder/7/x",
        RobotsAccess::Disallow,
    );
    check(
        "short rules",
        &lines(head, 70_000, &|_| "allow:/\n".into()),
        "/a",
        RobotsAccess::Allow,
    );
    let nested = lines(head, 1000, &|n| format!("Disallow: /{}\n", "a".repeat(n)));
    check("nested beginnings", &nested, &long, RobotsAccess::Disallow);
    let agents = "user-agent:*\ndisallow:/a*b$\n".repeat(20_000);
    check("20,000 groups", &agents, &long, RobotsAccess::Allow);
    let list = format!("{}disallow:/a*b$\n", "user-agent:*\n".repeat(40_000));
    check(
        "40,000 user agents of one group",
        &list,
        &long,
        RobotsAccess::Allow,
    );
    let uses = lines(head, 10_000, &|n| {
        format!("Content-Usage: /*a{n}*b$ use-{n}=n, train-ai=n\n")
    });
    check(
        "10,000 statements on uses",
        &uses,
        &long,
        RobotsAccess::Allow,
    );
    let signals = lines(head, 10_000, &|_| {
        format!("Content-Signal: {}\n", "a=n,".repeat(8))
    });
    check("10,000 signals", &signals, &long, RobotsAccess::Allow);
    check(
        "10,000 hosts",
        &lines(head, 10_000, &|_| "host:\n".into()),
        &long,
        RobotsAccess::Allow,
    );
    check(
        "one line",
        &"a".repeat(10_000_000),
        "/",
        RobotsAccess::Allow,
    );
    check(
        "empty lines",
        &"\n".repeat(10_000_000),
        "/",
        RobotsAccess::Allow,
    );
}
