//! Golden files of the reverse direction: every conversation in `golden/reverse/` goes through the translator, and what comes out is compared with what
//! the file expects. `UPDATE_GOLDEN=1` writes what comes out into the files.

mod support;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use diglot::translate::FarExit;
use support::files;
use support::reverse::{Conversation, Input};
use support::reverse_golden as golden;
use support::reverse_sim::Simulation;
use support::sim::Rng;

#[test]
fn every_conversation_is_translated_as_expected() {
    files::compare("reverse", golden::run);
}

#[test]
fn every_file_says_what_it_shows_and_where_it_comes_from() {
    let mut about = BTreeSet::new();
    for path in files::all("reverse") {
        let name = files::name(&path);
        let text = files::read(&path);
        let header =
            golden::Header::read(text.lines().next().unwrap_or_default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let source = &header.source;
        let known = source == "written" || source.starts_with("report ") || source.contains(", recording ");
        assert!(known, "{name}: the source is {source:?}");
        assert!(about.insert(header.about.clone()), "{name}: {:?} is what another file shows", header.about);
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Runs the conversations on all cores; returns the failing seeds in order.
fn failing(first: u64, count: u64) -> Vec<u64> {
    let next = AtomicU64::new(first);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut seeds: Vec<u64> = std::thread::scope(|scope| {
        let work = || {
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
        };
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|w| w.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
    });
    seeds.sort_unstable();
    seeds
}

/// `DIGLOT_SIM_COUNT` says how many, `DIGLOT_SIM_SEED` with which seed to begin; a failing one is printed as a golden file.
#[test]
fn no_host_conversation_breaks_a_rule() {
    let (first, count) = (number("DIGLOT_SIM_SEED", 1), number("DIGLOT_SIM_COUNT", 500));
    let seeds = failing(first, count);
    if seeds.is_empty() {
        return;
    }
    // The shortest one tells most.
    let mut runs: Vec<(u64, Simulation)> = seeds.iter().map(|seed| (*seed, Simulation::run(*seed))).collect();
    runs.sort_by_key(|(_, sim)| sim.inputs.len());
    let others: Vec<String> =
        runs.iter().take(20).map(|(s, sim)| format!("{s}: {}", sim.problems.join("; "))).collect();
    let (seed, sim) = &runs[0];
    let lines: Vec<String> = sim.inputs.iter().map(golden::write_input).collect();
    panic!(
        "{} of {count} conversations fail; seeds\n{}\nseed {seed}:\n  {}\n\n{}\n{}\n",
        seeds.len(),
        others.join("\n"),
        sim.problems.join("\n  "),
        sim.header(*seed),
        lines.join("\n"),
    );
}

/// Drops, repeats, exchanges and cuts what comes in.
fn disturb(rng: &mut Rng, inputs: &[Input]) -> Vec<Input> {
    let mut list = Vec::new();
    for input in inputs {
        match rng.below(20) {
            0 => {}
            1 => list.extend([input.clone(), input.clone()]),
            2 => list.insert(list.len().saturating_sub(1 + usize::try_from(rng.below(5)).unwrap_or(0)), input.clone()),
            3 => list.push(match input {
                Input::Host(line) => Input::Host(line[..line.len() / 2].to_vec()),
                Input::Agent(line) => Input::Agent(line[..line.len() / 2].to_vec()),
                other => other.clone(),
            }),
            _ => list.push(input.clone()),
        }
    }
    list
}

/// Whatever the peers do to their own protocols, diglot keeps both. `DIGLOT_SIM_DISTURBED` says how often for each file.
#[test]
fn host_conversations_that_are_out_of_order_break_no_rule() {
    let mut failures = Vec::new();
    for path in files::all("reverse") {
        let name = files::name(&path);
        let text = files::read(&path);
        let (setting, inputs) = golden::inputs(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        for seed in 0..number("DIGLOT_SIM_DISTURBED", 5) {
            let (mut conversation, _) = Conversation::new(&setting).unwrap_or_else(|e| panic!("{name}: {e}"));
            conversation.judge.by_form = true;
            let mut happened = Vec::new();
            let mut feed = |conversation: &mut Conversation, input: Input| {
                // What cannot happen now does not happen.
                if conversation.feed(&input).is_ok() {
                    happened.push(golden::write_input(&input));
                }
            };
            for input in disturb(&mut Rng::new(seed), &inputs) {
                feed(&mut conversation, input);
            }
            feed(&mut conversation, Input::HostClosed);
            // As often as it starts an agent for what waits, that agent dies.
            for _ in 0..20 {
                feed(&mut conversation, Input::AgentClosed(FarExit::default()));
                for timer in conversation.timers().to_vec() {
                    feed(&mut conversation, Input::Timer(timer));
                }
            }
            let mut problems = conversation.judge.violations();
            problems.extend(conversation.judge.unsettled());
            if !conversation.exited {
                problems.push("it lives on when the host is gone and the agent dead".to_owned());
            }
            if !problems.is_empty() {
                let what = format!("{name} {seed}:\n  {}", problems.join("\n  "));
                failures.push((happened.len(), what, happened));
            }
        }
    }
    failures.sort();
    if let Some((_, first, happened)) = failures.first() {
        let all: Vec<&str> = failures.iter().take(20).map(|(_, what, _)| &**what).collect();
        panic!("{} fail\n{}\n\n{first}\n{}", failures.len(), all.join("\n"), happened.join("\n"));
    }
}
