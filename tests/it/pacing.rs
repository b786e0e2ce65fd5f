//! Pace options of a policy apart from a host's delay: schedules, Request-rate, limits of addresses, byte budgets.
//! By the gate alone, in time that is moved by hand or by the runtime.

mod address;
mod bench;
mod bytes;
mod hosts;
mod request_rate;
mod schedule;
