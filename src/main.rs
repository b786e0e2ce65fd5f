//! Arguments in, exit code out.

use crawlgate::cli::{self, Exit};

fn main() -> Exit {
    cli::run(std::env::args_os())
}
