//! The build script: compiles the tables, and lays out the program.

#![expect(clippy::print_stdout, reason = "it is how a build script speaks to cargo")]

mod layout;
mod tables;

fn main() {
    layout::tell_linker();
    if let Err(error) = tables::compile() {
        println!("cargo::error={error}");
    }
}
