//! tmp
mod fake;
use std::time::Instant;
#[test]
fn speed() {
    let mib = 1 << 20;
    let rep = |s: &str| s.repeat(mib / s.len());
    let mut cases: Vec<(&str, String)> = vec![];
    for s in ["[", "{", "- ", "? ", "{a: ", "[a, ", "a: ", "a:\n", "&a ", "*a ", "!", "!a ", "\"", "'", "|\n", ">\n ", "#", "%", "---\n", "\t", "\u{feff}", "é", "\0", ",", "]", "}", "[]", "{}", "[],", "a\n", "  ", "\n", "\r", "- - - a\n", "${{", "${{}}", "a: ${{ a }}\n", "[?", "{?", "? a\n", "\"\\", "'' ", "&a a: *a\n", ": ", "-\n", "- a\n", "@", "`", "a: b\n", "?\n-\n"] {
        cases.push((Box::leak(s.to_string().into_boxed_str()), rep(s)));
        cases.push((Box::leak(format!("jobs: {{a: {{uses: report, with: {{values: {s}").into_boxed_str()), format!("jobs: {{a: {{uses: report, with: {{values: {}", rep(&s)[..rep(&s).len().min(mib-100)].to_string().chars().collect::<String>())));
        cases.push((Box::leak(format!("block {s}").into_boxed_str()), format!("jobs:\n  a:\n    uses: report\n    with:\n      values:\n        x: {}", s.repeat((mib-100)/s.len()))));
    }
    let keys: String = (0..40000).map(|i| format!("k{i}: {i}\n")).collect();
    cases.push(("keys", keys));
    let jobs: String = "jobs:\n".to_string() + &(0..20000).map(|i| format!("  k{i}: {{uses: report, needs: [k{}]}}\n", i as i64 - 1)).collect::<String>();
    cases.push(("chain", jobs));
    let jobs: String = "jobs:\n".to_string() + &(0..20000).map(|i| format!("  k{i}: {{uses: report, needs: [k{}]}}\n", i + 1)).collect::<String>();
    cases.push(("chain back", jobs));
    let jobs: String = "jobs:\n  k0: {uses: report}\n".to_string() + &(1..20000).map(|i| format!("  k{i}: {{uses: report, needs: [k{}]}}\n", i-1)).collect::<String>();
    cases.push(("chain ok", jobs));
    let exprs: String = "jobs:\n  k0: {uses: report, strategy: {replicates: 10000}, with: {values: [\n".to_string() + &(1..20000).map(|i| format!("\"${{{{ replicate + {i} }}}}\",\n")).collect::<String>()+"]}}";
    cases.push(("exprs", exprs));
    let exprs: String = "params: {l: [".to_string()+ &"1,".repeat(90000) +"]}\njobs:\n  k0: {uses: report, with: {values: [\n" + &(1..500).map(|_| format!("\"${{{{ ({}) | sum }}}}\",\n", vec!["params.l"; 90].join("+"))).collect::<String>()+"]}}";
    cases.push(("sums", exprs));
    cases.push(("wide", "jobs: {k0: {uses: report, strategy: {matrix: {a: [".to_string()+&(0..300).map(|i| format!("{i},")).collect::<String>()+"], b: ["+&(0..300).map(|i| format!("{i},")).collect::<String>()+"]}}, with: {values: {x: \"${{ matrix.a * matrix.b }}\"}}}, k1: {uses: report, needs: k0, strategy: {matrix: {a: [1,2,3]}}}}"));
    for (name, text) in cases {
        eprint!("{name:?} "); let t = Instant::now();
        let r = assay_spec::check("f", &text, &fake::kinds(), &[]);
        let n = match &r { Ok(w) => format!("ok {}", w.tasks.len()), Err(p) => { let s = p.to_string(); format!("{} problems, {}", p.problems.len()+p.omitted, &s.lines().next().unwrap().chars().take(100).collect::<String>()) } };
        let e = t.elapsed(); eprintln!("{:?} {n}", e);
        
    }
}
