//! Whole fleets on simulated time: never two owners, and soon an owner again.
//!
//! `CRAWLGATE_FLEET_SEEDS` sets the number of seeds; a failure names its seed, and `CRAWLGATE_FLEET_SEED` repeats it.

mod laws;
mod rules;

mod store;
mod world;
