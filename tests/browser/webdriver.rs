//! Controls a browser: chromedriver as a child process, through the W3C WebDriver protocol over plain HTTP, as far as
//! these tests need it. (<https://www.w3.org/TR/webdriver2/>, and chromedriver's own commands for the log and the
//! emulated theme.)

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The time limit for a condition. It only determines when a test gives up, never whether it passes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A browser with one tab. Dropping it closes it.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts chromedriver (`CHROMEDRIVER`, or found on PATH) and Chromium (`CHROMIUM`, or found by chromedriver).
    pub fn start() -> Browser {
        let program = std::env::var("CHROMEDRIVER").unwrap_or_else(|_| "chromedriver".into());
        let mut driver =
            Command::new(&program).arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap_or_else(
                |error| panic!("cannot start `{program}`: {error}; install chromium and chromium-driver"),
            );
        let port = port_of(&mut driver);
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Browser { driver, port, session: String::new(), _profile: profile };
        let answer = browser.call("POST", "/session", &capabilities(browser._profile.path()));
        browser.session = answer["sessionId"].as_str().unwrap().to_owned();
        // The page for new tabs sends requests that are not ours.
        browser.open("about:blank");
        browser.requests();
        browser
    }

    /// Opens an address and waits for its load event.
    pub fn open(&self, address: &str) {
        self.post("/url", &json!({"url": address}));
    }

    /// Runs a function body in the page; its result must be JSON.
    pub fn run(&self, body: &str) -> Value {
        self.post("/execute/sync", &json!({"script": body, "args": []}))
    }

    /// Waits until an expression is truthy, and returns its value.
    pub fn wait(&self, what: &str, expression: &str) -> Value {
        let begun = Instant::now();
        loop {
            let value = self.run(&format!("return ({expression}) || null"));
            if !value.is_null() {
                return value;
            }
            if begun.elapsed() > PATIENCE {
                self.screenshot(Path::new(env!("CARGO_TARGET_TMPDIR")), "gave-up");
                panic!("{what}: `{expression}` did not come true at {}", self.run("return location.href"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Sets the preferred theme of the system, and the size of the window.
    pub fn appear(&self, theme: &str, width: u32, height: u32) {
        let features = json!([{"name": "prefers-color-scheme", "value": theme}]);
        self.devtools("Emulation.setEmulatedMedia", json!({"features": features}));
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// A command of the Chrome DevTools protocol.
    pub fn devtools(&self, command: &str, params: Value) -> Value {
        self.post("/goog/cdp/execute", &json!({"cmd": command, "params": params}))
    }

    /// The console messages since the last call.
    pub fn console(&self) -> Vec<String> {
        let entries = self.post("/se/log", &json!({"type": "browser"}));
        entries.as_array().unwrap().iter().map(|entry| format!("{} {}", entry["level"], entry["message"])).collect()
    }

    /// The addresses that the page requested since the last call.
    pub fn requests(&self) -> Vec<String> {
        let entries = self.post("/se/log", &json!({"type": "performance"}));
        let address = |entry: &Value| -> Option<String> {
            let event: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let message = &event["message"];
            let asks = ["Network.requestWillBeSent", "Network.webSocketCreated"];
            asks.iter().any(|method| message["method"] == **method).then(|| {
                let params = &message["params"];
                params["request"]["url"].as_str().or(params["url"].as_str()).unwrap_or_default().to_owned()
            })
        };
        entries.as_array().unwrap().iter().filter_map(address).collect()
    }

    /// Moves the pointer along points of the window; with `pressed`, from the first to the last with the button down.
    pub fn point(&self, path: &[(i64, i64)], pressed: bool) {
        let mut actions = Vec::new();
        for (at, (x, y)) in path.iter().enumerate() {
            actions.push(json!({"type": "pointerMove", "duration": 50, "x": x, "y": y}));
            if pressed && at == 0 {
                actions.push(json!({"type": "pointerDown", "button": 0}));
            }
        }
        if pressed {
            actions.push(json!({"type": "pointerUp", "button": 0}));
        }
        let mouse =
            json!({"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": actions});
        self.post("/actions", &json!({"actions": [mouse]}));
    }

    /// Presses keys, one after the other.
    pub fn press(&self, keys: &[&str]) {
        let both = |key: &&str| [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})];
        let actions: Vec<Value> = keys.iter().flat_map(both).collect();
        self.post("/actions", &json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]}));
    }

    /// A screenshot of the page in its whole height.
    pub fn screenshot(&self, folder: &Path, name: &str) {
        let picture = self.devtools("Page.captureScreenshot", json!({"format": "png", "captureBeyondViewport": true}));
        std::fs::write(folder.join(format!("{name}.png")), base64(picture["data"].as_str().unwrap())).unwrap();
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.call("POST", &format!("/session/{}{path}", self.session), body)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = exchange(self.port, method, path, &body.to_string())
            .unwrap_or_else(|error| panic!("chromedriver does not answer {method} {path}: {error}"));
        assert!(status == 200, "{method} {path} {body}: {}", answer["value"]["message"]);
        answer["value"].clone()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ending the session ends Chromium; killing only chromedriver would leave it running.
        let _ = exchange(self.port, "DELETE", &format!("/session/{}", self.session), "{}");
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

fn capabilities(profile: &Path) -> Value {
    let mut options = json!({"args": [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
        format!("--user-data-dir={}", profile.display()),
    ]});
    if let Ok(binary) = std::env::var("CHROMIUM") {
        options["binary"] = binary.into();
    }
    json!({"capabilities": {"alwaysMatch": {
        "browserName": "chrome",
        "goog:chromeOptions": options,
        "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        "unhandledPromptBehavior": "ignore",
    }}})
}

/// Chromedriver prints its port on standard output.
fn port_of(driver: &mut Child) -> u16 {
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
    let port = lines.by_ref().find_map(|line| {
        let line = line.ok()?;
        line.split_once("on port ")?.1.trim_end_matches('.').parse::<u16>().ok().filter(|port| *port != 0)
    });
    // Its later output must be read, or it would block.
    std::thread::spawn(move || lines.for_each(drop));
    port.expect("chromedriver ended without saying on which port it listens")
}

fn exchange(port: u16, method: &str, path: &str, body: &str) -> std::io::Result<(u16, Value)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(2 * PATIENCE))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    let mut reader = BufReader::new(stream);
    let (mut status, mut length, mut line) = (0, 0, String::new());
    while reader.read_line(&mut line)? > 2 {
        if let Some(rest) = line.strip_prefix("HTTP/1.1 ") {
            status = rest.get(..3).and_then(|code| code.parse().ok()).unwrap_or(0);
        } else if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
        line.clear();
    }
    let mut content = vec![0; length];
    reader.read_exact(&mut content)?;
    Ok((status, serde_json::from_slice(&content).unwrap_or(Value::Null)))
}

fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut out) = (0_u32, 0, Vec::with_capacity(text.len() / 4 * 3));
    for value in text.bytes().filter_map(|byte| ALPHABET.iter().position(|known| *known == byte)) {
        bits = bits << 6 | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    out
}
