//! The `diglot` program.

fn main() {}
