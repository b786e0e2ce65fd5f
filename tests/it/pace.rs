//! Pace and hold: the pipeline alone, with a policy that is replaced while a request waits, and over sockets, timed by
//! the origin's clock.

mod gate;
mod hostile;
mod learned;
mod queue;
mod repeats;
mod sockets;
