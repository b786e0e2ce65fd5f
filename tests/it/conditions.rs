//! Tables of all fields, kinds, shortcuts and modifiers of conditions, from their text to the verdict.

use crawlgate::policy::cases::CaseFacts;
use serde_json::{Value as Json, json};

use crate::support::policy::compile_policy;

const LISTS: &str = "
lists:
  doms: { kind: domains, items: [foo.com, Bar.org.] }
  hosts: { kind: hosts, items: [foo.com, '[::1]'] }
  urls: { kind: urls, items: ['http://H', 'http://h/a b'] }
  starts: { kind: url_prefixes, items: ['http://h/a/', 'http://H.com/é'] }
  surts: { kind: surts, items: ['com,example,', 'http://(org,foo,)/x'] }
  nets: { kind: addresses, items: [10.0.0.0/8, 2001:db8::/32] }
  words: { kind: values, items: [POST, 8080, Text/HTML, x] }
";

/// Returns `true` if the condition holds for the facts.
fn holds(condition: &str, facts: Json) -> bool {
    let text = format!(
        "policy: 1\nname: t\noptions: {{ disposition: allow }}\n{LISTS}\nrules:\n  - {{ id: x, forbid: {condition} }}\n"
    );
    let compiled = compile_policy(text);
    let facts = CaseFacts::from_json(facts.as_object().unwrap()).unwrap();
    facts.with_facts(|facts| compiled.policy.decide(facts).1.rejects())
}

fn check(rows: &[(&str, &str, bool)]) {
    let mut wrong = vec![];
    for (condition, url, expected) in rows {
        if holds(condition, json!({ "url": url })) != *expected {
            wrong.push(format!("{condition} on {url}: not {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const PRODUCTS: &str = "http://www.example.com/folder/products?sort=name&order=asc";

#[test]
fn fields_have_their_documented_values() {
    for (field, value) in [
        ("url", PRODUCTS),
        ("scheme", "http"),
        ("host", "www.example.com"),
        ("authority", "www.example.com"),
        ("path", "/folder/products"),
        ("path_and_query", "/folder/products?sort=name&order=asc"),
        ("rel_path", "folder/products"),
        ("rel_path_and_query", "folder/products?sort=name&order=asc"),
        ("query", "sort=name&order=asc"),
        (
            "authority_path_query",
            "www.example.com/folder/products?sort=name&order=asc",
        ),
        ("param.sort", "name"),
        ("method", "GET"),
        ("crawler", "anonymous"),
    ] {
        let exact = format!("{{ {field}: {{ exact: '{value}' }} }}");
        assert!(holds(&exact, json!({ "url": PRODUCTS })), "{exact}");
        let length = format!("{{ {field}: {{ length: {} }} }}", value.len());
        assert!(holds(&length, json!({ "url": PRODUCTS })), "{length}");
        let other = format!(
            "{{ {field}: {{ suffix: '{value}', length: \"[{}:]\" }} }}",
            value.len() + 1
        );
        assert!(!holds(&other, json!({ "url": PRODUCTS })), "{other}");
    }
}

#[test]
fn kinds_of_text() {
    check(&[
        ("{ path: /a }", "http://h/ab", true),
        ("{ path: { exact: /a } }", "http://h/ab", false),
        ("{ path: { exact: [/a, /ab] } }", "http://h/ab", true),
        ("{ path: { suffix: .html } }", "http://h/x.html", true),
        ("{ path: { suffix: .html } }", "http://h/x.htm", false),
        ("{ path: { contains: /b/ } }", "http://h/a/b/c", true),
        ("{ path: { contains: B } }", "http://h/a/b/c", false),
        (
            "{ path: { contains: B, case: ignore } }",
            "http://h/a/b/c",
            true,
        ),
        ("{ path: { regex: '^/a\\d+$' } }", "http://h/a12", true),
        (
            "{ path: { regex: 'A', case: ignore } }",
            "http://h/a12",
            true,
        ),
        ("{ path: { regex: 'A' } }", "http://h/a12", false),
        ("{ path: { glob: '/a*z' } }", "http://h/abc/z", true),
        ("{ path: { glob: '/a*z' } }", "http://h/abc/zz/y", false),
        (
            "{ url: { glob: 'http://*.foo.com/*' } }",
            "http://a.b.foo.com/x?y",
            true,
        ),
        (
            "{ url: { glob: 'http://*.foo.com/*' } }",
            "http://foo.com/",
            false,
        ),
        ("{ path: { glob: '/\\*' } }", "http://h/*", true),
        ("{ path: { glob: '/\\*' } }", "http://h/x", false),
        ("{ path: { prefix: /a, suffix: z } }", "http://h/abz", true),
        ("{ path: { prefix: /a, suffix: z } }", "http://h/ab", false),
        ("{ path_and_query: /a?b }", "http://h/a?bc", true),
        ("{ query: { contains: 'sid=' } }", "http://h/?x&sid=1", true),
        ("{ rel_path: folder/products }", PRODUCTS, true),
        ("{ url: http://h }", "http://h/", true),
        ("{ url: 'HTTP://H:80/x/../a' }", "http://h/a", true),
        ("{ url: { prefix: 'HTTP://H/A' } }", "http://h/Ab", true),
        ("{ url: { prefix: 'http://h/A' } }", "http://h/ab", false),
    ]);
}

#[test]
fn shortcuts() {
    check(&[
        ("{ domain: foo.com }", "http://foo.com/", true),
        ("{ domain: FOO.com. }", "http://a.foo.com/", true),
        ("{ domain: foo.com }", "http://notfoo.com/", false),
        ("{ domain: [foo.com, bar.com] }", "http://bar.com:81/", true),
        ("{ ext: gif }", "http://h/a.GIF?x", true),
        ("{ ext: .tar.gz }", "http://h/a.tar.gz", true),
        ("{ ext: gif }", "http://h/gif", false),
        ("{ ext: [jpg, gif] }", "http://h/a.gif", true),
        ("{ under: /old/ }", "http://h/old", true),
        ("{ under: /old }", "http://h/old/x", true),
        ("{ under: /old }", "http://h/older", false),
        ("{ under: / }", "http://h/x", true),
        ("{ url_prefix: 'http://h/a' }", "http://h/ab", true),
        ("{ in_query: 'sid=' }", "http://h/?a&sid=3", true),
        ("{ in_query: 'sid=' }", "http://h/sid=3", false),
        ("{ site: 'http://foo.com' }", "http://www.foo.com/x", true),
        ("{ site: 'http://foo.com' }", "http://foo.com/x", true),
        ("{ site: 'http://www.foo.com' }", "http://foo.com/x", true),
        ("{ site: 'http://foo.com' }", "https://foo.com/x", false),
        ("{ site: 'http://foo.com' }", "http://foo.com.evil/", false),
        (
            "{ site: 'http://foo.com/p' }",
            "http://www.foo.com/p",
            false,
        ),
        ("{ site: 'http://foo.com/p' }", "http://foo.com/p/q", true),
        ("{ surt: 'com,example,' }", "http://a.example.com/", true),
        (
            "{ surt: 'com,example,)/x' }",
            "https://example.com/xy",
            true,
        ),
        (
            "{ surt: 'com,example,)/x' }",
            "http://a.example.com/xy",
            false,
        ),
        (
            "{ surt: 'http://(com,Example,)/X' }",
            "http://example.com/X",
            true,
        ),
    ]);
}

/// The forms that Heritrix reads: a formal SURT, a host, or a URL up to its last slash, each with or without a `+`.
#[test]
fn surts_in_the_forms_of_heritrix() {
    check(&[
        ("{ surt: '+uk' }", "http://www.example.co.uk/", true),
        ("{ surt: '+uk' }", "http://www.example.ukx/", false),
        ("{ surt: 'uk' }", "http://www.example.uk/", true),
        ("{ surt: '+http://(uk,' }", "https://www.example.uk/", true),
        (
            "{ surt: 'http://www.h.test' }",
            "http://a.www.h.test/",
            true,
        ),
        (
            "{ surt: 'http://www.h.test/' }",
            "http://www.h.test/x",
            true,
        ),
        (
            "{ surt: 'http://www.h.test/' }",
            "http://a.www.h.test/",
            false,
        ),
        (
            "{ surt: '+https://www.H.test/A/' }",
            "http://www.h.test/A/b",
            true,
        ),
        (
            "{ surt: '+https://www.H.test/A/' }",
            "http://www.h.test/b",
            false,
        ),
        ("{ surt: 'h.test/a/b?c' }", "http://h.test/a/x", true),
        ("{ surt: 'h.test:8080/' }", "http://h.test:8080/", true),
        ("{ surt: 'h.test:8080/' }", "http://h.test/", false),
        (
            "{ surt: 'http://(192.0.2.7)/a' }",
            "http://192.0.2.7/ab",
            true,
        ),
        ("{ surt: '192.0.2.7' }", "http://192.0.2.7/", true),
        ("{ surt: 'http://[::1]/' }", "http://[::1]/", true),
        ("{ surt: 'de,bücher,' }", "http://a.xn--bcher-kva.de/", true),
    ]);
}

#[test]
fn boolean_forms() {
    check(&[
        ("{ always: true }", "http://h/", true),
        ("{ host: h, path: /a }", "http://h/b", false),
        ("{ host: h, path: /a }", "http://h/a", true),
        ("{ any: [{ host: x }, { path: /a }] }", "http://h/a", true),
        ("{ all: [{ host: x }, { path: /a }] }", "http://h/a", false),
        ("{ not: { host: [x, y] } }", "http://h/", true),
        ("{ not: { host: [x, h] } }", "http://h/", false),
        (
            "{ not: { any: [{ host: x }, { not: { path: /a } }] } }",
            "http://h/a",
            true,
        ),
    ]);
}

#[test]
fn values_are_canonical_and_escapes_fit_in_either_case() {
    check(&[
        ("{ host: bücher.de }", "http://xn--bcher-kva.de/", true),
        (
            "{ host: { suffix: .BÜCHER.de } }",
            "http://a.xn--bcher-kva.de/",
            true,
        ),
        ("{ host: 0x7f.1 }", "http://127.0.0.1/", true),
        ("{ authority: 'H:8080' }", "http://h:8080/", true),
        ("{ path: '/a b' }", "http://h/a%20bc", true),
        ("{ path: { exact: '/é' } }", "http://h/%C3%A9", true),
        ("{ path: { exact: '/é' } }", "http://h/%c3%a9", true),
        ("{ path: { exact: '/é' } }", "http://h/%c3%A9", true),
        ("{ path: { exact: '/é' } }", "http://h/%c3%A8", false),
        ("{ path: { contains: '<' } }", "http://h/x%3cy", true),
        ("{ path: { suffix: '<' } }", "http://h/x%3C", true),
        ("{ path: { suffix: '<' } }", "http://h/x%3Cy", false),
        ("{ path: { glob: '/<*>' } }", "http://h/%3Cabc%3e", true),
        ("{ path: { regex: '^/[<>]\\>$' } }", "http://h/%3e%3E", true),
        ("{ path: { regex: 'a\\<b' } }", "http://h/a%3cb", true),
        ("{ under: '/é' }", "http://h/%c3%a9/x", true),
        ("{ under: '/é' }", "http://h/%c3%a9x", false),
        ("{ ext: 'é' }", "http://h/a.%c3%a9", true),
        ("{ url: { contains: '{' } }", "http://h/?{", true),
        ("{ url: { contains: '{' } }", "http://h/%7b", true),
        (
            "{ url: { exact: 'http://h/a b?c d' } }",
            "http://h/a%20b?c%20d",
            true,
        ),
        ("{ path: { exact: '/%7e' } }", "http://h/~", false),
        (
            "{ path: { exact: '/%7e', norm: true } }",
            "http://h/~",
            true,
        ),
        (
            "{ path: { exact: '/~', norm: true } }",
            "http://h/%7E",
            true,
        ),
        (
            "{ path: { exact: '/é', norm: true } }",
            "http://h/%c3%a9",
            true,
        ),
        (
            "{ path: { regex: '^/~$', norm: true } }",
            "http://h/%7E",
            true,
        ),
        (
            "{ path: { regex: '^/é$', norm: true } }",
            "http://h/%c3%A9",
            true,
        ),
        (
            "{ path: { glob: '/é*', norm: true } }",
            "http://h/%c3%A9x",
            true,
        ),
    ]);
}

#[test]
fn counts_and_numbers() {
    check(&[
        (
            "{ url: { length: '[30:]' } }",
            "http://h/0123456789012345678901",
            true,
        ),
        ("{ url: { length: '[30:]' } }", "http://h/", false),
        ("{ path: { segments: 2 } }", "http://h//a/b/", true),
        ("{ url: { segments: { min: 2 } } }", "http://h/a/b", true),
        ("{ url: { segments: { min: 3 } } }", "http://h/a/b", false),
        ("{ path: { repeats: '[3:]' } }", "http://h/a/b/a/a", true),
        ("{ url: { params: 2 } }", "http://h/?a=1&b", true),
        ("{ path: { params: { max: 1 } } }", "http://h/?a=1&b", false),
        ("{ port: 80 }", "http://h/", true),
        ("{ port: [81, '[8000:9000]'] }", "http://h:8080/", true),
        ("{ port: { min: 1024 } }", "http://h/", false),
        ("{ port: { exact: 443 } }", "https://h/", true),
        ("{ port: { in: words } }", "http://h:8080/", true),
        ("{ port: { in: words } }", "http://h/", false),
    ]);
}

#[test]
fn parameters() {
    check(&[
        ("{ param.a: 'x y' }", "http://h/?a=x+y", true),
        ("{ param.a: 'x y' }", "http://h/?b=1&a=x%20y", true),
        ("{ param.a: z }", "http://h/?a=x&a=z", true),
        ("{ param.a: '' }", "http://h/?b=1", true),
        ("{ param.a: 7 }", "http://h/?a=7", true),
        ("{ param.a: true }", "http://h/?a=true", true),
        ("{ param.a: { regex: '^[0-9]+$' } }", "http://h/?a=12", true),
        ("{ param.A: x }", "http://h/?a=x", false),
    ]);
}

#[test]
fn lists() {
    check(&[
        ("{ in: doms }", "http://a.foo.com/", true),
        ("{ in: doms }", "http://bar.org/", true),
        ("{ host: { in: doms } }", "http://a.foo.com/", true),
        ("{ authority: { in: doms } }", "http://a.foo.com/", false),
        ("{ in: hosts }", "http://a.foo.com/", false),
        ("{ in: hosts }", "http://[::1]/", true),
        ("{ in: urls }", "http://h/", true),
        ("{ in: urls }", "http://h/a%20b", true),
        ("{ in: urls }", "http://h/a", false),
        ("{ in: starts }", "http://h/a/b", true),
        ("{ in: starts }", "http://h/a", false),
        ("{ in: starts }", "http://h.com/%C3%A9t", true),
        ("{ in: surts }", "http://www.example.com/", true),
        ("{ in: surts }", "https://foo.org/xy", true),
        ("{ in: surts }", "https://foo.org/y", false),
        ("{ in: [doms, hosts] }", "http://[::1]/", true),
        ("{ param.a: { in: words } }", "http://h/?a=x", true),
        ("{ not: { in: doms } }", "http://h/", true),
    ]);
    assert!(holds(
        "{ method: { in: words } }",
        json!({ "url": "http://h/", "method": "POST" })
    ));
    let typed = json!({ "url": "http://h/", "content_type": "text/html" });
    assert!(
        holds("{ content_type: { in: words } }", typed),
        "types never distinguish case"
    );
    for (address, expected) in [
        ("10.1.2.3", true),
        ("::ffff:10.1.2.3", true),
        ("2001:db8::7", true),
        ("11.0.0.1", false),
    ] {
        let facts = json!({ "url": "http://h/", "address": address });
        assert_eq!(holds("{ in: nets }", facts.clone()), expected, "{address}");
        assert_eq!(
            holds("{ address: { in: nets } }", facts),
            expected,
            "{address}"
        );
    }
}

#[test]
fn fields_of_the_request_the_address_and_the_response() {
    let rows: [(&str, Json, bool); 34] = [
        ("{ method: [POST, PUT] }", json!({ "method": "PUT" }), true),
        (
            "{ crawler: news-bot }",
            json!({ "crawler": "news-bot" }),
            true,
        ),
        ("{ crawler: anonymous }", json!({}), true),
        (
            "{ referer: { prefix: 'http://x/' } }",
            json!({ "referer": "http://x/y" }),
            true,
        ),
        ("{ dest: embed }", json!({ "dest": "embed" }), true),
        ("{ dest: embed }", json!({}), false),
        ("{ depth: '[3:]' }", json!({ "depth": 3 }), true),
        ("{ depth: '[:9]' }", json!({}), false),
        (
            "{ address: 10.0.0.0/8 }",
            json!({ "address": "10.9.9.9" }),
            true,
        ),
        (
            "{ address: '9.0.0.0 255.0.0.0' }",
            json!({ "address": "9.1.1.1" }),
            true,
        ),
        (
            "{ address: [192.0.2.1, '::1'] }",
            json!({ "address": "::1" }),
            true,
        ),
        (
            "{ address: { cidr: '2001:db8::/32' } }",
            json!({ "address": "2001:db9::" }),
            false,
        ),
        (
            "{ content_type: image/* }",
            json!({ "content_type": "IMAGE/png; x=y" }),
            true,
        ),
        (
            "{ content_type: [text/html, image/*] }",
            json!({ "content_type": "text/html" }),
            true,
        ),
        (
            "{ content_type: [text/html, image/*] }",
            json!({ "content_type": "image/gif" }),
            true,
        ),
        (
            "{ content_type: [text/html, image/*] }",
            json!({ "content_type": "images/gif" }),
            false,
        ),
        (
            "{ content_type: Text/HTML }",
            json!({ "content_type": "text/html" }),
            true,
        ),
        ("{ content_type: '' }", json!({ "size": 1 }), true),
        (
            "{ content_type: image/* }",
            json!({ "content_type": "image/png", "status": 404 }),
            false,
        ),
        (
            "{ content_type: image/*, status: 404 }",
            json!({ "content_type": "image/png", "status": 404 }),
            true,
        ),
        ("{ status: 5xx }", json!({ "status": 503 }), true),
        (
            "{ status: [404, '[500:502]'] }",
            json!({ "status": 503 }),
            false,
        ),
        ("{ size: { min: 1MiB } }", json!({ "size": 1048576 }), true),
        ("{ size: '[:5]' }", json!({ "status": 200 }), false),
        (
            "{ header.X-A: b }",
            json!({ "headers": { "x-a": "b" } }),
            true,
        ),
        (
            "{ header.x-a: B }",
            json!({ "headers": { "X-A": "b" } }),
            false,
        ),
        (
            "{ header.x-a: { contains: c } }",
            json!({ "headers": { "x-a": ["b", "c"] } }),
            true,
        ),
        (
            "{ usage.train-ai: deny }",
            json!({ "usage": { "train-ai": "deny" } }),
            true,
        ),
        (
            "{ license: { prefix: 'https://a/' } }",
            json!({ "license": "https://a/l.xml" }),
            true,
        ),
        (
            "{ not: { license: '' } }",
            json!({ "status": 402, "license": "https://a/l.xml" }),
            true,
        ),
        (
            "{ license: https://a/own }",
            json!({
                "license": "https://a/l.xml",
                "headers": { "Link": "<https://a/own>; rel=license; type=application/rsl+xml" },
            }),
            true,
        ),
        ("{ license: '' }", json!({ "status": 200 }), true),
        (
            "{ meta_robots: { contains: noindex } }",
            json!({ "meta_robots": "noindex, nofollow" }),
            true,
        ),
        (
            "{ canonical: 'http://c/' }",
            json!({ "canonical": "http://c/" }),
            true,
        ),
    ];
    for (condition, mut facts, expected) in rows {
        facts["url"] = json!("http://h/");
        assert_eq!(
            holds(condition, facts.clone()),
            expected,
            "{condition} with {facts}"
        );
    }
}
