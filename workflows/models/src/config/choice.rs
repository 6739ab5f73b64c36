//! A model config in a workflow file: with a width, or with a number of parameters from which the width is computed.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::finding::Finding;
use super::model::ModelConfig;
use super::task::Task;

/// The maximum deviation of the number of parameters from `parameters`, as a fraction of it.
const TOLERANCE: f64 = 0.05;
/// The largest `dim`.
const MAX_DIM: usize = 8192;

/// A model config in which `parameters: 200k` may replace `dim`.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelChoice {
    /// With the given `dim`, or 1.
    config: ModelConfig,
    dim: Option<Value>,
    /// As written.
    parameters: Option<Value>,
}

/// A config with a known width.
#[derive(Debug, Clone, PartialEq)]
pub struct SizedModel {
    /// The config, with its `dim`.
    pub config: ModelConfig,
    /// The number of learned values for the task.
    pub parameters: u64,
    /// Whether `dim` was computed from `parameters`.
    pub is_chosen: bool,
}

impl From<ModelConfig> for ModelChoice {
    fn from(config: ModelConfig) -> Self {
        let dim = Some(config.common().dim.into());
        ModelChoice { config, dim, parameters: None }
    }
}

impl ModelChoice {
    /// The config; its `dim` has no meaning if `parameters` is given.
    #[must_use]
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// Whether the width is computed from a number of parameters.
    #[must_use]
    pub fn has_target(&self) -> bool {
        self.parameters.is_some()
    }

    /// All problems of the config that its schema cannot express. Whether the number of parameters is reachable depends on
    /// the task: see [`ModelChoice::resolve`].
    #[must_use]
    pub fn validate(&self) -> Vec<Finding> {
        let Some(parameters) = &self.parameters else {
            return match &self.dim {
                Some(_) => self.config.validate(),
                None => vec![Finding::new(
                    "dim",
                    "the model has neither `dim` nor `parameters`",
                    "give the width, such as `dim: 64`, or the size, such as `parameters: 200k`",
                )],
            };
        };
        if self.dim.is_some() {
            let message = "`dim` and `parameters` both set the width of the model";
            return vec![Finding::new("parameters", message, "give one of them")];
        }
        if let Err(message) = parse_count(parameters) {
            return vec![Finding::new("parameters", message, "give a number such as 200_000, 200k or 1.5M")];
        }
        match self.widths().next() {
            Some(_) => Vec::new(),
            // No width is valid: the problem is another option, which any width reports.
            None => with_dim(&self.config, 64).validate(),
        }
    }

    /// The config with its width, and its exact size for a task. Of the widths that the other options allow (multiples of
    /// `heads`, for instance), the one whose size is nearest to `parameters` is used; on a tie, the smaller one.
    ///
    /// # Errors
    /// The first of [`ModelChoice::validate`]; or that no width is within 5 % of `parameters`, with the nearest sizes.
    pub fn resolve(&self, task: &Task) -> Result<SizedModel, Finding> {
        if let Some(finding) = self.validate().into_iter().next() {
            return Err(finding);
        }
        let size_of = |config: ModelConfig, is_chosen| {
            let parameters = config.parameter_count(task);
            SizedModel { config, parameters, is_chosen }
        };
        let Some(target) = self.parameters.as_ref().and_then(|value| parse_count(value).ok()) else {
            return Ok(size_of(self.config.clone(), false));
        };
        // The size increases with the width.
        let (mut below, mut above) = (None, None);
        for config in self.widths() {
            let size = size_of(config, true);
            if size.parameters <= target {
                below = Some(size);
            } else {
                above = Some(size);
                break;
            }
        }
        let distance = |size: &SizedModel| size.parameters.abs_diff(target);
        let nearest = [&below, &above].into_iter().flatten().min_by_key(|size| distance(size));
        match nearest {
            Some(size) if distance(size) as f64 <= TOLERANCE * target as f64 => Ok(size.clone()),
            _ => Err(unreachable_target(target, &[below, above])),
        }
    }

    /// The config with each width that its other options allow, in ascending order.
    fn widths(&self) -> impl Iterator<Item = ModelConfig> + '_ {
        (1..=MAX_DIM).map(|dim| with_dim(&self.config, dim)).filter(|config| config.validate().is_empty())
    }
}

fn unreachable_target(target: u64, nearest: &[Option<SizedModel>]) -> Finding {
    let name = |size: &SizedModel| format!("{} (dim {})", group_digits(size.parameters), size.config.common().dim);
    let nearest: Vec<String> = nearest.iter().flatten().map(name).collect();
    Finding::new(
        "parameters",
        format!(
            "no width gives {} parameters within 5 %; the nearest are {}",
            group_digits(target),
            nearest.join(" and ")
        ),
        "use one of these sizes, or change `layers`, `heads` or another option",
    )
}

fn with_dim(config: &ModelConfig, dim: usize) -> ModelConfig {
    let mut config = config.clone();
    match &mut config {
        ModelConfig::Ten(config) => config.dim = dim,
        ModelConfig::Pulse(config) => config.dim = dim,
        ModelConfig::Transformer(config) => config.dim = dim,
    }
    config
}

/// A number of parameters: 200000, `200_000`, `200k`, `1.5M`.
fn parse_count(value: &Value) -> Result<u64, String> {
    let wrong = || format!("parameters {value} is not a number of parameters");
    let count = match value {
        Value::Number(number) => number.as_u64().ok_or_else(wrong)?,
        Value::String(text) => {
            let digits = text.replace('_', "");
            let (digits, factor) = match digits.chars().last() {
                Some('k' | 'K') => (&digits[..digits.len() - 1], 1e3),
                Some('m' | 'M') => (&digits[..digits.len() - 1], 1e6),
                Some('g' | 'G') => (&digits[..digits.len() - 1], 1e9),
                _ => (digits.as_str(), 1.0),
            };
            let is_decimal = digits.chars().all(|digit| digit.is_ascii_digit() || digit == '.');
            let number: f64 = digits.parse().ok().filter(|_| is_decimal).ok_or_else(wrong)?;
            let count = number * factor;
            if !(count < 1e15) || (factor == 1.0 && count.fract() != 0.0) {
                return Err(wrong());
            }
            count.round() as u64
        }
        _ => return Err(wrong()),
    };
    if count == 0 { Err(wrong()) } else { Ok(count) }
}

/// 1234567 as `1_234_567`, which a workflow file accepts.
fn group_digits(count: u64) -> String {
    let digits = count.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join("_")
}

impl<'de> Deserialize<'de> for ModelChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut map = Map::<String, Value>::deserialize(deserializer)?;
        let parameters = map.remove("parameters");
        let dim = map.get("dim").cloned();
        map.entry("dim").or_insert_with(|| 1.into());
        let config = serde_json::from_value(Value::Object(map)).map_err(serde::de::Error::custom)?;
        Ok(ModelChoice { config, dim, parameters })
    }
}

impl Serialize for ModelChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut value = serde_json::to_value(&self.config).map_err(serde::ser::Error::custom)?;
        if let Value::Object(map) = &mut value {
            if self.dim.is_none() {
                map.remove("dim");
            }
            if let Some(parameters) = &self.parameters {
                map.insert("parameters".into(), parameters.clone());
            }
        }
        value.serialize(serializer)
    }
}

impl JsonSchema for ModelChoice {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ModelChoice".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = ModelConfig::json_schema(generator);
        accept_target_in(schema.ensure_object());
        for definition in generator.definitions_mut().values_mut() {
            accept_target(definition);
        }
        schema
    }
}

/// Makes `dim` optional and adds `parameters` in each object that has a width.
fn accept_target(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(accept_target),
        Value::Object(map) => accept_target_in(map),
        _ => {}
    }
}

fn accept_target_in(map: &mut Map<String, Value>) {
    if let Some(Value::Array(required)) = map.get_mut("required") {
        required.retain(|key| key != "dim");
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties")
        && properties.contains_key("dim")
    {
        properties.entry("parameters").or_insert_with(|| target_schema().to_value());
    }
    map.values_mut().for_each(accept_target);
}

fn target_schema() -> Schema {
    json_schema!({
        "type": ["integer", "string"],
        "minimum": 1,
        "description": "Instead of `dim`: the approximate number of parameters, as `200_000`, `200k` or `1.5M`. Among the \
            widths that the other options allow (multiples of `heads`, for example), the one with the nearest size is \
            chosen. The step reports the width and the exact size. It is an error if no width comes within 5 %.",
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::task::Objective;
    use super::*;

    fn task() -> Task {
        Task { vocabulary: 15, max_length: 64, objective: Objective::Classify(10) }
    }

    fn choice(value: Value) -> ModelChoice {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_width_is_the_nearest_that_the_other_options_allow() {
        for (family, parameters) in [
            (json!({"family": "ten", "layers": 2, "states": 16}), 50_000),
            (json!({"family": "pulse", "layers": 2, "states": 8, "heads": 2, "mixing_heads": 2}), 57_000),
            (json!({"family": "transformer", "layers": 2, "heads": 4, "positions": "rope"}), 400_000),
            (json!({"family": "transformer", "layers": 4, "heads": 4}), 1_500_000),
        ] {
            let mut value = family.clone();
            value["parameters"] = json!(parameters);
            let sized = choice(value).resolve(&task()).unwrap();
            let off = sized.parameters.abs_diff(parameters);
            assert!(off as f64 <= 0.05 * parameters as f64 && sized.is_chosen, "{sized:?}");
            assert_eq!(sized.config.validate(), []);
            // No other width is nearer.
            for dim in 1..400 {
                let other = with_dim(&sized.config, dim);
                if other.validate().is_empty() {
                    assert!(other.parameter_count(&task()).abs_diff(parameters) >= off, "{dim}: {family}");
                }
            }
        }
    }

    #[test]
    fn a_number_of_parameters_is_written_in_many_ways() {
        for (written, count) in [
            (json!(200_000), 200_000),
            (json!("200_000"), 200_000),
            (json!("200k"), 200_000),
            (json!("1.5M"), 1_500_000),
            (json!("0.25m"), 250_000),
            (json!("2G"), 2_000_000_000),
        ] {
            assert_eq!(parse_count(&written), Ok(count), "{written}");
        }
        for wrong in
            [json!(0), json!(-1), json!(1.5), json!("1.5"), json!("k"), json!("1e5"), json!("many"), json!("-1k")]
        {
            assert!(parse_count(&wrong).unwrap_err().contains("is not a number of parameters"), "{wrong}");
        }
    }

    #[test]
    fn a_size_that_no_width_has_is_refused_with_the_nearest() {
        let large_steps = json!({"family": "transformer", "layers": 2, "heads": 64, "parameters": "250k"});
        let finding = choice(large_steps).resolve(&task()).unwrap_err();
        assert_eq!(finding.key, "parameters");
        let sizes =
            "no width gives 250_000 parameters within 5 %; the nearest are 105_802 (dim 64) and 408_202 (dim 128)";
        assert!(finding.message.contains(sizes), "{}", finding.message);
        let small = json!({"family": "ten", "layers": 2, "states": 512, "parameters": 10});
        let finding = choice(small).resolve(&task()).unwrap_err();
        assert!(finding.message.contains("the nearest are") && finding.message.contains("(dim 1)"), "{finding:?}");
    }

    #[test]
    fn one_of_dim_and_parameters_is_given() {
        let at_fault =
            |value: Value| choice(value).validate().into_iter().map(|f| (f.key, f.message)).collect::<Vec<_>>();
        let ten = |more: Value| {
            let mut value = json!({"family": "ten", "layers": 1, "states": 4});
            value.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            value
        };
        assert_eq!(at_fault(ten(json!({"dim": 8}))), []);
        assert_eq!(at_fault(ten(json!({"parameters": "1k"}))), []);
        assert!(at_fault(ten(json!({})))[0].1.contains("neither `dim` nor `parameters`"));
        assert!(at_fault(ten(json!({"dim": 8, "parameters": "1k"})))[0].1.contains("both set the width"));
        assert_eq!(at_fault(ten(json!({"parameters": "wide"})))[0].0, "parameters");
        // Problems that do not depend on the width are also found.
        assert_eq!(at_fault(ten(json!({"parameters": "1k", "scales": [2]})))[0].0, "scales");
        assert_eq!(at_fault(ten(json!({"dim": 0})))[0].0, "dim");
    }

    #[test]
    fn it_is_written_as_it_was_read_and_its_schema_knows_both_keys() {
        for value in [
            json!({"family": "ten", "layers": 1, "states": 4, "parameters": "2k"}),
            json!({"family": "ten", "layers": 1, "states": 4, "dim": 8}),
        ] {
            let written = serde_json::to_value(choice(value.clone())).unwrap();
            assert_eq!((written.get("dim"), written.get("parameters")), (value.get("dim"), value.get("parameters")));
            assert_eq!(choice(written), choice(value));
        }
        let schema = schemars::schema_for!(ModelChoice).to_value().to_string();
        assert_eq!(schema.matches("Instead of `dim`:").count(), 3, "{schema}");
        assert!(!schema.contains(r#""required":["dim""#), "{schema}");
        assert!(serde_json::from_value::<ModelChoice>(json!({"family": "ten", "layers": 1, "sates": 1})).is_err());
    }
}
