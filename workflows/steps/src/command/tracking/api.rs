//! The calls with which programs log, answered from memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::http::{Answer, Request, decode_percent};
use crate::command::config::{is_inside, is_metric_name, to_metric_name};
use crate::command::metrics::{Point, number};

/// The longest value of a parameter in the log, in characters.
const LONGEST_SHOWN: usize = 6000;
/// The only experiment; every name of an experiment refers to it.
const EXPERIMENT: &str = "0";
/// The path of a run's files in addresses for clients.
const FILES: &str = "/api/2.0/mlflow-artifacts/artifacts";

/// A run created by the program.
#[derive(Default)]
struct Run {
    name: String,
    user: String,
    status: String,
    start_time: i64,
    end_time: Option<i64>,
    params: BTreeMap<String, String>,
    tags: BTreeMap<String, String>,
    /// By name, in the order in which they came: value, time and step.
    metrics: BTreeMap<String, Vec<(f64, i64, i64)>>,
}

/// The data logged by the program.
pub(super) struct Api {
    outputs: PathBuf,
    /// The name of the experiment that the program requested last; all experiments are the attempt.
    experiment: String,
    runs: BTreeMap<String, Run>,
    /// The first run: the attempt.
    first: Option<String>,
    points: Vec<Point>,
    lines: Vec<String>,
}

/// An error: its status, its code and its message.
type Refusal = (u16, &'static str, String);

fn invalid(message: impl Into<String>) -> Refusal {
    (400, "INVALID_PARAMETER_VALUE", message.into())
}

fn absent(message: impl Into<String>) -> Refusal {
    (404, "RESOURCE_DOES_NOT_EXIST", message.into())
}

fn to_answer(result: Result<Value, Refusal>) -> Answer {
    let (status, value) = match result {
        Ok(value) => (200, value),
        Err((status, code, message)) => (status, json!({"error_code": code, "message": message})),
    };
    Answer { status, kind: "application/json", body: value.to_string().into_bytes() }
}

/// The answer to a request without the token of the attempt.
pub(super) fn refuse_token() -> Answer {
    to_answer(Err((
        401,
        "UNAUTHENTICATED",
        "the program has to send MLFLOW_TRACKING_TOKEN, which its step sets".into(),
    )))
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

fn text(fields: &Value, name: &str) -> Option<String> {
    fields[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_str()?.parse().ok()).or_else(|| value.as_f64().map(|value| value as i64))
}

fn to_list(pairs: &BTreeMap<String, String>) -> Value {
    pairs.iter().map(|(key, value)| json!({"key": key, "value": value})).collect()
}

fn metric_to_json(name: &str, (value, at, step): (f64, i64, i64)) -> Value {
    let value = if value.is_finite() {
        json!(value)
    } else if value.is_nan() {
        json!("NaN")
    } else {
        json!(if value > 0.0 { "Infinity" } else { "-Infinity" })
    };
    json!({"key": name, "value": value, "timestamp": at, "step": step})
}

impl Api {
    /// A state without a run.
    pub fn new(outputs: &Path) -> Api {
        Api {
            outputs: outputs.to_owned(),
            experiment: "Default".to_owned(),
            runs: BTreeMap::new(),
            first: None,
            points: Vec::new(),
            lines: Vec::new(),
        }
    }

    /// The points and the lines for the log since the last call.
    pub fn take_reports(&mut self) -> (Vec<Point>, Vec<String>) {
        (std::mem::take(&mut self.points), std::mem::take(&mut self.lines))
    }

    /// Answers a request.
    pub fn answer(&mut self, request: &Request) -> Answer {
        if let Some(answer) = answer_file(&self.outputs, request) {
            return answer;
        }
        match request.path.as_str() {
            "/health" => return Answer { status: 200, kind: "text/plain", body: b"OK".to_vec() },
            "/version" => return Answer { status: 200, kind: "text/plain", body: b"3.0.0".to_vec() },
            "/api/3.0/mlflow/server-info" => {
                return to_answer(Ok(json!({"store_type": "SqlStore", "workspaces_enabled": false})));
            }
            _ => {}
        }
        let fields = match request.method.as_str() {
            "GET" => Ok(query_fields(&request.query)),
            _ if request.body.is_empty() => Ok(json!({})),
            _ => serde_json::from_slice(&request.body)
                .map_err(|error| (400, "BAD_REQUEST", format!("the request is not JSON: {error}"))),
        };
        let call = request.path.strip_prefix("/api/2.0/mlflow/").unwrap_or_default();
        to_answer(fields.and_then(|fields: Value| self.answer_call(call, &fields)))
    }

    fn answer_call(&mut self, call: &str, fields: &Value) -> Result<Value, Refusal> {
        match call {
            "experiments/get-by-name" | "experiments/get" => {
                self.experiment = text(fields, "experiment_name").unwrap_or_else(|| self.experiment.clone());
                Ok(json!({"experiment": self.experiment_to_json()}))
            }
            "experiments/search" => Ok(json!({"experiments": [self.experiment_to_json()]})),
            "experiments/create" => Ok(json!({"experiment_id": EXPERIMENT})),
            "experiments/set-experiment-tag" | "runs/log-inputs" | "runs/outputs" | "logged-models/search" => {
                Ok(json!({}))
            }
            "runs/create" => self.create_run(fields),
            "runs/get" => {
                let id = run_id(fields)?;
                self.run(&id)?;
                Ok(json!({"run": self.run_to_json(&id)}))
            }
            "runs/search" => Ok(json!({"runs": self.runs.keys().map(|id| self.run_to_json(id)).collect::<Vec<_>>()})),
            "runs/update" => self.update_run(fields),
            "runs/log-metric" => self.log(fields, &json!({"metrics": [fields]})),
            "runs/log-parameter" => self.log(fields, &json!({"params": [fields]})),
            "runs/set-tag" => self.log(fields, &json!({"tags": [fields]})),
            "runs/log-batch" => self.log(fields, fields),
            "metrics/get-history" => {
                let (id, name) = (run_id(fields)?, text(fields, "metric_key").unwrap_or_default());
                let points = self.runs.get(&id).and_then(|run| run.metrics.get(&name)).cloned().unwrap_or_default();
                Ok(json!({"metrics": points.into_iter().map(|point| metric_to_json(&name, point)).collect::<Vec<_>>()}))
            }
            "artifacts/list" => {
                let (id, folder) = (run_id(fields)?, text(fields, "path").unwrap_or_default());
                let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
                let mut answer = json!({"root_uri": artifact_uri(&id)});
                answer["files"] = list_files(&self.outputs, &folder, &prefix)?;
                Ok(answer)
            }
            other => Err((
                404,
                "ENDPOINT_NOT_FOUND",
                format!("a step has no `{other}`; `assay server` has more of MLflow's calls"),
            )),
        }
    }

    fn experiment_to_json(&self) -> Value {
        json!({"experiment_id": EXPERIMENT, "name": self.experiment, "artifact_location": "mlflow-artifacts:/0", "lifecycle_stage": "active"})
    }

    fn run(&mut self, id: &str) -> Result<&mut Run, Refusal> {
        self.runs.get_mut(id).ok_or_else(|| absent(format!("Run with id={id} not found")))
    }

    fn create_run(&mut self, fields: &Value) -> Result<Value, Refusal> {
        let id = format!("{:032x}", self.runs.len() + 1);
        let mut run = Run {
            status: "RUNNING".to_owned(),
            user: text(fields, "user_id").unwrap_or_default(),
            start_time: integer(&fields["start_time"]).unwrap_or_else(now),
            ..Run::default()
        };
        for tag in fields["tags"].as_array().into_iter().flatten() {
            run.tags.insert(text(tag, "key").unwrap_or_default(), text(tag, "value").unwrap_or_default());
        }
        let name = text(fields, "run_name").or_else(|| run.tags.get("mlflow.runName").cloned());
        run.name = name.unwrap_or_else(|| format!("run-{}", self.runs.len() + 1));
        run.tags.insert("mlflow.runName".to_owned(), run.name.clone());
        self.runs.insert(id.clone(), run);
        self.first.get_or_insert_with(|| id.clone());
        Ok(json!({"run": self.run_to_json(&id)}))
    }

    fn update_run(&mut self, fields: &Value) -> Result<Value, Refusal> {
        let id = run_id(fields)?;
        let run = self.run(&id)?;
        if let Some(status) = text(fields, "status") {
            run.status = status;
        }
        if let Some(name) = text(fields, "run_name") {
            run.name = name;
        }
        run.end_time = integer(&fields["end_time"]).or(run.end_time);
        Ok(json!({"run_info": self.run_to_json(&id)["info"]}))
    }

    /// Logs `metrics`, `params` and `tags`. All values are checked before any is stored.
    fn log(&mut self, fields: &Value, batch: &Value) -> Result<Value, Refusal> {
        let id = run_id(fields)?;
        let is_first = self.first.as_ref() == Some(&id);
        let list = |name: &str| batch[name].as_array().cloned().unwrap_or_default();
        let mut points = Vec::new();
        for metric in list("metrics") {
            let name = text(&metric, "key").ok_or_else(|| invalid("Missing value for required parameter 'key'."))?;
            if !is_metric_name(&name) {
                return Err(invalid(format!("Invalid metric name: '{name}'")));
            }
            let value = number(&metric["value"]);
            let value =
                value.ok_or_else(|| invalid(format!("Invalid value {} for metric '{name}'", metric["value"])))?;
            let at = integer(&metric["timestamp"]).unwrap_or_else(now);
            points.push((name, (value, at, integer(&metric["step"]).unwrap_or(0))));
        }
        let run = self.run(&id)?;
        let (params, tags) = (list("params"), list("tags"));
        let pair = |pair: &Value| {
            (text(pair, "key").unwrap_or_default(), pair["value"].as_str().unwrap_or_default().to_owned())
        };
        for (name, value) in params.iter().map(pair) {
            if run.params.get(&name).is_some_and(|old| *old != value) {
                return Err(invalid(format!(
                    "Changing param values is not allowed. Param with key='{name}' was already logged."
                )));
            }
        }
        let prefix = if is_first { String::new() } else { format!("{}/", run.name) };
        let mut lines = Vec::new();
        for (name, value) in params.iter().map(pair) {
            if run.params.insert(name.clone(), value.clone()).is_none() {
                let shown: String = value.chars().take(LONGEST_SHOWN).collect();
                lines.push(format!("mlflow: parameter {prefix}{name} = {shown}"));
            }
        }
        run.tags.extend(tags.iter().map(pair));
        let mut reported = Vec::new();
        for (name, point) in points {
            let known = run.metrics.entry(name.clone()).or_default();
            if known.last().is_some_and(|last| *last == point) {
                continue;
            }
            known.push(point);
            let (value, _, step) = point;
            reported.push(Point {
                name: to_metric_name(&format!("{prefix}{name}")),
                step: Some(u64::try_from(step).unwrap_or(0)),
                value,
            });
        }
        self.points.extend(reported);
        self.lines.extend(lines);
        Ok(json!({}))
    }

    fn run_to_json(&self, id: &str) -> Value {
        let Some(run) = self.runs.get(id) else { return json!({}) };
        let latest = |(name, points): (&String, &Vec<(f64, i64, i64)>)| {
            let latest = points.iter().max_by_key(|(_, at, step)| (*step, *at))?;
            Some(metric_to_json(name, *latest))
        };
        let mut info = json!({
            "run_id": id, "run_uuid": id, "run_name": run.name, "experiment_id": EXPERIMENT, "user_id": run.user, "status": run.status,
            "start_time": run.start_time, "artifact_uri": artifact_uri(id), "lifecycle_stage": "active",
        });
        if let Some(end) = run.end_time {
            info["end_time"] = end.into();
        }
        let metrics: Vec<Value> = run.metrics.iter().filter_map(latest).collect();
        json!({"info": info, "data": {"metrics": metrics, "params": to_list(&run.params), "tags": to_list(&run.tags)}, "inputs": {}})
    }
}

/// Answers a request for files; `None` for other requests.
pub(super) fn answer_file(outputs: &Path, request: &Request) -> Option<Answer> {
    let address = request.path.strip_prefix(FILES)?.trim_start_matches('/');
    if address.is_empty() && request.method == "GET" {
        let place = text(&query_fields(&request.query), "path").unwrap_or_default();
        let listed = file_path(&place).and_then(|folder| list_files(outputs, &folder, ""));
        return Some(to_answer(listed.map(|files| json!({"files": files}))));
    }
    let path = match file_path(address) {
        Ok(path) if is_inside(Path::new(&path)) => outputs.join(path),
        Ok(path) => return Some(to_answer(Err(invalid(format!("Invalid path: '{path}'"))))),
        Err(refusal) => return Some(to_answer(Err(refusal))),
    };
    // A named pipe would block, and a device may be endless.
    let is_other = fs::metadata(&path).is_ok_and(|data| !data.is_file());
    let missing = || to_answer(Err(absent(format!("there is no file '{address}'"))));
    let failed = |error: std::io::Error| (500, "INTERNAL_ERROR", format!("cannot write `{}`: {error}", path.display()));
    Some(match request.method.as_str() {
        "PUT" if is_other => to_answer(Err(invalid(format!("Invalid path: '{address}' is not a regular file")))),
        "PUT" => {
            let made = fs::create_dir_all(path.parent().unwrap_or(outputs));
            to_answer(made.and_then(|()| fs::write(&path, &request.body)).map_err(failed).map(|()| json!({})))
        }
        "GET" if is_other => missing(),
        "GET" => match fs::read(&path) {
            Ok(body) => Answer { status: 200, kind: "application/octet-stream", body },
            Err(_) => missing(),
        },
        _ => to_answer(Err((404, "ENDPOINT_NOT_FOUND", "a step keeps the files that its program logs".into()))),
    })
}

fn list_files(outputs: &Path, folder: &str, prefix: &str) -> Result<Value, Refusal> {
    if !folder.is_empty() && !is_inside(Path::new(folder)) {
        return Err(invalid(format!("Invalid path: '{folder}'")));
    }
    let entries = fs::read_dir(outputs.join(folder)).into_iter().flatten().flatten();
    let mut files: Vec<(String, Value)> = entries
        .filter_map(|entry| {
            let (name, data) = (entry.file_name().into_string().ok()?, entry.metadata().ok()?);
            let path = format!("{prefix}{name}");
            Some((
                name,
                if data.is_dir() {
                    json!({"path": path, "is_dir": true})
                } else {
                    json!({"path": path, "is_dir": false, "file_size": data.len()})
                },
            ))
        })
        .collect();
    files.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(files.into_iter().map(|(_, file)| file).collect())
}

fn run_id(fields: &Value) -> Result<String, Refusal> {
    text(fields, "run_id")
        .or_else(|| text(fields, "run_uuid"))
        .ok_or_else(|| invalid("Missing value for required parameter 'run_id'."))
}

fn artifact_uri(id: &str) -> String {
    format!("mlflow-artifacts:/{EXPERIMENT}/{id}/artifacts")
}

/// The path after `EXPERIMENT/RUN/artifacts`.
fn file_path(address: &str) -> Result<String, Refusal> {
    let mut parts = address.splitn(4, '/').skip(2);
    match parts.next() {
        Some("artifacts") => Ok(parts.next().unwrap_or_default().trim_end_matches('/').to_owned()),
        _ => Err(invalid(format!("Invalid path: '{address}'"))),
    }
}

fn query_fields(query: &str) -> Value {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let fields =
        pairs.map(|(key, value)| (decode_percent(key), Value::String(decode_percent(&value.replace('+', " ")))));
    Value::Object(fields.collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, path: &str, body: &Value) -> Request {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let body = if method == "GET" { Vec::new() } else { body.to_string().into_bytes() };
        Request { method: method.into(), path: path.into(), query: query.into(), token: None, body }
    }

    fn call(api: &mut Api, name: &str, body: Value) -> (u16, Value) {
        let answer = api.answer(&request("POST", &format!("/api/2.0/mlflow/{name}"), &body));
        (answer.status, serde_json::from_slice(&answer.body).unwrap())
    }

    #[test]
    fn the_first_run_is_the_attempt_and_others_have_their_names_before_their_metrics() {
        let folder = tempfile::tempdir().unwrap();
        let mut api = Api::new(folder.path());
        let mut open = |name: &str| {
            let run = call(&mut api, "runs/create", json!({"experiment_id": "0", "run_name": name})).1;
            run["run"]["info"]["run_id"].as_str().unwrap().to_owned()
        };
        let (first, second) = (open("outer"), open("inner"));
        assert_eq!(call(&mut api, "runs/log-batch", json!({"run_id": first, "metrics": [{"key": "loss", "value": 0.5, "timestamp": 1, "step": 3}], "params": [{"key": "lr", "value": "0.1"}]})).0, 200);
        call(&mut api, "runs/log-metric", json!({"run_id": second, "key": "loss", "value": 0.25, "timestamp": 2}));
        let point = |name: &str, step, value| Point { name: name.into(), step: Some(step), value };
        let lines = vec!["mlflow: parameter lr = 0.1".to_owned()];
        assert_eq!(api.take_reports(), (vec![point("loss", 3, 0.5), point("inner/loss", 0, 0.25)], lines));
        call(&mut api, "runs/log-metric", json!({"run_id": second, "key": "loss", "value": 0.25, "timestamp": 2}));
        // A point that is sent again is dropped.
        assert_eq!(api.take_reports().0, []);
        let (status, refused) =
            call(&mut api, "runs/log-parameter", json!({"run_id": first, "key": "lr", "value": "0.2"}));
        assert_eq!((status, &refused["error_code"]), (400, &json!("INVALID_PARAMETER_VALUE")));
        assert_eq!(call(&mut api, "runs/get", json!({"run_id": "x"})).0, 404);
        assert_eq!(call(&mut api, "registered-models/create", json!({})).1["error_code"], "ENDPOINT_NOT_FOUND");
    }

    #[test]
    fn files_stay_in_the_folder_of_outputs() {
        let folder = tempfile::tempdir().unwrap();
        let mut api = Api::new(folder.path());
        let mut put =
            |path: &str| api.answer(&request("PUT", &format!("{FILES}/0/1/artifacts{path}"), &json!("x"))).status;
        assert_eq!(
            (put("/a/b.txt"), put("/../x"), put("/a/../../x"), put("//etc/x"), put("")),
            (200, 400, 400, 400, 400)
        );
        assert_eq!(fs::read_to_string(folder.path().join("a/b.txt")).unwrap(), "\"x\"");
        let listed = api.answer(&request("GET", &format!("{FILES}?path=0%2F1%2Fartifacts%2Fa"), &Value::Null));
        let listed: Value = serde_json::from_slice(&listed.body).unwrap();
        assert_eq!(listed["files"][0]["path"], "b.txt");
    }
}
