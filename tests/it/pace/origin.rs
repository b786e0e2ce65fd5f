//! An origin that notes, by its own clock, when each request came.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// It runs until the test ends.
pub(super) struct Origin {
    /// Where it listens.
    pub(super) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    most: Arc<AtomicUsize>,
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) at: Instant,
    pub(super) path: String,
}

impl Origin {
    /// It answers each request with what the function makes of its path, after the time that this asks for.
    pub(super) fn start(answer: fn(&str) -> (Duration, &'static str)) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let origin = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
            most: Arc::default(),
        };
        let (seen, most, now) = (
            Arc::clone(&origin.seen),
            Arc::clone(&origin.most),
            Arc::default(),
        );
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let (seen, most) = (Arc::clone(&seen), Arc::clone(&most));
                let now: Arc<AtomicUsize> = Arc::clone(&now);
                std::thread::spawn(move || serve(socket, &seen, (&now, &most), answer));
            }
        });
        origin
    }

    /// What it has got, in order.
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// The paths that it was asked for, in order.
    pub(super) fn paths(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.path).collect()
    }

    /// The least time between two requests.
    pub(super) fn least_gap(&self) -> Duration {
        let seen = self.seen();
        seen.windows(2)
            .map(|pair| pair[1].at - pair[0].at)
            .min()
            .expect("two requests")
    }

    /// The most requests that it had at once.
    pub(super) fn most_at_once(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

fn serve(
    mut socket: TcpStream,
    seen: &Mutex<Vec<Seen>>,
    (now, most): (&AtomicUsize, &AtomicUsize),
    answer: fn(&str) -> (Duration, &'static str),
) {
    let _ = socket.set_nodelay(true);
    while let Some(path) = next_path(&mut socket) {
        seen.lock().unwrap().push(Seen {
            at: Instant::now(),
            path: path.clone(),
        });
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let (after, text) = answer(&path);
        std::thread::sleep(after);
        now.fetch_sub(1, Ordering::SeqCst);
        if socket.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

/// Reads one head; bodies are not sent here.
fn next_path(socket: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (vec![], [0]);
    while !head.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    Some(
        String::from_utf8(head)
            .unwrap()
            .split(' ')
            .nth(1)?
            .to_owned(),
    )
}
