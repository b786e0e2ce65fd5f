//! The guards of the admin listener for every documented path, and the description against real responses.

use boon::{Compiler, Schemas};
use serde_json::{Value as Json, json};

use crawlgate::admin::health::Readiness;

use super::{ApiBench, TOKEN};

const POLICY: &str = "policy: 1
name: acme
options: { disposition: allow }
rules:
  - { id: cgi, about: no scripts, forbid: { under: /cgi-bin } }
  - { id: tried, mode: shadow, when: { host: a.example }, then: disallow, rules: [{ id: in, forbid: { ext: x } }] }
  - { id: off, enabled: false, forbid: { under: /off } }
";
const BEFORE: &str = "policy: 1\nname: acme\noptions: { disposition: disallow }\n";
/// The responses to probes, scrapers and clients without a token.
const OPEN: [&str; 5] = ["/", "/metrics", "/healthz", "/readyz", "/ca.pem"];
const URI: &str = "http://document.invalid/";

/// Each operation of the description: the method, a path, and `true` if it requires a token.
fn operations(document: &Json) -> Vec<(String, String, bool)> {
    let mut all = vec![];
    for (path, item) in document["paths"].as_object().unwrap() {
        let sample = path
            // Without this, the response would not end.
            .replace("/v1/decisions", "/v1/decisions?follow=false")
            .replace("?follow=false/{id}", "/1")
            .replace("{id}", "1")
            .replace("{host}", "a.example")
            .replace("{file}", "app.js");
        for (method, operation) in item
            .as_object()
            .unwrap()
            .iter()
            .filter(|(key, _)| *key != "parameters")
        {
            all.push((
                method.to_uppercase(),
                sample.clone(),
                operation["security"] != json!([{}]),
            ));
        }
    }
    all
}

async fn document(bench: &ApiBench) -> Json {
    let answer = bench
        .ask_with("GET /api/v1/openapi.json", &bearer(TOKEN), b"")
        .await;
    assert!(
        answer.contains("content-type: application/json\r\n"),
        "{answer}"
    );
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

fn status(answer: &str) -> u16 {
    answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .unwrap_or(0)
}

#[tokio::test]
async fn every_operation_is_guarded() {
    let bench = ApiBench::guarded(POLICY).await;
    let document = document(&bench).await;
    let own = bench.admin.address;
    let token = bearer(TOKEN);
    // Any user name, with the token as the password.
    let basic = "Authorization: Basic YW55Ym9keTpjb3JyZWN0LWhvcnNlLWJhdHRlcnk=\r\n";
    for (method, path, closed) in operations(&document) {
        let line = format!("{method} {path}");
        assert_eq!(
            closed,
            !OPEN.contains(&&*path),
            "{path}: who may ask without a token is written down here"
        );
        for (fields, refused) in [
            (String::new(), closed.then_some(401)),
            (bearer("wrong-horse-battery"), closed.then_some(401)),
            (
                "Authorization: Basic d3Jvbmc6d3Jvbmctd3Jvbmctd3Jvbmc=\r\n".into(),
                closed.then_some(401),
            ),
            (format!("{token}{token}"), closed.then_some(401)),
            (basic.to_owned(), None),
            (token.clone(), None),
            (format!("{token}Origin: http://{own}\r\n"), None),
            (format!("{token}Origin: http://evil.example\r\n"), Some(403)),
            (format!("{token}Origin: null\r\n"), Some(403)),
            (format!("{token}Sec-Fetch-Site: same-origin\r\n"), None),
            (format!("{token}Sec-Fetch-Site: cross-site\r\n"), Some(403)),
            (format!("{token}Sec-Fetch-Site: same-site\r\n"), Some(403)),
        ] {
            let answer = bench.ask_with(&line, &fields, b"").await;
            match refused {
                Some(expected) => assert_eq!(status(&answer), expected, "{line} {fields}"),
                None => assert!(
                    !matches!(status(&answer), 0 | 401 | 403 | 405),
                    "{line} {fields}: {answer}"
                ),
            }
            assert_eq!(
                answer.contains("www-authenticate: Basic"),
                refused == Some(401),
                "{line} {fields}"
            );
        }
        let poll = bench
            .ask_with(
                &line,
                "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: cors\r\n",
                b"",
            )
            .await;
        assert_eq!(
            poll.contains("www-authenticate: Bearer"),
            closed,
            "{line}: {poll}"
        );
        // A file of the page is loaded with the credentials in the page's address, which a browser sends if asked.
        assert_eq!(
            poll.contains("www-authenticate: Basic"),
            closed && path.starts_with("/ui/"),
            "{line}: {poll}"
        );
        // A refusal reveals nothing of the resource.
        for other in ["PATCH", "OPTIONS", "HEAD", "BREW"] {
            let answer = bench.ask_with(&format!("{other} {path}"), "", b"").await;
            assert_eq!(status(&answer) == 401, closed, "{other} {path}: {answer}");
        }
        for (request, expected) in [
            (
                format!("{line} HTTP/1.1\r\nHost: evil.example\r\n{token}\r\n"),
                403,
            ),
            (
                format!("{line} HTTP/1.1\r\nHost: 127.0.0.1:1\r\n{token}\r\n"),
                403,
            ),
            (format!("{line} HTTP/1.1\r\n{token}\r\n"), 400),
            (
                format!("{line} HTTP/1.1\r\nHost: {own}\r\nHost: {own}\r\n{token}\r\n"),
                400,
            ),
            (
                format!("{method} http://{own}{path} HTTP/1.1\r\nHost: {own}\r\n{token}\r\n"),
                400,
            ),
        ] {
            assert_eq!(
                status(&bench.raw(request.as_bytes()).await),
                expected,
                "{request}"
            );
        }
    }
    let connect = bench.ask_with(&format!("CONNECT {own}"), &token, b"").await;
    assert_eq!(status(&connect), 400, "{connect}");
}

#[tokio::test]
async fn other_methods_get_an_allow_field_and_head_has_no_body() {
    let bench = ApiBench::guarded(POLICY).await;
    let document = document(&bench).await;
    let token = bearer(TOKEN);
    let all = operations(&document);
    for (method, path, _) in &all {
        let mut taken: Vec<&str> = all
            .iter()
            .filter(|(_, other, _)| other == path)
            .map(|(method, ..)| method.as_str())
            .collect();
        if method == "GET" {
            let get = bench.ask_with(&format!("GET {path}"), &token, b"").await;
            let head = bench.ask_with(&format!("HEAD {path}"), &token, b"").await;
            assert_eq!(status(&head), status(&get), "{path}");
            assert!(head.ends_with("\r\n\r\n"), "{path}");
            taken.push("HEAD");
        }
        let others = ["PATCH", "PUT", "OPTIONS", "TRACE", "BREW"];
        for other in others.into_iter().filter(|other| !taken.contains(other)) {
            let answer = bench
                .ask_with(&format!("{other} {path}"), &token, b"")
                .await;
            assert_eq!(status(&answer), 405, "{other} {path}");
            let allow = answer
                .lines()
                .find_map(|line| line.strip_prefix("allow: "))
                .unwrap();
            assert!(
                taken
                    .iter()
                    .all(|method| allow.split(", ").any(|known| known == *method)),
                "{path}: {allow}"
            );
        }
    }
}

/// Responses match the schemas that are described for their status and type; those schemas are closed.
#[tokio::test]
async fn answers_are_as_described() {
    let bench = ApiBench::with(POLICY, Some(BEFORE), Readiness::new(Vec::new)).await;
    let (_, document) = bench.ask("GET /api/v1/openapi.json", b"").await;
    let (status, answer) = ApiBench::uncounted(POLICY)
        .await
        .ask("GET /api/v1/status", b"")
        .await;
    fits(&document, "get /api/v1/status", status, &answer);
    let stop =
        json!({ "what": "a.example", "reason": "they have called", "for": "1h" }).to_string();
    let facts = json!({ "url": "http://a.example/cgi-bin/x", "content_type": "text/html", "crawler": "news" });
    for (line, template, body, expected) in [
        ("GET /api/v1/status", "", String::new(), 200),
        ("GET /api/v1/policy", "", String::new(), 200),
        (
            "GET /api/v1/policy/rules?search=c&sort=matched",
            "/api/v1/policy/rules",
            String::new(),
            200,
        ),
        (
            "GET /api/v1/policy/rules?sort=size",
            "/api/v1/policy/rules",
            String::new(),
            400,
        ),
        (
            "GET /api/v1/policy/rules?sort=condition&order=desc",
            "/api/v1/policy/rules",
            String::new(),
            200,
        ),
        ("GET /api/v1/crawlers", "", String::new(), 200),
        ("GET /api/v1/config", "", String::new(), 200),
        ("GET /api/v1/messages", "", String::new(), 200),
        (
            "GET /api/v1/messages?after=x",
            "/api/v1/messages",
            String::new(),
            400,
        ),
        ("GET /api/v1/policy/diff", "", String::new(), 200),
        ("GET /api/v1/shadow", "", String::new(), 200),
        ("GET /api/v1/stops", "", String::new(), 200),
        ("POST /api/v1/explain", "", facts.to_string(), 200),
        (
            "POST /api/v1/explain",
            "",
            json!({ "url": "http://a.example/", "tunnel": true }).to_string(),
            200,
        ),
        ("POST /api/v1/explain", "", "{}".into(), 400),
        ("POST /api/v1/explain", "", "x".repeat(70_000), 413),
        ("POST /api/v1/stops", "", stop.clone(), 201),
        ("GET /api/v1/stops", "", String::new(), 200),
        (
            "GET /api/v1/stops/11",
            "/api/v1/stops/{id}",
            String::new(),
            404,
        ),
        (
            "DELETE /api/v1/stops/11",
            "/api/v1/stops/{id}",
            String::new(),
            404,
        ),
        ("GET /ca.pem", "", String::new(), 404),
    ] {
        let (status, answer) = bench.ask(line, body.as_bytes()).await;
        assert_eq!(status, expected, "{line}: {answer}");
        let (method, path) = line.split_once(' ').unwrap();
        let template = if template.is_empty() { path } else { template };
        fits(
            &document,
            &format!("{} {template}", method.to_lowercase()),
            status,
            &answer,
        );
    }
}

/// Panics unless the response matches its description.
fn fits(document: &Json, operation: &str, status: u16, answer: &Json) {
    let (method, path) = operation.split_once(' ').unwrap();
    fn escaped(text: &str) -> String {
        text.replace('~', "~0").replace('/', "~1")
    }
    let mut pointer = format!("/paths/{}/{method}/responses/{status}", escaped(path));
    if let Some(reference) = document
        .pointer(&pointer)
        .unwrap_or_else(|| panic!("{pointer}"))["$ref"]
        .as_str()
    {
        pointer = reference.trim_start_matches('#').to_owned();
    }
    let kind = if status < 400 {
        "application/json"
    } else {
        "application/problem+json"
    };
    let pointer = format!("{pointer}/content/{}/schema", escaped(kind));
    assert!(
        document.pointer(&pointer).is_some(),
        "{operation} {status} {kind} is not described"
    );
    let fragment = pointer.replace('{', "%7B").replace('}', "%7D");
    let mut schemas = Schemas::new();
    let mut compiler = Compiler::new();
    compiler.add_resource(URI, document.clone()).unwrap();
    let index = compiler
        .compile(&format!("{URI}#{fragment}"), &mut schemas)
        .unwrap();
    if let Err(mistake) = schemas.validate(answer, index) {
        panic!("{operation} {status}: {mistake:#}\n{answer:#}");
    }
}
