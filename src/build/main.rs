//! The build script: compiles the tables, and lays out the program.

mod layout;
mod tables;

fn main() {
    layout::tell_linker();
    if let Err(error) = tables::compile() {
        println!("cargo::error={error}");
    }
}
