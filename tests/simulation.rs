//! Simulation: seeded random peers drive the translators without pipes or time, and every conversation is held against
//! the rules that hold everywhere.
//!
//! `DIGLOT_SIM_COUNT` says how many conversations, `DIGLOT_SIM_SEED` with which seed to begin; a failing one is printed
//! as a golden file.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};

use support::golden;
use support::sim::Simulation;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Runs the conversations on all cores; returns the failing seeds in order.
fn failing(first: u64, count: u64) -> Vec<u64> {
    let next = AtomicU64::new(first);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut seeds: Vec<u64> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..cores)
            .map(|_| {
                scope.spawn(|| {
                    let mut failed = Vec::new();
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        // Enough to look at.
                        if seed >= first + count || failed.len() > 20 {
                            return failed;
                        }
                        if !Simulation::run(seed).problems.is_empty() {
                            failed.push(seed);
                        }
                    }
                })
            })
            .collect();
        workers.into_iter().flat_map(|w| w.join().unwrap_or_default()).collect()
    });
    seeds.sort_unstable();
    seeds
}

#[test]
fn no_conversation_breaks_a_rule() {
    let (first, count) = (number("DIGLOT_SIM_SEED", 1), number("DIGLOT_SIM_COUNT", 1_000));
    let seeds = failing(first, count);
    let Some(seed) = seeds.first() else { return };
    // The shortest one tells most.
    let shortest = seeds.iter().map(|s| (Simulation::run(*s).inputs.len(), *s)).min().map_or(*seed, |(_, s)| s);
    let sim = Simulation::run(shortest);
    let lines: Vec<String> = sim.inputs.iter().map(golden::write_input).collect();
    let others: Vec<String> =
        seeds.iter().take(20).map(|s| format!("{s}: {}", Simulation::run(*s).problems.join("; "))).collect();
    panic!(
        "{} of {count} conversations fail; seeds\n{}\nseed {shortest}:\n  {}\n\n{}\n{}\n",
        seeds.len(),
        others.join("\n"),
        sim.problems.join("\n  "),
        sim.header(shortest),
        lines.join("\n"),
    );
}
