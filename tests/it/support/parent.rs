//! A parent proxy in the test process: HTTP, HTTPS or SOCKS 5. It connects to 127.0.0.1, whatever name is requested, and
//! records what it is asked for. Dropping it closes its connections.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

/// The protocol of a parent.
#[derive(Clone)]
pub(crate) enum ParentKind {
    Http,
    Https(Arc<ServerConfig>),
    Socks,
}

/// A running parent.
pub(crate) struct TestParent {
    pub(crate) address: SocketAddr,
    log: Arc<Mutex<Vec<String>>>,
    /// `None` once it was killed.
    runtime: Option<Runtime>,
}

#[derive(Clone)]
struct ParentScript {
    kind: ParentKind,
    credentials: Option<(&'static str, &'static str)>,
    /// The answer to every request of an HTTP proxy, instead of what it would do.
    answer: Option<&'static str>,
    log: Arc<Mutex<Vec<String>>>,
}

impl TestParent {
    pub(crate) fn start(kind: ParentKind) -> Self {
        Self::with(kind, None, None)
    }

    /// A parent that requires credentials, or gives the same answer to every request.
    pub(crate) fn with(
        kind: ParentKind,
        credentials: Option<(&'static str, &'static str)>,
        answer: Option<&'static str>,
    ) -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        Self::on(listener, kind, credentials, answer)
    }

    /// A parent at an address that another one had.
    pub(crate) fn at(address: SocketAddr, kind: ParentKind) -> Self {
        Self::on(
            std::net::TcpListener::bind(address).unwrap(),
            kind,
            None,
            None,
        )
    }

    fn on(
        listener: std::net::TcpListener,
        kind: ParentKind,
        credentials: Option<(&'static str, &'static str)>,
        answer: Option<&'static str>,
    ) -> Self {
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let log = Arc::default();
        let script = ParentScript {
            kind,
            credentials,
            answer,
            log: Arc::clone(&log),
        };
        let runtime = Runtime::new().unwrap();
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((socket, _)) = listener.accept().await {
                let script = script.clone();
                tokio::spawn(async move { script.serve(socket).await });
            }
        });
        Self {
            address,
            log,
            runtime: Some(runtime),
        }
    }

    /// The requests so far: `GET http://…`, `CONNECT a.test:443`, `SOCKS a.test:80`.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// Closes the listener and all connections at once.
    pub(crate) fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for TestParent {
    fn drop(&mut self) {
        self.kill();
    }
}

impl ParentScript {
    async fn serve(&self, socket: TcpStream) -> io::Result<()> {
        match &self.kind {
            ParentKind::Http => self.serve_http(socket).await,
            ParentKind::Https(config) => {
                let tls = TlsAcceptor::from(Arc::clone(config)).accept(socket).await?;
                self.serve_http(tls).await
            }
            ParentKind::Socks => self.serve_socks(socket).await,
        }
    }

    fn record(&self, what: String) {
        self.log.lock().unwrap().push(what);
    }

    async fn serve_http(&self, mut client: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        while let Some(head) = read_head(&mut client).await? {
            let mut words = head.split(' ');
            let (method, target) = (words.next().unwrap(), words.next().unwrap().to_owned());
            self.record(format!("{method} {target}"));
            if let Some((user, password)) = self.credentials {
                let basic =
                    base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
                let field = format!("proxy-authorization: basic {basic}").to_lowercase();
                if !head.to_lowercase().lines().any(|line| line == field) {
                    let refusal = "HTTP/1.1 407 x\r\nProxy-Authenticate: Basic realm=\"parent\"\r\nContent-Length: 0\r\n\r\n";
                    client.write_all(refusal.as_bytes()).await?;
                    continue;
                }
            }
            if let Some(answer) = self.answer {
                client.write_all(answer.as_bytes()).await?;
                return client.shutdown().await;
            }
            if method == "CONNECT" {
                let mut origin = connect(&target).await?;
                client
                    .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
                    .await?;
                client.flush().await?;
                copy_bidirectional(&mut client, &mut origin).await?;
                return Ok(());
            }
            let (authority, path) = target
                .strip_prefix("http://")
                .unwrap()
                .split_once('/')
                .unwrap();
            let mut origin = connect(authority).await?;
            let fields = head.split_once("\r\n").unwrap().1;
            let fields = fields
                .split("\r\n")
                .filter(|field| !field.to_lowercase().starts_with("proxy-"));
            let fields: Vec<&str> = fields.collect();
            let request = format!(
                "{method} /{path} HTTP/1.1\r\nConnection: close\r\n{}",
                fields.join("\r\n")
            );
            origin.write_all(request.as_bytes()).await?;
            // The origins of these tests answer with a length, and this one request only.
            let answer = read_head(&mut origin).await?.unwrap();
            client.write_all(answer.as_bytes()).await?;
            let length = answer.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("content-length")
                    .then(|| value.parse::<usize>().unwrap())
            });
            let mut body = vec![0; length.unwrap_or(0)];
            origin.read_exact(&mut body).await?;
            client.write_all(&body).await?;
            client.flush().await?;
        }
        Ok(())
    }

    async fn serve_socks(&self, mut client: TcpStream) -> io::Result<()> {
        let mut greeting = [0; 2];
        client.read_exact(&mut greeting).await?;
        assert_eq!(greeting[0], 5);
        let mut methods = vec![0; greeting[1].into()];
        client.read_exact(&mut methods).await?;
        match self.credentials {
            None => client.write_all(&[5, 0]).await?,
            Some(_) if !methods.contains(&2) => {
                client.write_all(&[5, 0xff]).await?;
                return Ok(());
            }
            Some((user, password)) => {
                client.write_all(&[5, 2]).await?;
                assert_eq!(client.read_u8().await?, 1);
                let given = [read_text(&mut client).await?, read_text(&mut client).await?];
                let is_right = given == [user, password];
                client.write_all(&[1, u8::from(!is_right)]).await?;
                if !is_right {
                    return Ok(());
                }
            }
        }
        let mut request = [0; 4];
        // A check ends here.
        if client.read_exact(&mut request).await.is_err() {
            return Ok(());
        }
        assert_eq!(request, [5, 1, 0, 3], "CONNECT to a name");
        let host = read_text(&mut client).await?;
        let port = client.read_u16().await?;
        self.record(format!("SOCKS {host}:{port}"));
        let Ok(mut origin) = connect(&format!("{host}:{port}")).await else {
            return client.write_all(&[5, 5, 0, 1, 0, 0, 0, 0, 0, 0]).await;
        };
        client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
        copy_bidirectional(&mut client, &mut origin).await?;
        Ok(())
    }
}

async fn connect(authority: &str) -> io::Result<TcpStream> {
    let port = authority
        .rsplit_once(':')
        .map_or(80, |(_, port)| port.parse().unwrap());
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await
}

async fn read_text(client: &mut TcpStream) -> io::Result<String> {
    let length = client.read_u8().await?;
    let mut text = vec![0; length.into()];
    client.read_exact(&mut text).await?;
    Ok(String::from_utf8(text).unwrap())
}

async fn read_head(client: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<String>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match client.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) if head.is_empty() => return Ok(None),
            Err(error) => return Err(error),
        }
    }
    Ok(Some(String::from_utf8(head).unwrap()))
}
