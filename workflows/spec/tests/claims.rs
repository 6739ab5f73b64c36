//! The meaning of claims in valid files.

use assay_spec::{Axis, Claimed, Comparison, Formula, Tolerance, Workflow, check};

mod fake;

fn checked(claims: &str) -> Workflow {
    let text = format!(
        "params: {{scale: small, states: 64}}
jobs:
  ten:
    strategy: {{matrix: {{states: [16, 64], name: [a b, c]}}, replicates: 3}}
    uses: train
    with: {{data: {{$artifact: x, name: y, bytes: 1}}, model: {{family: ten, dim: 8, states: \"${{{{ matrix.states }}}}\"}}}}
claims:
{claims}"
    );
    check("good.yaml", &text, &fake::kinds(), &[]).unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn a_claim_is_read_with_its_place() {
    let workflow = checked(
        "  - id: more-states-help
    says: Accuracy grows with the number of states
    source: ten-architecture.md
    check: \"mean(ten[states=64, name='a b'].valid/accuracy) > mean(ten[states=16, name=a b].valid/accuracy)\"
    needs: [cuda]
    scaled: \"${{ '' if params.scale == 'full' else '1/16 of the published size' }}\"",
    );
    let [claim] = workflow.claims.as_slice() else { panic!("{:?}", workflow.claims) };
    assert_eq!(claim.place, ("good.yaml".into(), 8));
    assert_eq!(claim.scaled.as_deref(), Some("1/16 of the published size"));
    assert_eq!((claim.needs.as_slice(), claim.exact), (["cuda".to_owned()].as_slice(), false));
    let check = claim.check.as_ref().unwrap();
    assert!(matches!(check.comparison, Some((Comparison::Greater, Formula::Cells(_)))));
    let names: Vec<String> = check.cells().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["ten[states=64, name=a b].valid/accuracy", "ten[states=16, name=a b].valid/accuracy"]);
}

#[test]
fn parameters_may_stand_in_a_claim() {
    let workflow = checked("  - {id: a, check: \"ten[states=${{ params.states }}].valid/loss > 1\"}");
    assert_eq!(workflow.claims[0].check.as_ref().unwrap().text, "ten[states=64].valid/loss > 1");
}

#[test]
fn claimed_values_have_five_forms() {
    let claimed = |text: &str| {
        let workflow = checked(&format!("  - {{id: a, check: \"ten[name=c].valid/loss\", {text}}}"));
        let claim = workflow.claims[0].clone();
        (claim.claimed.unwrap(), claim.check.unwrap().left)
    };
    let relative = Claimed::Value { value: 2.5, tolerance: Tolerance::Relative(0.1) };
    assert_eq!(claimed("claimed: 2.5, tolerance: 10%").0, relative);
    assert_eq!(relative.band(), (2.25, 2.75));
    let absolute = Claimed::Value { value: 0.6, tolerance: Tolerance::Absolute(0.05) };
    assert_eq!(claimed("claimed: 60%, tolerance: 0.05").0, absolute);
    assert_eq!(claimed("claimed: {at_least: 0.5}").0, Claimed::AtLeast(0.5));
    assert_eq!(claimed("claimed: {at_most: 1e3}").0.band(), (f64::NEG_INFINITY, 1000.0));
    assert_eq!(claimed("claimed: {between: [1, 2]}").0, Claimed::Between(1.0, 2.0));
    let (value, formula) = claimed("claimed: {exponent: 1.0, over: states}, tolerance: 0.1");
    assert_eq!(value, Claimed::Value { value: 1.0, tolerance: Tolerance::Absolute(0.1) });
    assert!(matches!(formula, Formula::Exponent(_, Axis::Matrix(axis)) if axis == "states"));
}

#[test]
fn a_file_of_claims_alone_has_no_jobs() {
    let text =
        "claims: [{id: mean, says: A mean, arithmetic: \"round(mean(1, 2, 4), 2) == 2.33\"}, {id: gpu, needs: cuda}]";
    let workflow = check("f.yaml", text, &fake::kinds(), &[]).unwrap_or_else(|problems| panic!("{problems}"));
    assert!(workflow.jobs.is_empty() && workflow.tasks.is_empty());
    assert_eq!(workflow.claims.len(), 2);
    assert_eq!(workflow.claims[0].arithmetic[0].text, "round(mean(1, 2, 4), 2) == 2.33");
}

#[test]
fn an_empty_claim_is_refused() {
    let problems = check("f.yaml", "claims: [{}]", &fake::kinds(), &[]).expect_err("a claim without an id");
    assert!(problems.to_string().contains("a claim has no `id`"), "{problems}");
}
