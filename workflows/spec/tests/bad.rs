//! Files with problems. Each snapshot is the complete output for a person: change it only to improve it.

use assay_spec::check;

mod fake;

/// The output for the file `tests/bad/NAME.yaml`.
fn told(name: &str, text: &str) -> String {
    match check(&format!("{name}.yaml"), text, &fake::kinds(), &[]) {
        Ok(_) => panic!("nothing was found wrong with {name}.yaml"),
        Err(problems) => problems.to_string(),
    }
}

macro_rules! bad {
    ($($name:ident)+) => {
        $(
            #[test]
            fn $name() {
                let name = stringify!($name);
                insta::assert_snapshot!(name, told(name, include_str!(concat!("bad/", stringify!($name), ".yaml"))));
            }
        )+

        #[test]
        fn every_bad_file_is_under_test() {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/bad");
            let files = std::fs::read_dir(folder).unwrap();
            let mut files: Vec<String> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
            files.sort();
            let mut tested = vec![$(concat!(stringify!($name), ".yaml")),+];
            tested.sort();
            assert_eq!(files, tested);
        }
    };
}

bad! {
    // The YAML itself.
    empty not_a_mapping tab open_quote open_bracket indentation second_colon two_documents duplicate_keys merge_key
    tags_and_anchors alias_within_itself numbers deep
    // Keys and shapes.
    kitchen_sink no_jobs jobs_empty unknown_keys shapes job_names wide_line
    // The graph.
    needs cycle step_kind
    // The sweep.
    matrix_values matrix_include_exclude million_cells uncountable_cells too_many_tasks strategy_values each settings
    // The claims.
    claims claim_formulas claim_names claims_empty
    // The configs.
    config_types config_keys config_choices config_check config_in_cells
    // The expressions.
    expression_names expression_syntax expression_values outputs_of_many results conditions
}
