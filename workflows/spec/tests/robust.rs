//! No text makes the checker panic, and none makes it use unbounded memory.

use assay_spec::{Problems, Workflow, check};
use memory::measure_peak;
use proptest::prelude::*;

mod fake;
mod memory;

fn read(text: &str) -> Result<Workflow, Problems> {
    check("f.yaml", text, &fake::kinds(), &[])
}

/// Checks a text, and the invariants of every result. Returns the first message, or nothing.
fn examine(text: &str) -> String {
    match read(text) {
        Ok(workflow) => {
            for (place, task) in workflow.tasks.iter().enumerate() {
                assert!(task.needs.iter().all(|&need| need < place), "{} needs a later task", task.address);
                assert!(task.needs.is_sorted() && task.each.is_none_or(|each| task.needs.contains(&each)));
                assert!(!task.resources.is_empty());
            }
            String::new()
        }
        Err(problems) => {
            assert!(!problems.problems.is_empty() && problems.problems.is_sorted());
            let rendered = problems.to_string();
            for problem in &problems.problems {
                assert!(problem.line >= 1 && problem.column >= 1 && problem.length >= 1, "{problem:?}");
            }
            rendered.lines().next().unwrap_or_default().to_owned()
        }
    }
}

/// The messages of the tasks that cannot be resolved as long as no task has outputs.
fn resolve_all(text: &str) -> Vec<String> {
    let Ok(workflow) = read(text) else { return Vec::new() };
    let resolve = |task| workflow.resolve(task, &|_| None).err().map(|error| error.to_string());
    (0..workflow.tasks.len()).filter_map(resolve).collect()
}

/// Examines a text. Fails if that allocates more than `bytes`.
fn examine_within(bytes: usize, text: &str) -> String {
    let (first, peak) = measure_peak(|| examine(text));
    assert!(peak <= bytes, "{peak} bytes were allocated, at most {bytes} are allowed");
    first
}

const MIB: usize = 1 << 20;

#[test]
fn a_billion_laughs_are_refused_in_little_memory() {
    let mut text = String::from("params:\n  a0: &a0 [lol, lol]\n");
    for level in 1..40 {
        let below = level - 1;
        text.push_str(&format!("  a{level}: &a{level} [*a{below}, *a{below}, *a{below}, *a{below}]\n"));
    }
    text.push_str("jobs: {a: {uses: report}}\n");
    let first = examine_within(64 * MIB, &text);
    assert!(first.contains("more than 100000 values") || first.contains("behind anchors"), "{first}");
}

#[test]
fn laughs_with_long_texts_or_in_mappings_are_refused_as_well() {
    let long = "x".repeat(60_000);
    let text = format!("params: [&a {long}, {}]\njobs: {{a: {{uses: report}}}}\n", "*a,".repeat(90_000));
    let first = examine_within(64 * MIB, &text);
    assert!(first.contains("4 MiB of text"), "{first}");
    let mut text = String::from("params:\n  a0: &a0 {x: 1}\n");
    for level in 1..60 {
        text.push_str(&format!("  a{level}: &a{level} {{x: *a{0}, y: *a{0}}}\n", level - 1));
    }
    let first = examine_within(64 * MIB, &text);
    assert!(first.contains("values"), "{first}");
}

#[test]
fn anchors_within_anchors_do_not_add_up() {
    let opening: String = (0..60).map(|level| format!("&a{level} [")).collect();
    let text = format!("params: {opening}{}{}", "x,".repeat(30_000), "]".repeat(60));
    let first = examine_within(128 * MIB, &text);
    assert!(first.contains("behind anchors"), "{first}");
}

#[test]
fn a_matrix_of_a_million_cells_is_refused_in_little_memory() {
    let first = examine_within(4 * MIB, include_str!("bad/million_cells.yaml"));
    assert!(first.contains("1000000 cells"), "{first}");
    let first = examine_within(4 * MIB, include_str!("bad/uncountable_cells.yaml"));
    assert!(first.contains("more cells than can be counted"), "{first}");
}

#[test]
fn many_matrices_do_not_add_up() {
    let numbers: String = (0..300).map(|n| format!("{n},")).collect();
    let jobs: String = (0..100)
        .map(|job| format!("  j{job}: {{uses: report, strategy: {{matrix: {{a: [{numbers}], b: *b}}}}}}\n"))
        .collect();
    let text = format!("params: {{b: &b [{numbers}]}}\njobs:\n{jobs}");
    // The first matrix fits, and its 90,000 tasks need about 3 KiB each; no other matrix is built.
    let first = examine_within(400 * MIB, &text);
    assert!(first.contains("with the 90000 cells of this matrix the file has more than 100000"), "{first}");
}

#[test]
fn large_values_are_not_copied_into_every_cell() {
    let numbers = |count: usize| (0..count).map(|n| format!("{n},")).collect::<String>();
    let text = format!(
        "jobs: {{a: {{uses: report, strategy: {{matrix: {{n: [{}], l: [[{}]]}}}}}}}}",
        numbers(1_000),
        numbers(50_000)
    );
    let first = examine_within(64 * MIB, &text);
    assert!(first.contains("hold more than"), "{first}");
    let text = format!(
        "jobs:\n  a: {{uses: report, strategy: {{matrix: {{l: [[{}]]}}}}}}\n  b: {{uses: report, strategy: {{each: a, matrix: {{n: [{}]}}}}}}\n",
        numbers(50_000),
        numbers(1_000)
    );
    let first = examine_within(64 * MIB, &text);
    assert!(first.contains("matrix values are more than"), "{first}");
}

#[test]
fn expressions_cannot_multiply_what_they_start_from() {
    let list = "1,".repeat(50_000);
    let sum = ["params.l"; 48].join("+");
    let expressions: String = (0..50).map(|n| format!("      x{n}: ${{{{ ({sum}) | sum }}}}\n")).collect();
    let text =
        format!("params: {{l: [{list}]}}\njobs:\n  a:\n    uses: report\n    with:\n     values:\n{expressions}");
    // Far too large to be evaluated during the check: it is evaluated when the task is resolved.
    assert_eq!(examine_within(128 * MIB, &text), "");
    let strategy = format!(
        "params: {{l: [{list}]}}\njobs:\n  a:\n    uses: report\n    strategy:\n      replicates: ${{{{ ({sum}) | sum }}}}\n      max-parallel: ${{{{ ({sum}) | sum }}}}\n      fail-fast: ${{{{ ({sum}) | sum }}}}\n"
    );
    assert!(examine_within(64 * MIB, &strategy).contains("take too long"));
}

#[test]
fn arguments_of_filters_are_not_multiplied_by_lists() {
    let (texts, numbers) = ("ab,".repeat(10_000), "1,".repeat(10_000));
    let items = "{a: 1},".repeat(10_000);
    let text = "x".repeat(60_000);
    let cases = [
        ("params.l | map('join', params.t) | list", "without its arguments"),
        ("params.n | map('sum', none, params.t)", "too many arguments"),
        ("params.l | map('default', params.t)", "without its arguments"),
        ("params.l | sum(start='')", "no `start`"),
        ("params.l | sum(none, params.t)", "too many arguments"),
        ("params.i | map(attribute='b', default=params.t) | string", "up to 64 bytes"),
        ("params.i | selectattr('a', 'in', params.n)", "comparisons"),
        ("params.l | map('nothing')", "takes the name of a filter"),
    ];
    for (expression, expected) in cases {
        let file = format!(
            "params: {{l: [{texts}], n: [{numbers}], i: [{items}], t: {text}}}\njobs:\n  a:\n    uses: report\n    strategy:\n      \
             matrix: {{x: [1]}}\n      replicates: \"${{{{ {expression} }}}}\"\n"
        );
        let first = examine_within(160 * MIB, &file);
        assert!(first.contains(expected), "{expression}: {first}");
    }
}

#[test]
fn hints_for_many_wrong_names_take_no_time() {
    // Comparing 10,000 long names with 256 known ones each would take seconds: 10 billion table cells.
    let long = |n: usize| format!("{}{n:05}", "q".repeat(58));
    let jobs: String = (0..256).map(|n| format!("  {}: {{uses: report}}\n", long(n))).collect();
    let needs: String = (0..10_000).map(|n| format!("z{}, ", &long(n)[1..])).collect();
    let text = format!("jobs:\n{jobs}  last: {{uses: report, needs: [{needs}]}}\n");
    let Err(problems) = read(&text) else { panic!("the needs are unknown") };
    assert_eq!(problems.problems.len() + problems.omitted, 10_000);
    // The first problems have hints; those beyond the displayed ones are not computed.
    assert!(problems.problems[0].hint.is_some());
}

#[test]
fn pathological_texts_end() {
    let parts = [
        "[",
        "{",
        "- ",
        "? ",
        "{a: ",
        "[a, ",
        "a: ",
        "a:\n",
        "&a ",
        "*a ",
        "!",
        "!a ",
        "\"",
        "'",
        "|\n",
        ">\n ",
        "#",
        "%",
        "---\n",
        "\t",
        "\u{feff}",
        "é",
        "\0",
        ",",
        "]",
        "}",
        "[]",
        "[],",
        "a\n",
        "\n",
        "\r",
        "${{",
        "${{}}",
        "'' ",
        ": ",
        "a: ${{ a }}\n",
        "[?",
        "? a\n",
        "\"\\",
        "&a a: *a\n",
        "-\n",
        "\u{85}",
        "\u{2028}",
        "<<: *a\n",
        "a: [b]\n",
    ];
    for part in parts {
        let many = part.repeat(200_000 / part.len());
        for text in [
            many.clone(),
            format!("jobs: {{a: {{uses: report, with: {{values: {many}"),
            format!("jobs:\n  a:\n    uses: report\n    with:\n      values:\n        x: {many}"),
            format!("jobs:\n  a:\n    uses: report\n    strategy:\n      matrix:\n        x: [{many}]"),
        ] {
            examine_within(256 * MIB, &text);
        }
    }
}

#[test]
fn deep_expressions_fit_a_small_stack() {
    // As many as are allowed, and as many as the length allows.
    let nested = |open: &str, core: &str, close: &str| -> Vec<String> {
        let most = (990 - core.len()) / (open.len() + close.len());
        let sizes = [1, 6, 10, 11, 12, 13, 49, 66, 98, 99, 100, 180, 198, 199, most];
        let sizes = sizes.into_iter().filter(|size| *size <= most);
        sizes.map(|size| format!("{}{core}{}", open.repeat(size), close.repeat(size))).collect()
    };
    let expressions = [
        nested("(", "1", ")"),
        nested("[", "1", "]"),
        nested("{1:", "1", "}"),
        nested("range(", "1", ")"),
        nested("not ", "true", ""),
        nested("-", "1", ""),
        nested("1+", "1", ""),
        nested("1**", "1", ""),
        nested("1*", "1", ""),
        nested("params.a~", "1", ""),
        nested("", "1", "|abs"),
        nested("", "params", ".a"),
        nested("", "params", "[0]"),
        nested("1 if 1 else ", "1", ""),
        nested("1 and ", "1", ""),
        nested("1<", "1", ""),
        nested("", "1", " is odd"),
        nested("", "range", "(1)"),
        nested("params[", "1", "]"),
    ];
    // Half of a thread's default, in a build without optimisation.
    let small = std::thread::Builder::new().stack_size(MIB);
    let all = move || {
        for expression in expressions.iter().flatten() {
            let text = format!("jobs: {{a: {{uses: report, with: {{values: {{x: \"${{{{ {expression} }}}}\"}}}}}}}}");
            examine(&text);
        }
    };
    small.spawn(all).unwrap().join().unwrap();
}

/// Text with a meaning for the parser, the expression language or the checker.
#[rustfmt::skip]
const PIECES: &[&str] = &[
    "jobs", "params", "uses", "with", "needs", "strategy", "matrix", "include", "exclude", "each", "replicates",
    "resources", "retry", "report", "train", "prepare", "quantize", "ten", "data", "a", "b", "states", ": ", ":\n",
    "\n", "  ", "    ", "- ", "[", "]", "{", "}", ", ", "\"", "'", "|\n", ">-\n", "&x ", "*x", "<<", "!!str ", "# ",
    "---\n", "\t", "${{ ", " }}", "params.", "matrix.", "needs.", ".outputs.", ".cells", "each.", "replicate", " | ",
    "sum", "map(attribute=", "range(", "(", ")", " * ", " ** ", " // ", " % ", " + ", " ~ ", " if ", " else ", " is ",
    " not ", " in ", "0", "1", "16", "-9223372036854775808", "18446744073709551615", "1e308", "0.5", "017", "null",
    "yes", "é", "\u{feff}", "\r\n", "\\", "job", "#2", "=", "none", "true",
];

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![9 => proptest::sample::select(PIECES).prop_map(str::to_owned), 1 => "\\PC{0,6}"]
}

proptest! {
    #[test]
    fn any_text_is_answered(text in "\\PC{0,200}|[\\x00-\\x7f\n]{0,200}") {
        examine_within(64 * MIB, &text);
    }

    #[test]
    fn any_pieces_are_answered(pieces in proptest::collection::vec(piece(), 0..60)) {
        examine_within(64 * MIB, &pieces.concat());
    }

    #[test]
    fn a_damaged_file_is_answered(
        edits in proptest::collection::vec((any::<proptest::sample::Index>(), 0_usize..40, piece()), 1..8),
        whole in proptest::sample::select(&[include_str!("good/sweep.yaml"), include_str!("good/plain.yaml")][..]),
    ) {
        let mut text: Vec<char> = whole.chars().collect();
        for (place, length, piece) in edits {
            let from = place.index(text.len() + 1);
            let to = (from + length).min(text.len());
            text.splice(from..to, piece.chars());
        }
        examine_within(64 * MIB, &text.into_iter().collect::<String>());
    }

    #[test]
    fn any_expression_is_answered(pieces in proptest::collection::vec(piece(), 0..20), quoted in any::<bool>()) {
        let expression = pieces.concat().replace(['\n', '\r', '\t'], " ");
        let expression = if quoted { expression.replace('\\', "\\\\").replace('"', "\\\"") } else { expression.replace('\'', "''") };
        let quote = if quoted { '"' } else { '\'' };
        let text = format!(
            "params: {{a: 1, b: [1, x], ten: {{a: 0.5}}}}\njobs:\n  data: {{uses: prepare, with: {{dataset: text, file: x}}}}\n  \
             ten:\n    needs: data\n    uses: report\n    strategy: {{matrix: {{a: [1, x], b: [-9223372036854775808]}}, replicates: 2}}\n    \
             with: {{values: {{x: {quote}${{{{ {expression} }}}}{quote}}}}}\n"
        );
        examine_within(64 * MIB, &text);
        // Under the lock of measurements, so that it is not counted in other tests.
        let (resolved, _) = measure_peak(|| resolve_all(&text));
        prop_assert!(resolved.iter().all(|error| !error.is_empty()));
    }
}
