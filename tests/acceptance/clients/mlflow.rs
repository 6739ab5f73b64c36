//! A server and unmodified MLflow clients of the current version and of the oldest supported one.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Output;

use serde_json::{Value, json};

use super::{clients_python, python, said, script, succeed};
use crate::lab::processes::Server;
use crate::support::Home;

fn both_clients() -> [String; 2] {
    [clients_python(), python("ASSAY_TEST_MLFLOW_2")]
}

/// Sends a request without a client, and returns its status and body.
fn request(server: &Server, method: &str, path: &str, body: &str) -> (u16, Value) {
    let address = server.url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("a connection");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    stream.write_all(format!("{head}Content-Type: application/json\r\n\r\n{body}").as_bytes()).expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

#[test]
fn a_session_of_each_client_works_and_survives_a_restart() {
    let mut server = Server::start(&[]);
    let mut left = Vec::new();
    for python in both_clients() {
        let printed = script(&python, "mlflow_session.py").arg(&server.url).output().expect("python starts");
        assert!(printed.status.success(), "{}", said(&printed));
        let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
        left.push(printed.lines().rfind(|line| line.starts_with('{')).expect("a JSON object").to_owned());
    }
    server.kill();
    server.restart();
    for (python, left) in both_clients().iter().zip(&left) {
        succeed(script(python, "mlflow_check.py").args([&server.url, left]));
    }
    the_runs_are_ordinary_runs(&server);
    // Nothing in the store is damaged, and no files are left over.
    server.kill();
    let verified = server.home.output(&["verify"]);
    assert!(verified.status.success(), "{}", said(&verified));
}

/// Lists, tables and comparisons show logged runs like other runs.
fn the_runs_are_ordinary_runs(server: &Server) {
    let runs = server.json(&["runs", "--limit", "100"]);
    let runs = runs["runs"].as_array().expect("runs");
    let of_name = |name: &str| runs.iter().filter(move |run| run["name"] == name).collect::<Vec<_>>();
    let first = of_name("first");
    assert_eq!((first.len(), &first[0]["state"]), (2, &json!("succeeded")), "{first:#?}");
    assert_eq!(of_name("renamed")[0]["state"], "failed");
    let id = |run: &Value| run["id"].as_i64().or_else(|| run["run"].as_i64()).expect("a number").to_string();
    let shown = server.json(&["show", &id(first[0])]);
    let task = &shown["tasks"][0];
    assert_eq!((&task["address"], &task["metrics"]["loss"]), (&json!("run"), &json!(0.1)), "{shown:#}");
    assert_eq!(task["outputs"]["notes/a.txt"]["$artifact"].as_str().map(str::len), Some(64), "{task:#}");
    let (a, b) = (id(of_name("n1")[0]), id(of_name("n2")[0]));
    let compared = server.home.output(&["compare", &a, &b]);
    let text = said(&compared);
    assert!(compared.status.success() && text.contains("score"), "{text}");
    let page = request(server, "GET", &format!("/api/v1/runs/{}/nothing", id(first[0])), "");
    assert_eq!(page.0, 404);
}

#[test]
fn autologging_of_scikit_learn_works() {
    let server = Server::start(&[]);
    let printed = succeed(script(&clients_python(), "sklearn_autolog.py").arg(&server.url));
    let id = printed.split_whitespace().rfind(|word| word.len() == 32).expect("the id of the run").to_owned();
    let (status, run) = request(&server, "GET", &format!("/api/2.0/mlflow/runs/get?run_id={id}"), "");
    assert_eq!((status, &run["run"]["info"]["status"]), (200, &json!("FINISHED")), "{run:#}");
    let has = |list: &str, key: &str| {
        run["run"]["data"][list].as_array().is_some_and(|list| list.iter().any(|entry| entry["key"] == key))
    };
    assert!(has("params", "C") && has("metrics", "training_accuracy_score"), "{run:#}");
}

#[test]
fn tokens_and_their_scopes_apply() {
    let server = Server::start_on("0.0.0.0:0", &[]);
    let url = server.url.replace("0.0.0.0", "127.0.0.1");
    let create = |scope: &str| {
        let output: Output = server.home.output(&["token", "create", "--scope", scope]);
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    for (scope, token) in [("none", String::new()), ("read", create("read")), ("submit", create("submit"))] {
        for python in both_clients() {
            let mut client = script(&python, "mlflow_tokens.py");
            client.args([&url, scope]);
            if !token.is_empty() {
                client.env("MLFLOW_TRACKING_TOKEN", &token);
            }
            succeed(&mut client);
        }
    }
}

#[test]
fn bad_requests_are_answered_in_the_form_of_mlflow() {
    let server = Server::start(&[]);
    let api = |call: &str| format!("/api/2.0/mlflow/{call}");
    let (status, run) = request(&server, "POST", &api("runs/create"), r#"{"experiment_id": "0"}"#);
    assert_eq!(status, 200, "{run:#}");
    let id = run["run"]["info"]["run_id"].as_str().expect("an id").to_owned();
    let log = |metric: &str| format!(r#"{{"run_id": "{id}", {metric}}}"#);
    let cases = [
        ("POST", api("runs/create"), "{".to_owned(), 400, "BAD_REQUEST"),
        ("POST", api("runs/create"), r#"{"experiment_id": "x"}"#.into(), 400, "INVALID_PARAMETER_VALUE"),
        ("POST", api("runs/create"), r#"{"experiment_id": "99"}"#.into(), 404, "RESOURCE_DOES_NOT_EXIST"),
        ("GET", api("runs/get"), String::new(), 400, "INVALID_PARAMETER_VALUE"),
        ("GET", api("runs/get?run_id=../x"), String::new(), 400, "INVALID_PARAMETER_VALUE"),
        ("GET", api("nothing"), String::new(), 404, "ENDPOINT_NOT_FOUND"),
        ("POST", api("runs/log-metric"), log(r#""key": "a""#), 400, "INVALID_PARAMETER_VALUE"),
        (
            "POST",
            api("runs/log-metric"),
            log(r#""key": "a", "value": "low", "timestamp": 1"#),
            400,
            "INVALID_PARAMETER_VALUE",
        ),
        (
            "POST",
            api("runs/log-batch"),
            log(&format!(r#""tags": [{}]"#, vec![r#"{"key": "a"}"#; 101].join(","))),
            400,
            "INVALID_PARAMETER_VALUE",
        ),
        (
            "POST",
            api("runs/log-batch"),
            log(&format!(r#""x": "{}""#, "x".repeat(1_000_001))),
            400,
            "INVALID_PARAMETER_VALUE",
        ),
        ("POST", api("runs/update"), log(r#""status": "DONE""#), 400, "INVALID_PARAMETER_VALUE"),
        ("POST", api("runs/update"), log(&format!(r#""status": {}"#, i64::MIN)), 400, "INVALID_PARAMETER_VALUE"),
        (
            "GET",
            format!("/api/2.0/mlflow-artifacts/artifacts/0/{id}/artifacts/absent"),
            String::new(),
            404,
            "RESOURCE_DOES_NOT_EXIST",
        ),
        (
            "PUT",
            format!("/api/2.0/mlflow-artifacts/artifacts/0/{id}/artifacts/a/%2E%2E/%2E%2E/b"),
            "x".into(),
            400,
            "INVALID_PARAMETER_VALUE",
        ),
        (
            "PUT",
            format!("/api/2.0/mlflow-artifacts/artifacts/0/{}/artifacts/a", "0".repeat(32)),
            "x".into(),
            404,
            "RESOURCE_DOES_NOT_EXIST",
        ),
        ("POST", "/api/2.0/mlflow-artifacts/mpu/create/x".into(), "{}".into(), 501, "NOT_IMPLEMENTED"),
    ];
    for (method, path, body, status, code) in cases {
        let (found, answer) = request(&server, method, &path, &body);
        assert_eq!((found, answer["error_code"].as_str()), (status, Some(code)), "{method} {path}: {answer:#}");
        assert!(answer["message"].as_str().is_some_and(|message| !message.is_empty()));
    }
    // A path is a file or a folder, not both.
    for (path, status) in [("f", 200), ("f/x", 400), ("d/e", 200), ("d", 400)] {
        let address = format!("/api/2.0/mlflow-artifacts/artifacts/0/{id}/artifacts/{path}");
        assert_eq!(request(&server, "PUT", &address, "x").0, status, "{path}");
    }
    assert_eq!(
        request(&server, "GET", &api(&format!("metrics/get-history?run_id={id}&metric_key=a")), ""),
        (200, json!({}))
    );
}

#[test]
fn what_a_program_logs_becomes_metrics_of_its_step() {
    for python in both_clients() {
        let home = Home::new();
        let ran = home.run("logged.yaml", &["-P", &format!("python={python}")]);
        let task = ran.succeeded().task("fit");
        let expected = json!({"loss": 0.25, "child/loss": 3.0, "score": 1.0});
        assert_eq!(task["metrics"], expected, "{task:#}");
        assert_eq!(task["outputs"]["note"]["type"], Value::Null);
        let log = String::from_utf8_lossy(&home.output(&["logs", "1", "fit"]).stdout).into_owned();
        assert!(log.contains("mlflow: parameter lr = 0.5") && log.contains("read back: FINISHED 0.25"), "{log}");
    }
}
