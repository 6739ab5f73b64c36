//! The machine: workers, their use, and the queue.

use crate::support::site;

#[tokio::test]
async fn the_machine_shows_workers_their_use_and_what_waits() {
    let site = site().await;
    let json = site.get("/api/machine?span=7d").await.json();
    assert_eq!((json["has_nodes"].as_bool(), json["span"].as_str()), (Some(false), Some("7d")));
    let worker = &json["workers"][0];
    assert_eq!((worker["name"].as_str(), worker["state"].as_str()), (Some("local"), Some("busy")), "{json:#}");
    assert_eq!(
        (worker["tasks"].as_u64(), worker["cpus"].as_u64()),
        (Some(1), Some(2)),
        "the task that trains: {json:#}"
    );
    // Most of the fixture's attempts lie in the future.
    let usage = &json["usage"]["workers"][0];
    assert!(usage["seconds"].as_f64().unwrap() > 0.0 && usage["attempts"].as_u64().unwrap() >= 1, "{usage:#}");
    let queue = &json["queue"];
    assert_eq!((queue["running"].as_u64(), queue["waiting"].as_u64()), (Some(1), Some(3)), "{queue:#}");
    let why = |group: usize| queue["groups"][group]["why"].as_str().unwrap().to_owned();
    assert_eq!(why(0), "it is ready, and waits for free processors or memory: 1 attempt runs now");
    assert_eq!(why(1), "an attempt failed; the next one starts after a pause");
    assert!(why(2).starts_with("its config is being resolved"), "the data are there: {queue:#}");
    let executor = &json["executors"][0];
    assert_eq!((executor["backend"].as_str(), executor["details"].as_str()), (Some("cpu"), Some("avx512f")));

    let page = site.get("/machine").await.text();
    for part in
        ["1 run in progress", "3 waiting", "Intel(R) Xeon(R)", "all processors", "data-live=\"yes\"", "/runs/3/tasks/4"]
    {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(page.contains("are counted as one processor"), "the fixture's files have no jobs to read: {page}");
    assert_eq!(site.get("/workers").await.status, 200);
    let wrong = site.get("/machine?span=2h").await;
    assert!(wrong.status == 400 && wrong.text().contains("7d"), "{}", wrong.text());
}

#[tokio::test]
async fn models_of_all_runs_are_listed() {
    let site = site().await;
    let json = site.get("/api/models").await.json();
    let models = json["models"].as_array().unwrap();
    assert!(!models.is_empty() && json["next"].is_null(), "{json:#}");
    // Every task of the fixture has an output `model`; those of the transformer came from the cache.
    assert_eq!(models.len(), 55);
    assert!(models.iter().all(|model| model["run"] == 1 && model["family"] == "ten"), "{json:#}");
    assert_eq!(models.iter().filter(|model| model["precision"] == "f32").count(), 12);
    let page = site.get("/models").await.text();
    let first = models[0]["task"]["address"].as_str().unwrap();
    assert!(page.contains(&format!(">{first}</a>")) && page.contains("model.safetensors"), "{page}");
    assert_eq!(page.matches("<tr><th scope=\"row\">").count(), models.len());
    let none = site.get("/models?family=transformer").await.text();
    assert!(
        none.contains("No task has made a model of this family") && none.contains("<option>ten</option>"),
        "{none}"
    );
    assert!(site.get("/models?before=1").await.text().contains("No task has made a model"));
    assert_eq!(site.get("/models?before=x").await.status, 400);
    assert_eq!(site.get("/models?families=x").await.status, 400);
}
