//! Stores that are folders: each case has one of its own.

use tempfile::TempDir;
use tenure::Tenure;
use tenure::engine::{Engine, LocalEngine};

use super::fixture::Fixture;

/// A folder of the case's own.
pub(crate) struct Local(TempDir);

impl Local {
    fn open(&self) -> LocalEngine {
        LocalEngine::open(self.0.path().join("locks")).unwrap()
    }
}

impl Fixture for Local {
    fn start() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn engine(&self) -> Box<dyn Engine> {
        Box::new(self.open())
    }

    fn tenure(&self) -> Tenure {
        Tenure::builder().engine(self.open()).unwrap()
    }
}
