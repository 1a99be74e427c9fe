//! Tells the linker of a release build for Linux where things lie in the program, and how small it can say them.
//!
//! A program's memory is counted in the pages of its file that were read, and Linux reads sixteen of them at a time. What
//! every conversation runs is a third of diglot's code; scattered over the whole file it made nearly all of it count.
//! `startup.ld` names those functions, so that they lie together, and those of an editor's, a host's and an agent's conversation
//! among them: 2 MB less per process (`cargo bench --bench process`).
//! `node benches/layout/record.mjs` writes it anew; a name that no longer exists does no harm.
//!
//! The sixteen pages are counted from addresses that are multiples of 64 kB, so the program is placed at one: else it is chance
//! how many of its pages count, 0.5 MB more or less from start to start. Four of the 28 random bits of its address go for it.
//!
//! The list of addresses to set at the start is another 0.3 MB that every process reads, and a hundredth of it in the form
//! that glibc reads since 2.36. A program linked so says that it needs such a glibc.
//!
//! The script needs a linker that knows `INSERT`: lld (Rust's own choice on x86-64) and GNU ld do. Whoever chose another
//! gets the program as that linker lays it out; `DIGLOT_LAYOUT=0` asks for the same.

use std::env;
use std::process::Command;

/// Bytes of a file that Linux reads and maps around one that is touched.
const READ_AT_ONCE: u32 = 64 * 1024;

/// Tells the linker of this build what it should know.
pub(crate) fn tell_linker() {
    println!("cargo::rerun-if-changed=src/build/startup.ld");
    println!("cargo::rerun-if-env-changed=DIGLOT_LAYOUT");
    if laid_out() {
        let folder = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{folder}/src/build/startup.ld");
        println!("cargo::rustc-link-arg-bins=-Wl,-z,max-page-size={READ_AT_ONCE}");
        if glibc_here().is_some_and(|version| version >= (2, 36)) {
            println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        }
    }
}

/// Whether this build is one that the script is for.
fn laid_out() -> bool {
    let is = |name: &str, wanted: &str| env::var(name).is_ok_and(|value| value == wanted);
    // Cargo puts the flags of every configuration into this one, separated by a unit separator.
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let own_linker = env::var_os("RUSTC_LINKER").is_some()
        || env::var_os("MOLD_PATH").is_some()
        || ["fuse-ld", "linker", "ld-path"].iter().any(|word| flags.contains(word));
    is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && is("PROFILE", "release")
        && !own_linker
        && !is("DIGLOT_LAYOUT", "0")
}

/// The glibc of this machine, when the program is built for it.
fn glibc_here() -> Option<(u32, u32)> {
    if env::var("HOST") != env::var("TARGET") {
        return None;
    }
    let said = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    let (major, minor) = said.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}
