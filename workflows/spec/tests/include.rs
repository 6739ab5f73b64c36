//! Files that include others.

use std::collections::BTreeMap;

use assay_spec::{Problems, Workflow, check_with_files};

mod fake;

/// Checks the first file; the others can be included.
fn checked(files: &[(&str, &str)]) -> Result<Workflow, Problems> {
    let texts: BTreeMap<&str, &str> = files.iter().copied().collect();
    let load = |name: &str| texts.get(name).map(|text| (*text).to_owned()).ok_or_else(|| "no such file".to_owned());
    let (file, text) = files[0];
    check_with_files(file, text, &fake::kinds(), &[("seed".into(), "4".into())], &load)
}

fn told(files: &[(&str, &str)]) -> String {
    checked(files).map(|_| ()).unwrap_err().to_string()
}

const MAIN: &str = "name: whole\ninclude: [shared/data.yaml, ./shared/params.yaml]\njobs:\n  last: {uses: report, needs: data, with: {title: \"s${{ params.seed }}\"}}\n";
const DATA: &str =
    "name: ignored\ninclude: params.yaml\njobs:\n  data: {uses: prepare, with: {dataset: text, file: poem.txt}}\n";
const PARAMS: &str = "params: {seed: 3}";

#[test]
fn parameters_and_jobs_of_included_files_belong_to_the_workflow() {
    let files = [("lab/main.yaml", MAIN), ("lab/shared/data.yaml", DATA), ("lab/shared/params.yaml", PARAMS)];
    let workflow = checked(&files).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!(workflow.name, "whole");
    assert_eq!(workflow.jobs.iter().map(|job| job.name.as_str()).collect::<Vec<_>>(), ["data", "last"]);
    assert_eq!(workflow.params["seed"], 4);
    let included: Vec<(&str, &str)> = workflow.included().collect();
    assert_eq!(included[0], ("lab/shared/data.yaml", DATA));
    assert_eq!((included[1].0, included[1].1.trim_end(), included.len()), ("lab/shared/params.yaml", PARAMS, 2));
    let last = workflow.resolve(1, &|_| None).unwrap();
    assert_eq!(last.config["title"], "s4");
}

#[test]
fn problems_are_at_their_place_in_their_file() {
    let with = |data: &str, params: &str| {
        told(&[("lab/main.yaml", MAIN), ("lab/shared/data.yaml", data), ("lab/shared/params.yaml", params)])
    };
    let unknown = with(&DATA.replace("uses: prepare", "uses: prepair"), PARAMS);
    assert!(unknown.starts_with("lab/shared/data.yaml:4:16: unknown step kind `prepair`"), "{unknown}");
    assert!(unknown.contains(" 4 |   data: {uses: prepair"), "{unknown}");
    let expression = with(&DATA.replace("poem.txt", "\"${{ params.sed }}\""), PARAMS);
    assert!(
        expression.contains("lab/shared/data.yaml:4:") && expression.contains("did you mean `seed`?"),
        "{expression}"
    );
    let broken = with(DATA, "params: {seed: [3}");
    assert!(broken.starts_with("lab/shared/params.yaml:1:"), "{broken}");
    let twice =
        with(&format!("{DATA}  last: {{uses: report}}\n"), &format!("{PARAMS}\njobs: {{data: {{uses: report}}}}"));
    for words in [
        "lab/main.yaml:4:3: the job `last` is defined twice",
        "it is in lab/shared/data.yaml:5:3, too",
        "lab/shared/data.yaml:4:3: the job `data` is defined twice",
        "it is in lab/shared/params.yaml:2:8, too",
    ] {
        assert!(twice.contains(words), "{words}: {twice}");
    }
}

#[test]
fn what_cannot_be_included_is_named() {
    let job = "jobs: {a: {uses: report}}";
    let main = |include: &str| format!("include: {include}\n{job}\n");
    let missing = told(&[("lab/main.yaml", &main("../other.yaml"))]);
    assert!(missing.contains("lab/main.yaml:1:10: cannot include `../other.yaml`: no such file"), "{missing}");
    assert!(missing.contains("it is looked for as `other.yaml`"), "{missing}");
    let circle = told(&[("a.yaml", &main("b.yaml")), ("b.yaml", "include: ./x/../a.yaml")]);
    assert!(
        circle.contains("b.yaml:1:10: files include each other in a cycle: a.yaml -> b.yaml -> a.yaml"),
        "{circle}"
    );
    let itself = told(&[("./a.yaml", &main("a.yaml"))]);
    assert!(itself.contains("in a cycle: a.yaml -> a.yaml"), "{itself}");
    for wrong in ["3", "{a: b}", "[\"\"]", "\"${{ params.x }}\""] {
        let error = told(&[("a.yaml", &main(wrong))]);
        assert!(error.contains("a.yaml:1:") && error.contains("`include` takes the names of files"), "{error}");
    }
    let no_jobs = told(&[("a.yaml", "include: b.yaml"), ("b.yaml", "params: {seed: 1}")]);
    assert!(no_jobs.contains("the file has no `jobs`"), "{no_jobs}");
}

#[test]
fn depth_number_and_size_of_included_files_are_bounded() {
    let chain: Vec<(String, String)> =
        (0..20).map(|n| (format!("{n}.yaml"), format!("include: {}.yaml\nparams: {{p{n}: 1}}", n + 1))).collect();
    let chain: Vec<(&str, &str)> = chain.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert!(told(&chain).contains("8.yaml:1:10: `9.yaml` is one file too many"), "{}", told(&chain));
    let names: Vec<String> = (0..80).map(|n| format!("f{n}.yaml")).collect();
    let main = format!("include: [{}]\njobs: {{a: {{uses: report}}}}\n", names.join(", "));
    let mut wide = vec![("main.yaml", main.as_str())];
    wide.extend(names.iter().map(|name| (name.as_str(), "description: x")));
    assert!(told(&wide).contains("is one file too many: at most 64"), "{}", told(&wide));
    let large = format!("description: {}", "x".repeat(1_000_000));
    let mut heavy = vec![("main.yaml", main.as_str())];
    heavy.extend(names.iter().map(|name| (name.as_str(), large.as_str())));
    assert!(told(&heavy).contains("more than 4194304 bytes"), "{}", told(&heavy));
    let too_large =
        told(&[("main.yaml", "include: f.yaml\njobs: {a: {uses: report}}"), ("f.yaml", &"x".repeat(1_100_000))]);
    assert!(too_large.contains("f.yaml:1:1: the file has 1100000 bytes"), "{too_large}");
}
