//! The `diglot` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    diglot::cli::main()
}
