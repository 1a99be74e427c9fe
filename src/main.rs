//! The `diglot` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = diglot::peer::guard::entry() {
        return code;
    }
    diglot::cli::main()
}
