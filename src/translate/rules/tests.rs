use super::*;
use serde_json::json;

fn rules(allow: &[&str], ask: &[&str], deny: &[&str]) -> Rules {
    let (rules, rejected) = Rules::parse(allow, ask, deny, Some(Path::new("/home/u")));
    assert_eq!(rejected, []);
    rules
}

fn decide(rules: &Rules, name: &str, input: Value) -> Option<Decision> {
    let Value::Object(input) = input else { panic!("an object") };
    rules.decide(name, &input, Path::new("/w/p")).map(|verdict| verdict.decision)
}

fn bash(rules: &Rules, command: &str) -> Option<Decision> {
    decide(rules, "Bash", json!({"command":command}))
}

const ALLOW: Option<Decision> = Some(Decision::Allow);
const DENY: Option<Decision> = Some(Decision::Deny);

#[test]
fn commands_are_allowed_by_their_beginning() {
    for rule in ["Bash(git *)", "Bash(git:*)"] {
        let rules = rules(&[rule], &[], &[]);
        for command in ["git", "git status", "git log 2>&1", "  git push -f\n", "git a && git b | git c"] {
            assert_eq!(bash(&rules, command), ALLOW, "{rule} {command:?}");
        }
        for command in [
            "gitx",
            "git-x",
            "git a && rm b",
            "git a; rm b",
            "git a | sh",
            "git a\nrm b",
            "git $(rm b)",
            "git `rm b`",
            "git \"$(rm b)\"",
            "git log > /etc/x",
            "git a & rm b",
            "A=1 git a",
            "git a #\nrm b",
            "",
            "cd x && git a",
            "git 'a",
            "(git a)",
            "git <(rm b)",
            "git a || rm b",
            "git x\n[12 more bytes left out]",
            "git a\rrm b",
        ] {
            assert_eq!(bash(&rules, command), None, "{rule} {command:?}");
        }
    }
}

#[test]
fn commands_are_allowed_exactly_by_a_star_and_altogether() {
    let exact = rules(&["Bash(npm test)", "Bash(a && b > c)"], &[], &[]);
    assert_eq!(bash(&exact, "npm test"), ALLOW);
    assert_eq!(bash(&exact, "npm test && npm test"), ALLOW);
    assert_eq!(bash(&exact, "a && b > c"), ALLOW);
    assert_eq!(bash(&exact, "npm test x"), None);
    assert_eq!(bash(&exact, "a && b > d"), None);
    let star = rules(&["Bash(npm run test:* --x)", "Bash(* --version)", "Bash(ls*)"], &[], &[]);
    assert_eq!(bash(&star, "npm run test:unit --x"), ALLOW);
    assert_eq!(bash(&star, "node --version"), ALLOW);
    assert_eq!(bash(&star, "lsof"), ALLOW);
    assert_eq!(bash(&star, "rm x; node --version"), None);
    for all in ["Bash", "Bash(*)", "Bash()", "Bash(:*)", "*"] {
        assert_eq!(bash(&rules(&[all], &[], &[]), "a $(b) > c"), ALLOW, "{all}");
    }
}

#[test]
fn what_is_forbidden_is_forbidden_in_every_part() {
    let rules = rules(&["Bash"], &["Bash(git push *)"], &["Bash(rm *)", "Bash(curl:*)"]);
    for command in
        ["rm x", "a && rm x", "a $(rm x)", "sudo rm x", "a | curl x", "bash -c 'rm x'", "/bin/rm x", "(a; rm x)"]
    {
        assert_eq!(bash(&rules, command), DENY, "{command}");
    }
    assert_eq!(bash(&rules, "a && git push -f"), Some(Decision::Ask));
    assert_eq!(bash(&rules, "git push; rm x"), DENY);
    assert_eq!(bash(&rules, "echo 'rm x'"), ALLOW);
}

#[test]
fn files_are_allowed_by_their_place() {
    let rules = rules(&["Edit(src/**)", "Read(~/x/**)", "Write(/out/*)"], &[], &["Edit(*.key)", "Read(//etc/**)"]);
    let file = |name, path: &str| decide(&rules, name, json!({"file_path":path}));
    assert_eq!(file("Edit", "/w/p/src/a"), ALLOW);
    assert_eq!(file("Write", "src/a"), ALLOW);
    assert_eq!(file("Edit", "/w/p/src/../a"), None);
    assert_eq!(file("Read", "/w/p/src/a"), None);
    assert_eq!(file("Read", "/home/u/x/y"), ALLOW);
    assert_eq!(file("Read", "/home/u/x/../y"), None);
    assert_eq!(file("Write", "/w/p/out/a"), ALLOW);
    assert_eq!(file("Edit", "/w/p/out/a"), None);
    assert_eq!(file("Write", "/w/p/src/a.key"), DENY);
    assert_eq!(file("Read", "/w/../etc/passwd"), DENY);
    assert_eq!(decide(&rules, "Grep", json!({"pattern":"x","path":"/etc/ssl"})), DENY);
    assert_eq!(decide(&rules, "Grep", json!({"pattern":"x"})), None);
    assert_eq!(decide(&rules, "Edit", json!({})), None);
}

#[test]
fn pages_are_allowed_by_their_host() {
    let rules =
        rules(&["WebFetch(domain:example.com)", "WebFetch(domain:*.docs.rs)"], &[], &["WebFetch(domain:evil.com)"]);
    let page = |url: &str| decide(&rules, "WebFetch", json!({"url":url}));
    assert_eq!(page("https://example.com/x?y"), ALLOW);
    assert_eq!(page("HTTPS://Example.COM.:8443"), ALLOW);
    assert_eq!(page("https://a.docs.rs/x"), ALLOW);
    for url in [
        "https://example.com.evil.org",
        "https://sub.example.com",
        "https://example.com@other.org",
        "https://other.org/example.com",
        "https://other.org\\@example.com",
        "https://example.com https://other.org",
    ] {
        assert_eq!(page(url), None, "{url}");
    }
    assert_eq!(page("https://example.com https://evil.com"), DENY);
    // Not understood: the rule that forbids cannot be shown not to be about it.
    assert_eq!(page("ftp://example.com"), DENY);
}

#[test]
fn tools_of_servers_are_allowed_by_name() {
    let tool = |rule: &str, name: &str| decide(&rules(&[rule], &[], &[]), name, json!({}));
    for rule in ["mcp__s", "mcp__s__*", "mcp__s__t", "mcp__s__t*", "*"] {
        assert_eq!(tool(rule, "mcp__s__t"), ALLOW, "{rule}");
    }
    for rule in ["mcp__s", "mcp__s__*", "mcp__s__t"] {
        for name in ["mcp__sx__t", "mcp__s2", "mcp__x__s__t", "Bash"] {
            assert_eq!(tool(rule, name), None, "{rule} {name}");
        }
    }
    assert_eq!(tool("mcp__s__t", "mcp__s__t2"), None);
    assert_eq!(tool("Edit", "Write"), ALLOW);
    assert_eq!(tool("Write", "Edit"), None);
    assert_eq!(tool("Read", "Grep"), ALLOW);
    let none = rules(&["mcp__s"], &[], &["mcp__*", "Task(explore)"]);
    assert_eq!(decide(&none, "mcp__s__t", json!({})), DENY);
    assert_eq!(decide(&none, "Task", json!({"subagent_type":"explore"})), DENY);
    assert_eq!(decide(&none, "Task", json!({"subagent_type":"plan"})), None);
    assert!(none.forbids_tool("mcp__s__t") && !none.forbids_tool("Task") && none.restricts());
}

#[test]
fn rules_that_are_not_understood_are_named() {
    let (rules, rejected) = Rules::parse(
        &["Bash(git *", "mcp__*", "WebSearch(x)", "Re ad", "Edit(!a)", "WebFetch(example.com)", "Read(~/x)"],
        &[],
        &["NoSuch(x)", "Read(~v/x)"],
        None,
    );
    assert_eq!(rejected.len(), 9);
    assert!(rules.is_empty());
    assert_eq!(rejected[0].to_string(), "the allow rule `Bash(git *` is not followed: its parenthesis is not closed");
    assert_eq!(rejected[7].decision, Decision::Deny);
}

#[test]
fn lists_are_parted_outside_of_parentheses() {
    assert_eq!(split_list("Bash(git *), Edit Read(a, b) ,,mcp__s"), ["Bash(git *)", "Edit", "Read(a, b)", "mcp__s"]);
    assert_eq!(split_list(r"Bash(echo \) x),Edit"), [r"Bash(echo \) x)", "Edit"]);
    assert_eq!(bash(&rules(&[r"Bash(echo \(x\))"], &[], &[]), "echo (x)"), ALLOW);
}

#[test]
fn a_hosts_answer_changes_the_rules() {
    let mut rules = rules(&[], &[], &["Bash(rm *)"]);
    let updates = json!([
        {"type":"addRules","behavior":"allow","destination":"localSettings","rules":[{"toolName":"Bash","ruleContent":"npm test"},{"toolName":"Odd","ruleContent":"x"}]},
        {"type":"addRules","behavior":"allow","destination":"session","rules":[{"toolName":"WebSearch"},{"toolName":"Edit","ruleContent":null}]},
        {"type":"setMode","mode":"acceptEdits","destination":"session"},
        {"type":"addDirectories","directories":["/extra"],"destination":"session"},
        {"type":"later"}, 5, {"type":7},
    ]);
    let applied = rules.apply(&read_updates(&updates));
    assert_eq!(applied.mode, Some(PermissionMode::AcceptEdits));
    assert_eq!(applied.add_directories, [PathBuf::from("/extra")]);
    assert_eq!(applied.rejected.iter().map(|r| r.rule.as_str()).collect::<Vec<_>>(), ["Odd(x)"]);
    assert_eq!(bash(&rules, "npm test"), ALLOW);
    assert_eq!(decide(&rules, "WebSearch", json!({})), ALLOW);
    assert_eq!(decide(&rules, "Edit", json!({"file_path":"/x"})), ALLOW);
    let updates = json!([
        {"type":"replaceRules","behavior":"allow","destination":"session","rules":[{"toolName":"Read"}]},
        {"type":"removeRules","behavior":"allow","destination":"localSettings","rules":[{"toolName":"Bash","ruleContent":"npm test"}]},
        {"type":"removeRules","behavior":"deny","destination":"session","rules":[{"toolName":"Bash","ruleContent":"rm *"}]},
    ]);
    rules.apply(&read_updates(&updates));
    assert_eq!(decide(&rules, "WebSearch", json!({})), None);
    assert_eq!(decide(&rules, "Read", json!({"file_path":"/x"})), ALLOW);
    assert_eq!(bash(&rules, "npm test"), None);
    assert_eq!(bash(&rules, "rm x"), DENY, "a rule of the start stays");
}

#[test]
fn several_places_are_one_decision() {
    let verdict = |decision| Some(Verdict { decision, rule: String::new() });
    let of = |list: Vec<Option<Verdict>>| Verdict::of_all(list).map(|v| v.decision);
    assert_eq!(of(vec![verdict(Decision::Allow), None]), None);
    assert_eq!(of(vec![verdict(Decision::Allow), verdict(Decision::Allow)]), ALLOW);
    assert_eq!(of(vec![None, verdict(Decision::Deny)]), DENY);
    assert_eq!(of(vec![verdict(Decision::Allow), verdict(Decision::Ask)]), Some(Decision::Ask));
    assert_eq!(of(vec![]), None);
}
