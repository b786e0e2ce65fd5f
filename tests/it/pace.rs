//! Pace and hold: by the gate alone, with a policy that is swapped while a request waits, and over sockets, timed by
//! the origin's clock.

mod gate;
mod hostile;
mod learned;
mod queue;
mod repeats;
mod sockets;
