//! Simulation: seeded random peers drive the translators without pipes or time, and every conversation is held against
//! the rules that hold everywhere.
//!
//! `DIGLOT_SIM_COUNT` says how many conversations, `DIGLOT_SIM_SEED` with which seed to begin; a failing one is printed
//! as a golden file.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};

use diglot::translate::FarExit;
use support::conversation::{Conversation, Input};
use support::golden;
use support::sim::{Rng, Simulation};

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

/// Drops, repeats, exchanges and cuts what comes in.
fn disturb(rng: &mut Rng, inputs: &[Input]) -> Vec<Input> {
    let mut list = Vec::new();
    for input in inputs.iter().skip(1) {
        match rng.below(20) {
            0 => {}
            1 => list.extend([input.clone(), input.clone()]),
            2 => list.insert(list.len().saturating_sub(1 + usize::try_from(rng.below(5)).unwrap_or(0)), input.clone()),
            3 => list.push(match input {
                Input::Near(line) => Input::Near(line[..line.len() / 2].to_vec()),
                Input::Far(session, line) => Input::Far(*session, line[..line.len() / 2].to_vec()),
                other => other.clone(),
            }),
            _ => list.push(input.clone()),
        }
    }
    list
}

/// Whatever the peers do to their own protocols, diglot keeps both.
#[test]
fn conversations_that_are_out_of_order_break_no_rule() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join("forward");
    let list = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("golden/forward: {e}"));
    let mut paths: Vec<_> = list.filter_map(|e| e.ok().map(|e| e.path())).collect();
    paths.sort();
    let mut failures = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let (setting, inputs) = golden::inputs(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        for seed in 0..number("DIGLOT_SIM_DISTURBED", 5) {
            let mut conversation = Conversation::new(setting.clone());
            conversation.judge.by_form = true;
            let mut happened = Vec::new();
            let mut feed = |conversation: &mut Conversation, input: Input| {
                // What cannot happen now does not happen.
                if conversation.feed(&input).is_ok() {
                    happened.push(golden::write_input(&input));
                }
            };
            feed(&mut conversation, inputs[0].clone());
            for input in disturb(&mut Rng::new(seed), &inputs) {
                feed(&mut conversation, input);
            }
            feed(&mut conversation, Input::NearClosed);
            for session in conversation.sessions() {
                while conversation.is_reading(session) {
                    feed(&mut conversation, Input::Read(session));
                }
                feed(&mut conversation, Input::FarClosed(session, FarExit::default()));
            }
            let mut problems = conversation.judge.violations();
            problems.extend(conversation.judge.unsettled());
            if !problems.is_empty() {
                failures.push((
                    happened.len(),
                    format!("{} {seed}:\n  {}", path.display(), problems.join("\n  ")),
                    happened,
                ));
            }
        }
    }
    failures.sort();
    if let Some((_, first, happened)) = failures.first() {
        let all: Vec<&str> = failures.iter().take(20).map(|(_, what, _)| &**what).collect();
        panic!("{} fail\n{}\n\n{first}\n{}", failures.len(), all.join("\n"), happened.join("\n"));
    }
}
