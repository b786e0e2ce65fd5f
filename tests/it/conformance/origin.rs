//! The origin of one row: a raw socket that records every byte it receives and plays the row's script.
//!
//! It is not an HTTP server: it sends the bytes of the script, and after the script `200` to every request.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::format::Deed;
use super::text::{Names, Text};
use super::wire;

/// The length of a pause in a script.
pub(crate) const PAUSE: Duration = Duration::from_millis(60);

/// The interval at which a waiting connection checks for the end of the row.
const GLANCE: Duration = Duration::from_millis(20);

/// An origin on its own port; dropping it ends its threads.
pub(crate) struct Origin {
    /// The values of placeholders; the port is this origin's.
    pub(crate) names: Names,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

/// The record of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection {
    /// Every byte received.
    pub(crate) bytes: Vec<u8>,
    /// `true` if the other side closed or reset it.
    pub(crate) ended: bool,
}

struct Shared {
    script: Vec<Deed>,
    names: Names,
    connections: Mutex<Vec<Connection>>,
    changed: Condvar,
    /// `true` after the row's own exchange: new connections play no script.
    epilogue: AtomicBool,
    over: AtomicBool,
}

impl Origin {
    /// Listens on loopback, on a port that the kernel chooses.
    pub(crate) fn start(script: &[Deed], via: &str, admin: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let names = Names {
            port,
            admin,
            via: via.into(),
        };
        let shared = Arc::new(Shared {
            script: script.to_vec(),
            names: names.clone(),
            connections: Mutex::default(),
            changed: Condvar::new(),
            epilogue: AtomicBool::new(false),
            over: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        let thread = thread::spawn(move || accept(&listener, &accepting));
        Self {
            names,
            shared,
            listener: Some(thread),
        }
    }

    /// The connections so far.
    pub(crate) fn connections(&self) -> Vec<Connection> {
        self.shared.lock().clone()
    }

    /// Waits until the connections satisfy a condition; returns `false` on a timeout.
    pub(crate) fn wait(&self, limit: Duration, fits: impl Fn(&[Connection]) -> bool) -> bool {
        let log = self.shared.lock();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(log, limit, |log| !fits(log))
            .expect("not poisoned");
        !waited.1.timed_out()
    }

    /// Makes new connections answer every request with 200.
    pub(crate) fn end_script(&self) {
        self.shared.epilogue.store(true, Ordering::SeqCst);
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.names.port));
        if let Some(thread) = self.listener.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.connections.lock().expect("not poisoned")
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for socket in listener.incoming().map_while(Result::ok) {
        if shared.is_over() {
            return;
        }
        let index = {
            let mut log = shared.lock();
            log.push(Connection::default());
            log.len() - 1
        };
        shared.changed.notify_all();
        let scripted = !shared.epilogue.load(Ordering::SeqCst);
        let player = Player {
            socket,
            shared: Arc::clone(shared),
            index,
            answered: 0,
        };
        thread::spawn(move || player.play(scripted));
    }
}

/// One connection at work.
struct Player {
    socket: TcpStream,
    shared: Arc<Shared>,
    index: usize,
    /// The number of bytes of requests that were waited for.
    answered: usize,
}

/// The connection was ended by the script, by the other side, or by the end of the row.
struct Over;

impl Player {
    fn play(mut self, scripted: bool) {
        let _ = self.socket.set_read_timeout(Some(GLANCE));
        let _ = self.socket.set_nodelay(true);
        let script = if scripted {
            self.shared.script.clone()
        } else {
            Vec::new()
        };
        let _ = self.run(&script).and_then(|()| self.serve());
    }

    fn run(&mut self, script: &[Deed]) -> Result<(), Over> {
        let waits = matches!(
            script.first(),
            None | Some(Deed::AtOnce | Deed::Request | Deed::Head)
        );
        if !waits {
            self.request()?;
        }
        for deed in script {
            self.act(deed)?;
        }
        Ok(())
    }

    fn act(&mut self, deed: &Deed) -> Result<(), Over> {
        match deed {
            Deed::AtOnce => {}
            Deed::Request => self.request()?,
            Deed::Head => self.until(|bytes| bytes.windows(4).any(|w| w == b"\r\n\r\n"))?,
            Deed::Send(text) => self.send(text)?,
            Deed::Pause => thread::sleep(PAUSE),
            Deed::Hang => return self.until(|_| false),
            Deed::Close => {
                // The received bytes are read first: a close with unread bytes would reset the connection.
                if self.answered > 0 {
                    let _ = self.read();
                }
                let _ = self.socket.shutdown(Shutdown::Both);
                return Err(Over);
            }
            Deed::Reset => {
                let _ = socket2::SockRef::from(&self.socket).set_linger(Some(Duration::ZERO));
                return Err(Over);
            }
        }
        Ok(())
    }

    /// After the script: every request is answered.
    fn serve(&mut self) -> Result<(), Over> {
        loop {
            let from = self.answered;
            self.request()?;
            let again = self.shared.lock()[self.index].bytes[from..].starts_with(b"GET /again ");
            let body = if again { "again" } else { "ok" };
            let answer = format!(
                r"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            self.send(&Text::read(&answer).expect("a text"))?;
        }
    }

    /// Waits for one more whole request.
    fn request(&mut self) -> Result<(), Over> {
        let from = self.answered;
        fn whole(from: usize, bytes: &[u8]) -> Option<usize> {
            match wire::request(&bytes[from..]) {
                Ok(Some((message, used))) if message.ending == wire::WireEnding::Whole => {
                    Some(used)
                }
                _ => None,
            }
        }
        self.until(|bytes| whole(from, bytes).is_some())?;
        let used = whole(from, &self.shared.lock()[self.index].bytes).unwrap_or(0);
        self.answered += used;
        Ok(())
    }

    fn until(&mut self, fits: impl Fn(&[u8]) -> bool) -> Result<(), Over> {
        while !fits(&self.shared.lock()[self.index].bytes) {
            self.read()?;
        }
        Ok(())
    }

    fn send(&mut self, text: &Text) -> Result<(), Over> {
        let bytes = text.bytes(&self.shared.names);
        self.socket.write_all(&bytes).map_err(|_| Over)
    }

    /// Reads the bytes that arrive within a moment.
    fn read(&mut self) -> Result<(), Over> {
        let mut buffer = [0; 16 * 1024];
        let read = self.socket.read(&mut buffer);
        let mut log = self.shared.lock();
        let connection = &mut log[self.index];
        match read {
            Ok(0) => connection.ended = true,
            Ok(n) => connection.bytes.extend_from_slice(&buffer[..n]),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => connection.ended = true,
        }
        let over = connection.ended || self.shared.is_over();
        drop(log);
        self.shared.changed.notify_all();
        if over { Err(Over) } else { Ok(()) }
    }
}
