//! The build script: compiles the tables, and lays out the program.

#[path = "layout/build.rs"]
mod layout;
#[path = "mappings/build.rs"]
mod mappings;

fn main() {
    layout::tell_linker();
    if let Err(error) = mappings::compile() {
        println!("cargo::error={error}");
    }
}
