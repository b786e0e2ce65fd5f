//! The `crawlgate` binary.

use crawlgate::cli::{self, Exit};

fn main() -> Exit {
    cli::run(std::env::args_os())
}
