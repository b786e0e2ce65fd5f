//! Requests the URLs of standard input one by one with reqwest, and writes each answer as a JSON line.
//!
//!     reqwest_client PROXY CERTIFICATES
//!
//! Redirects are not followed. A URL that reqwest would write in another way is left out, and so are hosts that it cannot
//! name in TLS: IPv6 addresses, and names with a trailing dot.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::stdin;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Proxy, Response, Url};
use serde_json::{Value as Json, json};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [proxy, certificates] = arguments.as_slice() else {
        return Err("usage: reqwest_client PROXY CERTIFICATES".into());
    };
    let client = new_client(proxy, certificates)?;
    for line in stdin().lines() {
        let line = line?;
        if is_sent_unchanged(&line) {
            println!("{}", ask(&client, &line).await);
        }
    }
    Ok(())
}

fn new_client(proxy: &str, certificates: &str) -> Result<Client, Box<dyn Error>> {
    let roots = Certificate::from_pem_bundle(&std::fs::read(certificates)?)?;
    let client = Client::builder()
        .proxy(Proxy::all(proxy)?)
        .tls_certs_only(roots)
        .redirect(Policy::none())
        // spider selects the features that decode responses.
        .no_gzip()
        .no_brotli()
        .no_deflate()
        .no_zstd()
        .timeout(Duration::from_secs(60))
        .build()?;
    Ok(client)
}

fn is_sent_unchanged(url: &str) -> bool {
    let Ok(parsed) = Url::parse(url) else {
        return false;
    };
    let host = parsed.host_str().unwrap_or_default();
    parsed.as_str() == url && !host.starts_with('[') && !host.ends_with('.')
}

async fn ask(client: &Client, url: &str) -> Json {
    let mut answer = json!({
        "url": url, "status": 0, "headers": {}, "body": "", "error": "", "version": ""
    });
    match client.get(url).send().await {
        Ok(response) => read(response, &mut answer).await,
        Err(error) => answer["error"] = json!(format!("{error:?}")),
    }
    answer
}

async fn read(response: Response, answer: &mut Json) {
    answer["status"] = json!(response.status().as_u16());
    answer["version"] = json!(format!("{:?}", response.version()));
    let mut headers: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, value) in response.headers() {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        headers.entry(name.as_str()).or_default().push(value);
    }
    answer["headers"] = json!(headers);
    match response.bytes().await {
        Ok(body) => answer["body"] = json!(BASE64_STANDARD.encode(body)),
        Err(error) => answer["error"] = json!(format!("{error:?}")),
    }
}
