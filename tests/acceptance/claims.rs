//! Claims: verdicts below the table of `assay run`, in its JSON, and from `assay claims`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{Home, Ran, fixture};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The verdict on each claim, in order.
fn verdicts(claims: &Value) -> Vec<(&str, &str)> {
    let claims = claims.as_array().map_or(&[][..], Vec::as_slice);
    claims.iter().filter_map(|claim| Some((claim["id"].as_str()?, claim["verdict"].as_str()?))).collect()
}

const EXPECTED: [(&str, &str); 8] = [
    ("faster", "supported"),
    ("ten-times", "supported"),
    ("five-times", "refuted"),
    ("same-size", "supported"),
    ("minimum", "impossible"),
    ("sum", "consistent"),
    ("gpu", "not_tested"),
    ("fp8", "not_tested"),
];

#[test]
fn a_run_ends_with_the_verdicts_on_its_claims() {
    let home = Home::new();
    let ran = home.run("claims.yaml", &[]);
    let claims = &ran.succeeded().json["claims"];
    assert_eq!(verdicts(claims), EXPECTED, "{claims:#}");
    let ten_times = &claims[1];
    let measured = ten_times["measured"]["value"].as_f64().expect("a value");
    assert!((measured - 10.02).abs() < 0.01, "{measured}");
    assert!(ten_times["measured"]["low"].as_f64() < Some(measured) && ten_times["measured"]["n"] == 4);
    assert_eq!(claims[2]["scaled"], "1/16 of the published size");
    assert_eq!(claims[4]["arithmetic"][0]["shown"], "3.5 <= 3");

    // The same results from the cache, in text form.
    let shown = text(&home.output(&["run", &fixture("claims.yaml")]).stdout);
    let table = shown.find("seconds").expect("the table of results");
    let below = shown.find("five-times").expect("the verdicts");
    assert!(table < below, "{shown}");
    for words in [
        "lies outside the claimed 5 ± 10 %",
        "scaled: 1/16 of the published size",
        "mean(3, 4) <= 3 is false: 3.5 <= 3",
        "8 claims: 3 supported, 1 refuted, 1 impossible, 1 consistent, 2 not tested",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
}

#[test]
fn claims_are_run_once_and_a_refuted_one_is_an_exit_code() {
    let home = Home::new();
    let file = fixture("claims.yaml");
    let nothing = Ran::of(home.output(&["claims", &file, "--no-run", "--json"]));
    assert_eq!(nothing.json["files"][0]["claims"][0]["verdict"], "undecided");
    assert_eq!(nothing.code, Some(0));

    let first = Ran::of(home.output(&["claims", &file, "--json"]));
    assert_eq!(first.code, Some(1), "{}", first.stderr);
    assert_eq!(verdicts(&first.json["files"][0]["claims"]), EXPECTED, "{:#}", first.json);
    assert_eq!((&first.json["counts"]["refuted"], &first.json["files"][0]["run"]), (&1.into(), &1.into()));

    // The run is known: nothing runs again.
    let second = Ran::of(home.output(&["claims", &file, "--json"]));
    assert_eq!(second.json["files"][0]["run"], 1);
    // With other parameters it is a different experiment.
    let other = Ran::of(home.output(&["claims", &file, "--json", "-P", "replicates=1"]));
    assert_eq!(other.json["files"][0]["run"], 2);
    assert_eq!(other.json["files"][0]["claims"][0]["verdict"], "undecided");
    assert_eq!(other.code, Some(0));

    // Without a file: the latest run in the store.
    let listed = Ran::of(home.output(&["claims", "--json"]));
    assert_eq!(listed.json["files"][0]["run"], 2);
}

/// The content of a script is part of the work: an earlier run with another script does not decide the claim.
#[test]
fn a_changed_file_is_run_again_before_its_claims_are_judged() {
    let home = Home::new();
    let folder = home.store().with_file_name("scripts");
    std::fs::create_dir_all(&folder).expect("a folder");
    let file = folder.join("scripted.yaml");
    let flow = "jobs:\n  a:\n    strategy: {replicates: 3}\n    uses: command\n    with: {run: [sh, s.sh], files: [s.sh], metrics: {x: {better: \
                lower}}}\nclaims:\n  - {id: small, check: \"a.x < 5\"}\n";
    std::fs::write(&file, flow).expect("the workflow");
    let judge = |value: u32| {
        let script = format!("echo x={value}.$ASSAY_REPLICATE\n");
        std::fs::write(folder.join("s.sh"), script).expect("the script");
        let judged = Ran::of(home.output(&["claims", &file.display().to_string(), "--json"]));
        let verdict = judged.json["files"][0]["claims"][0]["verdict"].as_str().unwrap_or_default().to_owned();
        (verdict, judged.json["files"][0]["run"].as_i64(), judged.stderr)
    };
    let first = judge(1);
    assert_eq!((first.0.as_str(), first.1), ("supported", Some(1)), "{}", first.2);
    let changed = judge(9);
    assert_eq!((changed.0.as_str(), changed.1), ("refuted", Some(2)), "{}", changed.2);
    let restored = judge(1);
    assert_eq!((restored.0.as_str(), restored.1), ("supported", Some(1)), "{}", restored.2);
}

#[test]
fn verdicts_are_written_with_commit_and_machine() {
    let home = Home::new();
    let document = home.store().with_file_name("claims.md");
    let written = document.display().to_string();
    let output = home.output(&["claims", &fixture("claims.yaml"), "--write", &written, "--quiet"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let document = std::fs::read_to_string(document).expect("the document");
    for words in ["Generated by", "Commit ", "\\<b>here", "**refuted**", "Scaled: 1/16 of the published size", "cores"]
    {
        assert!(document.contains(words), "{words}: {document}");
    }
    let columns = |line: &&str| line.starts_with("| **") && line.matches(" | ").count() != 6;
    assert_eq!(document.lines().find(columns), None, "every row has seven columns");
}

#[test]
fn wrong_claims_are_refused_with_their_line() {
    let home = Home::new();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("wrong.yaml");
    let wrong = "claims:\n  - {id: a, arithmetic: \"1 < 2\"}\n  - {id: b, check: \"mean(ten.loss) > 1\"}\n";
    std::fs::write(&file, wrong).expect("the file");
    for command in ["claims", "run", "plan"] {
        let output = home.output(&[command, &file.display().to_string()]);
        assert_eq!(output.status.code(), Some(2));
        let told = text(&output.stderr);
        assert!(told.contains("wrong.yaml:3:26: unknown job `ten`"), "{command}: {told}");
    }
    let missing = home.output(&["claims", "no-such-file.yaml"]);
    assert_eq!(missing.status.code(), Some(2));
}

/// The ledger is valid at both of its sizes. Only contradictions under every fair reading are impossible.
#[test]
fn every_file_of_the_ledger_is_judged() {
    let home = Home::new();
    let folder = assay_tests::root().join("workflows/catalog/claims").display().to_string();
    let mut impossible = BTreeSet::new();
    for scale in ["small", "full"] {
        for entry in std::fs::read_dir(&folder).expect("the ledger").flatten() {
            let file = entry.path().display().to_string();
            let scaled = std::fs::read_to_string(entry.path()).expect("a text").contains("scale: small");
            let scale = format!("scale={scale}");
            let mut args = vec!["claims", &file, "--no-run", "--json"];
            if scaled {
                args.extend(["-P", scale.as_str()]);
            }
            let judged = Ran::of(home.output(&args));
            assert_eq!(judged.code, Some(0), "{file}: {}", judged.stderr);
            let claims = judged.json["files"][0]["claims"].as_array().expect("claims");
            assert!(claims.iter().all(|claim| claim["source"].is_string() && claim["says"].is_string()), "{file}");
            let found = verdicts(&judged.json["files"][0]["claims"]).into_iter();
            impossible.extend(found.filter(|(_, verdict)| *verdict == "impossible").map(|(id, _)| id.to_owned()));
        }
    }
    assert_eq!(impossible.into_iter().collect::<Vec<String>>(), ["babi-mean", "memory-savings-512"]);
    let numbers = Ran::of(home.output(&["claims", &format!("{folder}/pulse-numbers.yaml"), "--json"]));
    let claims = &numbers.json["files"][0]["claims"];
    // They are recorded once, so that `assay claims` and the page `/claims` show them.
    assert_eq!(numbers.json["files"][0]["run"], 1);
    let again = Ran::of(home.output(&["claims", &format!("{folder}/pulse-numbers.yaml"), "--json"]));
    assert_eq!(again.json["files"][0]["run"], 1);
    let recorded = Ran::of(home.output(&["claims", "--json"]));
    assert_eq!(verdicts(&recorded.json["files"][0]["claims"]), verdicts(claims));
    assert_eq!(recorded.json["files"].as_array().map(Vec::len), Some(1));
    let verdict = |id: &str| verdicts(claims).into_iter().find(|(name, _)| *name == id).map(|(_, verdict)| verdict);
    assert_eq!(verdict("lra-averages"), Some("consistent"));
    assert_eq!(verdict("babi-mean"), Some("impossible"));
    assert_eq!(verdict("pg19"), Some("not_tested"));
}
