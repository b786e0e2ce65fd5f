//! The origin of one row: a raw socket that keeps every byte it gets and plays the row's script.
//!
//! It is no HTTP server: it answers what the script says, byte for byte, and after the script `200` to whatever comes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::format::Deed;
use super::text::{Names, Text};
use super::wire;

/// How long nothing is sent where a script pauses.
pub(crate) const PAUSE: Duration = Duration::from_millis(60);

/// How often a waiting connection looks whether the row is over.
const GLANCE: Duration = Duration::from_millis(20);

/// An origin on a port of its own; dropping it ends its threads.
pub(crate) struct Origin {
    /// The names for the row's texts; the port is this origin's.
    pub(crate) names: Names,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

/// One connection as the origin saw it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connection {
    /// Every byte that came.
    pub(crate) bytes: Vec<u8>,
    /// Whether the other side ended or broke it.
    pub(crate) ended: bool,
}

struct Shared {
    script: Vec<Deed>,
    names: Names,
    connections: Mutex<Vec<Connection>>,
    changed: Condvar,
    /// The row's own exchange is over: new connections play no script.
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

    /// What was seen so far.
    pub(crate) fn connections(&self) -> Vec<Connection> {
        self.shared.lock().clone()
    }

    /// Waits until what was seen fits; `false` if it does not come to.
    pub(crate) fn wait(&self, limit: Duration, fits: impl Fn(&[Connection]) -> bool) -> bool {
        let log = self.shared.lock();
        let waited = self
            .shared
            .changed
            .wait_timeout_while(log, limit, |log| !fits(log))
            .expect("not poisoned");
        !waited.1.timed_out()
    }

    /// From here on new connections are answered plainly.
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
    /// How many of the bytes belong to requests that were waited for.
    answered: usize,
}

/// The script ended the connection, or the other side or the row did.
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
                // What came is read first: closing over unread bytes would break the connection instead.
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
        let whole = |bytes: &[u8]| match wire::request(&bytes[from..]) {
            Ok(Some((message, used))) if message.ending == wire::Ending::Whole => Some(used),
            _ => None,
        };
        self.until(|bytes| whole(bytes).is_some())?;
        let used = whole(&self.shared.lock()[self.index].bytes).unwrap_or(0);
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

    /// Reads what has come within a moment.
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
