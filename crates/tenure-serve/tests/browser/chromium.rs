//! A real browser: Chromium without a screen, driven over its own protocol through a pipe.
//!
//! The protocol is JSON, one message after the other, each ended by a zero byte. Chromium reads it from its file 3 and writes to
//! its file 4; a shell puts them there.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tenure_testkit::Toolset;

const SHELL: &str = r#"exec "$@" 3<&0 4>&1 0</dev/null 1>/dev/null"#;

/// No request leaves this machine.
const ARGUMENTS: [&str; 11] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
    "about:blank",
];

/// How long it may take to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// One browser at a time: each has a dozen threads that want to paint, and several of them beside busy loops took more than a
/// minute to show a page.
static ONE: Mutex<()> = Mutex::new(());

/// A browser that ends with its test.
pub(crate) struct Browser {
    child: Child,
    input: RefCell<ChildStdin>,
    output: RefCell<BufReader<ChildStdout>>,
    next: Cell<u64>,
    events: RefCell<VecDeque<Value>>,
    _profile: TempDir,
    // Dropped last: the next browser starts when this one has ended.
    _turn: MutexGuard<'static, ()>,
}

impl Browser {
    /// Starts Chromium.
    pub(crate) fn start() -> Self {
        // A test that failed has ended its browser, too.
        let turn = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = Toolset::Chromium.find().unwrap_or_else(|missing| panic!("{missing}"));
        let profile = tempfile::tempdir().expect("a folder for the profile");
        let mut command = Command::new("sh");
        command.args(["-c", SHELL, "sh"]).arg(folder.join("chromium"));
        command.arg(format!("--user-data-dir={}", profile.path().display())).args(ARGUMENTS);
        // What it leaves behind in the temporary folder goes with its own.
        command.env("TMPDIR", profile.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("sh starts");
        let input = child.stdin.take().expect("it is piped");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Self {
            child,
            input: RefCell::new(input),
            output: RefCell::new(output),
            next: Cell::new(1),
            events: RefCell::default(),
            _profile: profile,
            _turn: turn,
        }
    }

    /// Opens a page in a window of this size.
    pub(crate) fn open(&self, url: &str, (width, height): (u32, u32)) -> Page<'_> {
        let target = self
            .call("", "Target.createTarget", json!({ "url": "about:blank" }))
            .expect("a target");
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = self.call("", "Target.attachToTarget", attach).expect("a session");
        let session = attached["sessionId"].as_str().expect("a session").to_owned();
        let page = Page { browser: self, session };
        for domain in ["Page.enable", "Runtime.enable", "Network.enable", "Log.enable"] {
            page.call(domain, json!({}));
        }
        page.resize(width, height);
        page.go(url);
        page
    }

    /// Calls a method, and returns its result, or why there is none. Events that come before it are kept.
    fn call(&self, session: &str, method: &str, parameters: Value) -> Result<Value, String> {
        let id = self.next.replace(self.next.get() + 1);
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if !session.is_empty() {
            message["sessionId"] = session.into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.input.borrow_mut().write_all(&bytes).expect("Chromium reads");
        loop {
            let answer = self.read();
            if answer["id"] == id {
                return match answer.get("error") {
                    Some(error) => Err(format!("{method}: {error}")),
                    None => Ok(answer["result"].clone()),
                };
            }
            self.events.borrow_mut().push_back(answer);
        }
    }

    fn read(&self) -> Value {
        let mut message = Vec::new();
        self.output.borrow_mut().read_until(0, &mut message).expect("Chromium writes");
        assert!(message.pop() == Some(0), "Chromium has ended");
        serde_json::from_slice(&message).expect("the protocol is JSON")
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It ends with all its processes; killed, it leaves some that write to its folder while that is removed.
        let _ = self.input.get_mut().write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let asked = now();
        while matches!(self.child.try_wait(), Ok(None)) && asked.elapsed() < PATIENCE {
            pause();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A page in a browser.
pub(crate) struct Page<'a> {
    browser: &'a Browser,
    session: String,
}

impl Page<'_> {
    /// Calls a method of the protocol.
    pub(crate) fn call(&self, method: &str, parameters: Value) -> Value {
        self.try_call(method, parameters).unwrap_or_else(|error| panic!("{error}"))
    }

    fn try_call(&self, method: &str, parameters: Value) -> Result<Value, String> {
        self.browser.call(&self.session, method, parameters)
    }

    /// Goes to an address.
    pub(crate) fn go(&self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// Changes the size of the window.
    pub(crate) fn resize(&self, width: u32, height: u32) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Prefers a scheme of colours: `light` or `dark`.
    pub(crate) fn prefer(&self, scheme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call("Emulation.setEmulatedMedia", json!({ "features": [feature] }));
    }

    /// The value of an expression; a promise is awaited.
    pub(crate) fn eval(&self, expression: &str) -> Value {
        self.try_eval(expression).unwrap_or_else(|| panic!("{expression} throws"))
    }

    /// The value of an expression; none if it throws, or the page goes elsewhere meanwhile.
    fn try_eval(&self, expression: &str) -> Option<Value> {
        let parameters =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.try_call("Runtime.evaluate", parameters).ok()?;
        let is_thrown = result.get("exceptionDetails").is_some();
        (!is_thrown).then(|| result["result"]["value"].clone())
    }

    /// Waits until an expression is true.
    pub(crate) fn until(&self, expression: &str) {
        let started = now();
        // While a page loads, there may be nothing to look at. Several browsers beside busy loops take long to show anything.
        while self.try_eval(expression) != Some(true.into()) {
            let is_late = started.elapsed() > Duration::from_secs(60);
            assert!(!is_late, "never {expression}: {}", self.text());
            pause();
        }
    }

    /// What the page shows.
    pub(crate) fn text(&self) -> String {
        self.eval("document.body.innerText").as_str().unwrap_or_default().to_owned()
    }

    /// Presses a key, such as `Enter` or `a`.
    pub(crate) fn press(&self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            key if key.chars().count() == 1 => key,
            _ => "",
        };
        let code = match key {
            "Enter" => 13,
            "End" => 35,
            "Tab" => 9,
            "Escape" => 27,
            "ArrowDown" => 40,
            "ArrowUp" => 38,
            _ => 0,
        };
        let mut event = json!({ "type": "keyDown", "key": key, "windowsVirtualKeyCode": code });
        if !text.is_empty() {
            event["text"] = text.into();
        }
        self.call("Input.dispatchKeyEvent", event);
        let up = json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code });
        self.call("Input.dispatchKeyEvent", up);
    }

    /// Types a text into what has the focus.
    pub(crate) fn type_text(&self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Clicks at the middle of the first element that a selector finds.
    pub(crate) fn click(&self, selector: &str) {
        let script = format!(
            "(() => {{ const box = document.querySelector({}).getBoundingClientRect();
               return [box.x + box.width / 2, box.y + box.height / 2]; }})()",
            json!(selector)
        );
        let place = self.eval(&script);
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({ "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Writes a picture of the page to a file, as PNG.
    pub(crate) fn picture(&self, file: &Path) {
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let encoded = shot["data"].as_str().expect("a picture");
        fs::write(file, decoded(encoded)).expect("the picture can be written");
    }

    /// The events of a method so far, which are forgotten.
    pub(crate) fn events(&self, method: &str) -> Vec<Value> {
        // Some event may still be on its way: an answer comes behind it.
        self.eval("0");
        let mut events = self.browser.events.borrow_mut();
        let own = |it: &Value| it["method"] == method && it["sessionId"] == *self.session;
        let (found, rest) = events.drain(..).partition::<Vec<_>, _>(own);
        events.extend(rest);
        found.into_iter().map(|mut event| event["params"].take()).collect()
    }
}

/// The bytes of a text in base64.
fn decoded(text: &str) -> Vec<u8> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for letter in text.bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => break,
        };
        (bits, count) = (bits << 6 | u32::from(value), count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    bytes
}

#[expect(clippy::disallowed_methods, reason = "the test judges by its own clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "the test polls the page")]
fn pause() {
    std::thread::sleep(Duration::from_millis(5));
}
