//! The site of a fixture store on a separate port, and the checks of every page.

use std::net::SocketAddr;

use assay_store::Store;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::fixture;
use crate::webdriver::Browser;

/// Notes with each kind of table and chart.
const NOTES: &str = "# How many states?\n\nMore states are **better** and slower: see [the run](/runs/1).\n\n\
    | states | verdict |\n|---|---|\n| 16 | too few |\n\n> A quote.\n\n- one\n- two\n\n\
    ```assay\nresults latest\ncurves latest metric=train/loss\nsweep latest metric=test/accuracy\n\
    sweep latest metric=test/loss y=-\npareto latest\nimportance latest metric=test/accuracy\nresults 99\n```\n";

/// A running server. Dropping it stops it.
pub struct Site {
    runtime: Runtime,
    store: Store,
    address: SocketAddr,
    /// The workflow file that has notes.
    notes: String,
    stop: Option<oneshot::Sender<()>>,
    _home: tempfile::TempDir,
}

impl Site {
    /// Fills a store and serves it.
    pub fn start() -> Site {
        let runtime = Runtime::new().unwrap();
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("work");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("quickstart.notes.md"), NOTES).unwrap();
        let notes = folder.join("quickstart.yaml").display().to_string();
        let (store, address, stop) = runtime.block_on(async {
            let store = Store::open(&home.path().join("store")).await.unwrap();
            fixture::fill(&store, home.path()).await;
            fixture::claimed(&store).await;
            fixture::lengths(&store).await;
            fixture::commits(&store).await;
            fixture::named(&store, &notes).await;
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let (stop, stopped) = oneshot::channel();
            let served = Store::open(&home.path().join("store")).await.unwrap();
            tokio::spawn(assay_ui::serve(served, fixture::kinds(), listener, async {
                let _ = stopped.await;
            }));
            (store, address, stop)
        });
        Site { runtime, store, address, notes, stop: Some(stop), _home: home }
    }

    /// The address of a page; `{notes}` in it stands for the workflow file that has notes.
    pub fn page(&self, path: &str) -> String {
        let notes: String = self.notes.bytes().map(|byte| format!("%{byte:02X}")).collect();
        format!("http://{}{}", self.address, path.replace("{notes}", &notes))
    }

    /// Changes the store while the server runs.
    pub fn change(&self, change: impl AsyncFnOnce(&Store)) {
        self.runtime.block_on(change(&self.store));
    }

    /// Checks that the page sent requests only to this server, and that the console is empty.
    pub fn is_content(&self, browser: &Browser) {
        let origin = self.page("/");
        for request in browser.requests() {
            let local = request.starts_with(&origin) || ["data:", "blob:"].iter().any(|kind| request.starts_with(kind));
            assert!(local, "the page asked for {request}");
        }
        assert_eq!(browser.console(), [] as [&str; 0]);
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.stop.take().map(|stop| stop.send(()));
    }
}
