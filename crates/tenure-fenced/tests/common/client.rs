//! A Redis client for the tests: the testkit's, which blocks.

use std::sync::{Mutex, MutexGuard};

use tenure_fenced::redis::RunScript;
use tenure_testkit::Server;
use tenure_testkit::resp::{Connection, Reply};

pub(crate) struct Client(Mutex<Connection>);

impl Client {
    pub(crate) fn of(server: &Server) -> Self {
        Self::over(server.connect().unwrap())
    }

    pub(crate) fn over(connection: Connection) -> Self {
        Self(Mutex::new(connection))
    }

    pub(crate) fn command<W: AsRef<[u8]>>(&self, words: &[W]) -> Reply {
        self.connection().command(words).unwrap()
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.0.lock().unwrap()
    }
}

impl RunScript for Client {
    async fn run_script(
        &self,
        script: &str,
        keys: &[&str],
        arguments: &[&[u8]],
    ) -> Result<i64, Box<dyn std::error::Error + Send + Sync>> {
        let count = keys.len().to_string();
        let mut words = vec![b"EVAL".as_slice(), script.as_bytes(), count.as_bytes()];
        words.extend(keys.iter().map(|key| key.as_bytes()));
        words.extend(arguments);
        match self.connection().command(&words)? {
            Reply::Integer(number) => Ok(number),
            other => Err(format!("the server answered {other:?}").into()),
        }
    }
}
