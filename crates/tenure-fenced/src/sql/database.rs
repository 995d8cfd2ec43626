//! The databases that [`Fences`](super::Fences) works with. Both understand the same statements.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Transaction};

/// A database that stores fences: `sqlx::Postgres` or `sqlx::Sqlite`, as the features say.
pub trait Database: sealed::Run {}

pub(crate) mod sealed {
    use super::{Arc, Transaction};

    /// Runs the statements; no other crate can implement it.
    pub trait Run: sqlx::Database {
        /// Whether a statement that waited for another transaction does not see the rows which that one has inserted.
        const SNAPSHOTS_STATEMENTS: bool;

        /// Runs a statement that returns fences, with the key as `$1` and the fence, if it has one, as `$2`.
        fn fences(
            transaction: &mut Transaction<'_, Self>,
            statement: &Arc<str>,
            key: &str,
            fence: Option<i64>,
        ) -> impl Future<Output = Result<Vec<Option<i64>>, sqlx::Error>> + Send;
    }
}

/// A macro, because the bounds of a generic function would be longer than its body, and part of the public API.
macro_rules! database {
    ($database:ty, $snapshots_statements:literal) => {
        impl Database for $database {}

        impl sealed::Run for $database {
            const SNAPSHOTS_STATEMENTS: bool = $snapshots_statements;

            async fn fences(
                transaction: &mut Transaction<'_, Self>,
                statement: &Arc<str>,
                key: &str,
                fence: Option<i64>,
            ) -> Result<Vec<Option<i64>>, sqlx::Error> {
                // Safe: a constant, or one with names that the program gave as constants.
                let statement = AssertSqlSafe(Arc::clone(statement));
                let query = sqlx::query_scalar::<Self, Option<i64>>(statement).bind(key);
                let query = if let Some(fence) = fence { query.bind(fence) } else { query };
                query.fetch_all(&mut **transaction).await
            }
        }
    };
}

#[cfg(feature = "postgres")]
database!(sqlx::Postgres, true);
// A writer excludes all others.
#[cfg(feature = "sqlite")]
database!(sqlx::Sqlite, false);
