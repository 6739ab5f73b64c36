//! `assay notes`: a document of notes from the results of a run.

use crate::support::Home;

#[test]
fn notes_become_one_document_and_wrong_lines_are_named() {
    let home = Home::new();
    home.run("tiny.yaml", &[]).succeeded();
    let folder = tempfile::tempdir().expect("a folder");
    let [file, out] = ["tiny.notes.md", "out.html"].map(|name| folder.path().join(name).display().to_string());
    let text =
        "# Tiny\n\n```assay\nresults latest\ncurves latest metric=train/loss\nsweep latest metric=test/loss\n```\n";
    std::fs::write(&file, text).expect("a file");
    let output = home.output(&["notes", &file, "-o", &out]);
    assert!(output.status.success(), "{output:?}");
    let html = std::fs::read_to_string(&out).expect("the document");
    for part in ["<title>Tiny</title>", "class=\"data results\"", "curve-plot", "train[states=4]", "--chart-1:"] {
        assert!(html.contains(part), "{part}: {html}");
    }
    assert!(!html.contains("href=\"/") && !html.contains("<script") && !html.contains("src="), "it refers to nothing");

    std::fs::write(&file, format!("{text}\n```assay\ncurves 1 metric=none\n```\n")).expect("a file");
    let output = home.output(&["notes", &file, "-o", "-"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("tiny.notes.md:10: run 1 has no curve of `none`"), "{said}");
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("Line 10: run 1 has no curve"),
        "the document says it too"
    );
    let missing = home.output(&["notes", "none.notes.md", "-o", "-"]);
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
}
