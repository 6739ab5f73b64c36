//! Tests of `dataset: table`.

use std::path::Path;

use serde_json::{Value, json};

use super::Table;
use crate::context::StepError;
use crate::dataset::{Dataset, Goal};
use crate::prepare::Prepare;
use crate::prepare::prepared::PreparedDataset;
use crate::testing::TestContext;

fn context() -> TestContext {
    TestContext::new(assay_cpu::device(1).unwrap())
}

fn make_table(folder: &Path, more: Value) -> Result<PreparedDataset, StepError> {
    let mut config = json!({"path": folder.join("train.csv"), "text": "text", "label": "label"});
    more.as_object().unwrap().iter().for_each(|(key, value)| config[key] = value.clone());
    let config: Table = serde_json::from_value(config).unwrap();
    assert_eq!(config.find_problem(), None);
    config.make_dataset(&mut context())
}

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    files.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).unwrap());
    folder
}

fn letters(count: usize) -> String {
    let row = |at: usize| format!("{},{}\n", char::from(b'a' + at as u8), at % 2 * 10 + 2);
    format!("text,label\n{}", (0..count).map(row).collect::<String>())
}

#[test]
fn records_are_divided_and_labels_sorted() {
    let folder = folder(&[("train.csv", &letters(20))]);
    let found = make_table(folder.path(), json!({"valid": 2, "test_fraction": 0.2})).unwrap();
    assert_eq!([found.train.len(), found.valid.len(), found.test.len()], [14, 2, 4]);
    // 2 before 12: labels that are numbers are sorted by value.
    assert_eq!((found.labels.as_slice(), found.classes), (["2", "12"].map(String::from).as_slice(), 2));
    for split in [&found.train, &found.valid, &found.test] {
        for at in 0..split.len() {
            assert_eq!(split.labels()[at], (split.sequence(at)[0] - u32::from(b'a')) % 2);
        }
    }
    let again = make_table(folder.path(), json!({"valid": 2, "test_fraction": 0.2, "seed": 1})).unwrap();
    assert_ne!(found.test, again.test);
}

#[test]
fn official_splits_stay_what_they_are() {
    let folder = folder(&[
        ("train.csv", &letters(6)),
        ("test.jsonl", "{\"text\": \"zz\", \"label\": 12}\n{\"text\": \"\", \"label\": 2}\n"),
    ]);
    // The formats of the files differ.
    let found = make_table(folder.path(), json!({"test_path": folder.path().join("test.jsonl"), "valid": 1})).unwrap();
    assert_eq!([found.train.len(), found.valid.len(), found.test.len()], [5, 1, 1]);
    assert_eq!((found.test.sequence(0).as_slice(), found.test.labels()), ([122, 122].as_slice(), [1].as_slice()));
    assert_eq!(found.warnings, ["1 records have no text and are left out"]);
    assert_eq!(found.sources.files.len(), 2);
}

#[test]
fn pairs_have_a_separator_and_long_texts_are_cut() {
    let rows: String = (0..9).map(|at| format!("{at}\tabcdef\tgh\n")).collect();
    let folder = folder(&[("pairs.tsv", &rows)]);
    let path = folder.path().join("pairs.tsv");
    let more = json!({"path": path, "header": false, "text": "2", "second_text": "3", "label": "1", "max_length": 8});
    let found = make_table(folder.path(), more).unwrap();
    assert_eq!(found.train.sequence(0), [97, 98, 99, 256, 103, 104]);
    assert_eq!((found.vocabulary.len(), found.vocabulary[256].as_str()), (257, "<sep>"));
    assert_eq!(found.warnings, ["9 records are longer than max_length and are cut"]);
}

#[test]
fn a_table_without_labels_is_for_a_language_model() {
    let folder = folder(&[("train.csv", "text\nabc\nde\nx\nfgh\nij\nkl\n")]);
    let found = make_table(folder.path(), json!({"label": null, "valid": 1, "test": 1})).unwrap();
    assert_eq!((found.goal, found.train.len(), found.train.labels().len()), (Goal::Predict, 3, 0));
    assert_eq!(found.warnings, ["1 records have no text and are left out"]);
}

#[test]
fn what_cannot_be_is_refused() {
    let folder = folder(&[
        ("train.csv", "text,label\na,1\nb,\n"),
        ("many.csv", &format!("text,label\n{}", (0..10_001).map(|at| format!("a,{at}\n")).collect::<String>())),
        ("x.dat", "text,label\n"),
        ("few.csv", "text,label\na,1\n"),
    ]);
    let error = |more| make_table(folder.path(), more).err().unwrap().to_string();
    assert_eq!(error(json!({})), "`train.csv`, line 3: it has no label");
    assert_eq!(error(json!({"label": "class"})), "`train.csv` has no column `class`; it has `text`, `label`");
    let path = |name: &str| folder.path().join(name);
    assert!(error(json!({"path": path("many.csv")})).contains("line 10002: the label column has more than 10000"));
    assert!(error(json!({"path": path("x.dat")})).contains("does not show the format of the table"));
    assert!(error(json!({"path": path("few.csv")})).contains("has no sample"));
    assert!(error(json!({"path": folder.path()})).contains("contains 4 files, and a table is one file"));
}

#[test]
fn a_class_may_have_several_labels() {
    let folder = folder(&[("train.csv", "text,label\na,x1\nb,x2\nc,y\nd,x1\ne,y\n")]);
    let found = make_table(folder.path(), json!({"classes": {"y": ["y"], "x": ["x1", "x2"]}, "valid": 1, "test": 1}));
    assert_eq!(found.unwrap().labels, ["x", "y"]);
    let error = make_table(folder.path(), json!({"classes": {"x": ["x1", "x2"]}})).err().unwrap();
    assert_eq!(error.to_string(), "`train.csv`, line 4: the label `y` is in no class");
}

#[test]
fn classes_that_contradict_are_refused() {
    let message = |label: Option<&str>, classes: Value| {
        let config = json!({"path": "x.csv", "text": "text", "label": label, "classes": classes});
        serde_json::from_value::<Table>(config).unwrap().find_problem().unwrap().1
    };
    let twice = message(Some("label"), json!({"x": ["1", "2"], "y": ["2"]}));
    assert_eq!(twice, "the label `2` is listed twice in classes");
    assert_eq!(message(None, json!({"x": ["1"]})), "classes are given without a label column");
}

#[test]
fn records_in_two_splits_are_counted() {
    let folder = folder(&[("train.csv", &letters(8)), ("test.csv", "text,label\na,2\na,12\nnew,2\n")]);
    let mut context = context();
    let config = json!({
        "dataset": "table", "path": folder.path().join("train.csv"), "test_path": folder.path().join("test.csv"),
        "text": "text", "label": "label", "valid": 1,
    });
    context.run(&Prepare, config).unwrap();
    let shared = ["train", "valid"].map(|split| context.last(&format!("data/test/shared_with/{split}")).unwrap());
    assert_eq!(shared[0] + shared[1], 2.0);
    assert_eq!(context.last("data/contradictions"), Some(1.0));
    let dataset = Dataset::read(&context.artifacts["dataset"]).unwrap();
    assert_eq!((dataset.test.len(), dataset.about.labels), (3, vec!["2".into(), "12".into()]));
}

fn fixtures() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/src/table/fixtures")
}

#[test]
fn folders_of_hugging_face_keep_their_splits_and_classes() {
    for folder in ["hub", "saved"] {
        let found = make_table(&fixtures(), json!({"path": fixtures().join(folder), "valid": 2})).unwrap();
        assert_eq!([found.train.len(), found.valid.len(), found.test.len()], [10, 2, 4], "{folder}");
        // In the order of their numbers.
        assert_eq!(found.labels, ["neg", "pos"]);
        assert_eq!(found.test.labels(), [0, 1, 0, 1]);
        assert_eq!(found.test.sequence(0), "test 0 é".bytes().map(u32::from).collect::<Vec<_>>());
        assert_eq!(found.sources.files.len(), 2);
    }
}

#[test]
fn a_folder_with_only_a_test_split_is_not_trained_on() {
    let hub = fixtures().join("hub/data/test-00000-of-00001.parquet");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("imdb");
    std::fs::create_dir(&path).unwrap();
    std::fs::copy(&hub, path.join("test.parquet")).unwrap();
    let error = make_table(folder.path(), json!({"path": path})).err().unwrap().to_string();
    assert_eq!(error, "`imdb` contains no file of the split `train`: it contains the split `test`");
    // As the official test records, the folder serves.
    let config = json!({"path": fixtures().join("hub"), "test_path": path, "valid": 2});
    assert_eq!(make_table(folder.path(), config).unwrap().test.len(), 4);
    // A file that is named is read, whatever its name.
    assert!(make_table(folder.path(), json!({"path": hub, "valid": 1, "test": 1})).is_ok());
}

#[test]
fn a_class_of_hugging_face_without_samples_is_reported() {
    let mut context = context();
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(fixtures().join("file.arrow"), folder.path().join("train.arrow")).unwrap();
    std::fs::write(folder.path().join("test.arrow"), std::fs::read(fixtures().join("file.arrow")).unwrap()).unwrap();
    let info = r#"{"features": {"small": {"names": ["e", "d", "c", "b", "a"], "_type": "ClassLabel"}}}"#;
    std::fs::write(folder.path().join("dataset_info.json"), info).unwrap();
    let config = json!({"dataset": "table", "path": folder.path(), "text": "kind", "label": "small", "valid": 1});
    context.run(&Prepare, config).unwrap();
    assert_eq!(context.last("data/classes"), Some(5.0));
    assert_eq!(context.last("data/test/shared_with/train").map(|shared| shared > 0.0), Some(true));
    let log = context.logs.join("\n");
    assert!(log.contains("the split `test` has no sample of the classes `e`"), "{log}");
}

#[test]
fn files_without_records_and_columns_that_coincide_are_refused() {
    let folder = folder(&[("train.csv", &letters(9)), ("none.csv", "text,label\n")]);
    let none = folder.path().join("none.csv");
    let error = make_table(folder.path(), json!({"test_path": none})).err().unwrap().to_string();
    assert_eq!(error, "`none.csv` contains no record with text");
    let config: Table = serde_json::from_value(json!({"path": "x.csv", "text": "a", "label": "a"})).unwrap();
    assert_eq!(config.find_problem().unwrap().1, "label is the column `a`, as is text");
}
