//! A headless Chromium, driven by the W3C's WebDriver protocol.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::serve::{agent, answer};

/// How long something may take to appear.
const PATIENCE: Duration = Duration::from_secs(60);

/// The key under which the protocol names elements.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

pub struct Browser {
    driver: Child,
    session: String,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = agent().delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Browser {
    /// A browser that downloads into this folder.
    pub fn start(downloads: &Path) -> Self {
        let mut command = Command::new("chromedriver");
        let driver = command.arg("--port=0").stdout(Stdio::piped()).spawn();
        let mut driver = driver.expect("chromedriver is installed");
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let port = line.split_once("started successfully on port ")?.1;
            Some(port.trim_end_matches('.').to_owned())
        });
        let url = format!("http://127.0.0.1:{}/session", port.expect("the driver's port"));
        let arguments = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage"];
        let preferences = json!({"download.default_directory": downloads});
        let options = json!({"args": arguments, "prefs": preferences});
        let options = json!({"goog:chromeOptions": options});
        let session = send(&url, json!({"capabilities": {"alwaysMatch": options}}));
        let session = format!("{url}/{}", session["sessionId"].as_str().unwrap());
        Self { driver, session }
    }

    fn command(&self, path: &str, body: Value) -> Value {
        send(&format!("{}/{path}", self.session), body)
    }

    fn element(&self, selector: &str) -> String {
        let found = self.command("element", json!({"using": "css selector", "value": selector}));
        format!("element/{}", found[ELEMENT].as_str().unwrap())
    }

    pub fn open(&self, url: &str) {
        self.command("url", json!({ "url": url }));
    }

    pub fn click(&self, selector: &str) {
        self.command(&format!("{}/click", self.element(selector)), json!({}));
    }

    pub fn write(&self, selector: &str, text: &str) {
        self.command(&format!("{}/value", self.element(selector)), json!({ "text": text }));
    }

    /// Says yes to what the page asks.
    pub fn confirm(&self) {
        self.command("alert/accept", json!({}));
    }

    /// Chooses files in an input.
    pub fn choose(&self, selector: &str, files: &[&Path]) {
        let files: Vec<_> = files.iter().map(|file| file.to_str().unwrap()).collect();
        self.write(selector, &files.join("\n"));
    }

    /// Drops a file of this content on an element.
    pub fn drop_on(&self, selector: &str, name: &str, content: &[u8]) {
        let script = "
            const [selector, name, content] = arguments;
            const dataTransfer = new DataTransfer();
            dataTransfer.items.add(new File([new Uint8Array(content)], name));
            const event = new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true });
            document.querySelector(selector).dispatchEvent(event);";
        let arguments = json!([selector, name, content]);
        self.command("execute/sync", json!({"script": script, "args": arguments}));
    }

    /// Waits until an expression is true.
    pub fn until(&self, expression: &str) {
        let script = format!("return Boolean({expression});");
        self.wait(expression, || self.run(&script) == json!(true));
    }

    /// Waits until something holds.
    pub fn wait(&self, what: &str, holds: impl Fn() -> bool) {
        let start = Instant::now();
        while !holds() {
            if start.elapsed() > PATIENCE {
                let page = self.run("return document.body.innerText;");
                panic!("not after {PATIENCE:?}: {what}\n{page:#}");
            }
            sleep(Duration::from_millis(50));
        }
    }

    fn run(&self, script: &str) -> Value {
        self.command("execute/sync", json!({"script": script, "args": []}))
    }

    /// Pictures of the page in a narrow window and in a wide one, in the folder that FEWSHOT_SCREENSHOTS names, if it names one.
    pub fn screenshot(&self, name: &str) {
        let Some(folder) = std::env::var_os("FEWSHOT_SCREENSHOTS") else { return };
        fs::create_dir_all(&folder).unwrap();
        for (width, kind) in [(400, "narrow"), (1200, "wide")] {
            // The window itself may not become so narrow.
            let size =
                json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
            let command = json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": size});
            self.command("goog/cdp/execute", command);
            let shown = agent().get(format!("{}/screenshot", self.session)).call().unwrap();
            let shown = STANDARD.decode(answer(shown).1["value"].as_str().unwrap()).unwrap();
            fs::write(Path::new(&folder).join(format!("{name}-{kind}.png")), shown).unwrap();
        }
    }
}

/// The value of an answer; an expression that fails has none.
fn send(url: &str, body: Value) -> Value {
    let (status, found) = answer(agent().post(url).send(body.to_string()).unwrap());
    let error = &found["value"]["error"];
    assert!(status == 200 || error == "javascript error", "{url}: {found:#}");
    found["value"].clone()
}
