//! The JSON Schema for editors.

use assay_spec::{FAILURE_CLASSES, json_schema};
use serde_json::Value;

mod fake;

#[test]
fn the_schema_is_what_editors_are_given() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&json_schema(&fake::kinds())).unwrap());
}

#[test]
fn every_reference_in_it_leads_somewhere() {
    let schema = json_schema(&fake::kinds());
    let mut found = 0;
    visit(&schema, &mut |target| {
        found += 1;
        assert!(schema.pointer(target.trim_start_matches('#')).is_some(), "{target}");
    });
    assert!(found > 20);
}

fn visit(value: &Value, check: &mut impl FnMut(&str)) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(target)) = map.get("$ref") {
                check(target);
            }
            map.values().for_each(|value| visit(value, check));
        }
        Value::Array(items) => items.iter().for_each(|value| visit(value, check)),
        _ => {}
    }
}

#[test]
fn the_failure_classes_are_listed() {
    let schema = json_schema(&[]);
    let text = schema.to_string();
    for (name, about) in FAILURE_CLASSES {
        assert!(text.contains(&format!("\"const\":\"{name}\"")) && text.contains(about), "{name}");
    }
}
