//! Compiles the tables of `mappings/` into JSON, which is read at every start in a fraction of the time that TOML takes.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// What is read when a conversation begins. The other files are for `diglot mappings` and the tests, which read them as
/// they are.
const TABLES: [&str; 5] = ["tools", "modes", "stop_reasons", "errors", "permissions"];

/// Writes `NAME.json` for each table and `agents/NAME.json` for each profile into the folder of the build.
///
/// # Errors
/// A file that cannot be read, is no TOML, or cannot be written.
pub(crate) fn compile() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=mappings");
    let folder = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("mappings");
    let out = PathBuf::from(env::var("OUT_DIR")?).join("mappings");
    // Nothing of an earlier build stays: a profile that was removed must be missed.
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    fs::create_dir_all(out.join("agents"))?;
    for table in TABLES {
        convert(&folder.join(format!("{table}.toml")), &out.join(format!("{table}.json")))?;
    }
    for profile in fs::read_dir(folder.join("agents"))? {
        let profile = profile?.path();
        // What an editor left beside them is none.
        if profile.extension().is_some_and(|extension| extension == "toml")
            && let Some(name) = profile.file_stem().and_then(|name| name.to_str())
        {
            convert(&profile, &out.join(format!("agents/{name}.json")))?;
        }
    }
    Ok(())
}

fn convert(table: &Path, to: &Path) -> Result<(), Box<dyn Error>> {
    let text = fs::read_to_string(table)?;
    let table: toml::Table = toml::from_str(&text).map_err(|error| format!("{}: {error}", table.display()))?;
    Ok(fs::write(to, serde_json::to_string(&table)?)?)
}
