//! The forward translator: claude's lines in, the editor's lines out, without pipes.
//!
//! Measures the budget "CPU per streamed delta: 3 µs, the writing of the near line included" (design, section 10), and what the
//! other lines of a turn cost beside it. Allocations are counted: a delta should need no more than the line that comes of it.

mod support;

use std::cell::Cell;

use diglot::mappings::Mappings;
use diglot::translate::acp_agent::{AcpAgent, request_id};
use divan::counter::{BytesCount, ItemsCount};
use divan::{AllocProfiler, Bencher, black_box};
use serde_json::json;
use support::{Shared, can_use_tool, event, result, text_delta, tool_result, tool_use};

#[global_allocator]
static ALLOC: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

/// A token of text: read, translated, written. Budget: 3 µs.
#[divan::bench(sample_size = 1_000)]
fn delta_of_text(bencher: Bencher<'_, '_>) {
    let mut session = Shared::new().streaming();
    let line = text_delta("token ");
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| {
        session.far_bytes(black_box(&line));
        session.take()
    });
}

/// 64 tokens that came in one read: they become one piece. Per token by the column of items.
#[divan::bench(sample_size = 100)]
fn deltas_merged(bencher: Bencher<'_, '_>) {
    let mut session = Shared::new().streaming();
    let line = text_delta("token ");
    bencher.counter(ItemsCount::new(64usize)).bench_local(|| {
        for _ in 0..64 {
            session.hear(black_box(&line));
        }
        session.write();
        session.take()
    });
}

/// A token of an ACP agent's, as a stream event for a host: the reverse direction. Budget: 3 µs.
#[divan::bench(sample_size = 1_000)]
fn delta_to_host(bencher: Bencher<'_, '_>) {
    let mut host = support::host::Host::new();
    let line = support::host::chunk("token ");
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| host.hear(black_box(&line)));
}

/// A piece of a tool call's input.
#[divan::bench(sample_size = 1_000)]
fn delta_of_input(bencher: Bencher<'_, '_>) {
    let mut session = Shared::new().streaming();
    let block = json!({"type": "tool_use", "id": "toolu_1", "name": "Write", "input": {}});
    session.far(&event(&json!({"type": "content_block_start", "index": 1, "content_block": block})));
    let piece = |json: &str| {
        let delta = json!({"type": "input_json_delta", "partial_json": json});
        event(&json!({"type": "content_block_delta", "index": 1, "delta": delta})).to_string().into_bytes()
    };
    session.far_bytes(&piece("{\"file_path\": \"/home/user/project/a.rs\", \"content\": \""));
    let line = piece("let x = 1;\\n");
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| {
        session.far_bytes(black_box(&line));
        session.take()
    });
}

/// A command's result of this many bytes, its call included.
#[divan::bench(args = [40, 30_000])]
fn tool_call_and_result(bencher: Bencher<'_, '_>, output: usize) {
    let mut session = Shared::new().streaming();
    let output = "a line of output\n".repeat(output / 17 + 1);
    let value = json!({"stdout": output, "stderr": "", "interrupted": false});
    let count = Cell::new(0);
    bencher
        .with_inputs(|| {
            count.set(count.get() + 1);
            let id = format!("toolu_{}", count.get());
            let call = tool_use(&id, "Bash", &json!({"command": "cargo test", "description": "Run the tests"}));
            (call.to_string(), tool_result(&id, &output, &value).to_string())
        })
        .bench_local_values(|(call, result)| {
            session.far_bytes(call.as_bytes());
            session.far_bytes(result.as_bytes());
            session.take()
        });
}

/// A one-line edit in a file of 200 kB, of which claude sends the whole text. Budget: 5 kB to the editor; the bench fails
/// above it.
#[divan::bench]
fn edit_in_a_large_file(bencher: Bencher<'_, '_>) {
    let mut session = Shared::new().streaming();
    let file = "some line of code;\n".repeat(200_000 / 19);
    let path = "/home/user/project/large.rs";
    let input = json!({"file_path": path, "old_string": "old", "new_string": "new", "replace_all": false});
    let hunk = json!({
        "oldStart": 500, "oldLines": 3, "newStart": 500, "newLines": 3,
        "lines": [" some line of code;", "-old", "+new", " some line of code;"],
    });
    let value = json!({
        "filePath": path, "oldString": "old", "newString": "new", "originalFile": file, "structuredPatch": [hunk],
        "userModified": false, "replaceAll": false,
    });
    let count = Cell::new(0);
    bencher
        .counter(BytesCount::new(file.len()))
        .with_inputs(|| {
            count.set(count.get() + 1);
            let id = format!("toolu_{}", count.get());
            (tool_use(&id, "Edit", &input).to_string(), tool_result(&id, "The file was updated.", &value).to_string())
        })
        .bench_local_values(|(call, result)| {
            session.far_bytes(call.as_bytes());
            session.far_bytes(result.as_bytes());
            let (near, _) = session.take();
            assert!(near < 5_000, "{near} bytes for a one-line edit");
        });
}

/// claude asks, the editor is asked, the user allows, claude is told.
#[divan::bench]
fn permission_round_trip(bencher: Bencher<'_, '_>) {
    let mut session = Shared::new().streaming();
    let input = json!({"command": "cargo test", "description": "Run the tests"});
    let count = Cell::new(0);
    bencher
        .with_inputs(|| {
            count.set(count.get() + 1);
            let id = format!("toolu_{}", count.get());
            let question = can_use_tool(&format!("request-{}", count.get()), &id, "Bash", &input);
            let outcome = json!({"outcome": {"outcome": "selected", "optionId": "allow_once"}});
            let near = request_id(1, count.get()).as_number();
            let answer = json!({"jsonrpc": "2.0", "id": near, "result": outcome});
            let call = tool_use(&id, "Bash", &input);
            (call.to_string(), question.to_string(), answer.to_string(), tool_result(&id, "ok", &json!({})).to_string())
        })
        .bench_local_values(|(call, question, answer, result)| {
            session.far_bytes(call.as_bytes());
            session.far_bytes(question.as_bytes());
            session.near_bytes(answer.as_bytes());
            let (_, far) = session.take();
            assert!(far > 0, "the answer reached claude");
            session.far_bytes(result.as_bytes());
            session.take()
        });
}

/// A prompt and its answer of 100 tokens.
#[divan::bench]
fn turn_of_a_hundred_tokens(bencher: Bencher<'_, '_>) {
    let mut session = Shared::new().session(1);
    let line = text_delta("token ");
    let mut count = 0;
    bencher.counter(ItemsCount::new(100usize)).bench_local(|| {
        count += 1;
        session.prompt(count, "Explain it.");
        session.begin_message(&format!("msg_{count}"));
        for _ in 0..100 {
            session.far_bytes(&line);
        }
        session.far(&result(&format!("00000000-0000-4000-8000-{count:012}")));
        session.take()
    });
}

/// What a session's translator holds after a turn of 100 tokens: the column "max alloc". Part of the budget "1,000 sessions in
/// one process: 50 kB each"; the rest of it is measured by the bench `process`.
#[divan::bench(sample_size = 1)]
fn session_after_a_turn(bencher: Bencher<'_, '_>) {
    let shared = Shared::new();
    bencher.bench_local(|| {
        let mut session = shared.session(1);
        session.prompt(2, "Explain it.");
        session.begin_message("msg_1");
        let line = text_delta("token ");
        for _ in 0..100 {
            session.far_bytes(&line);
            session.take();
        }
        session.far(&result("00000000-0000-4000-8000-000000000001"));
        session.near = Vec::new();
        session.far = Vec::new();
        session
    });
}

/// Reading the tables, which every start does. Part of the budget "start to `initialize` answered: 5 ms".
#[divan::bench]
fn tables_read() -> bool {
    Mappings::with_overrides(std::iter::empty::<(&str, &str)>()).is_ok()
}

/// Answering `initialize`.
#[divan::bench(sample_size = 1_000)]
fn initialize_answered(bencher: Bencher<'_, '_>) {
    let params = json!({"protocolVersion": 1, "clientCapabilities": {"fs": {"readTextFile": true}}});
    let line = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).to_string();
    bencher.bench_local(|| AcpAgent::new("Claude Code").route(black_box(line.as_bytes())));
}
