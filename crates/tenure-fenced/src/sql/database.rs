//! The databases that [`Fences`](super::Fences) works with. Both understand the same statements.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, Transaction};

/// A database that stores fences: `sqlx::Postgres` or `sqlx::Sqlite`, as the features say.
pub trait Database: sealed::Run {}

pub(crate) mod sealed {
    use super::{Arc, Transaction};

    /// Runs the statements; no other crate can implement it.
    pub trait Run: sqlx::Database {
        /// Runs a statement that returns fences, with the key as `$1` and the fence, if it has one, as `$2`.
        fn fences(
            transaction: &mut Transaction<'_, Self>,
            statement: &Arc<str>,
            key: &str,
            fence: Option<i64>,
        ) -> impl Future<Output = Result<Vec<i64>, sqlx::Error>> + Send;
    }
}

/// A macro, because the bounds of a generic function would be longer than its body, and part of the public API.
macro_rules! database {
    ($database:ty) => {
        impl Database for $database {}

        impl sealed::Run for $database {
            async fn fences(
                transaction: &mut Transaction<'_, Self>,
                statement: &Arc<str>,
                key: &str,
                fence: Option<i64>,
            ) -> Result<Vec<i64>, sqlx::Error> {
                // Safe: a constant, or one with names that the program gave as constants.
                let statement = AssertSqlSafe(Arc::clone(statement));
                let query = sqlx::query_scalar::<Self, i64>(statement).bind(key);
                let query = if let Some(fence) = fence { query.bind(fence) } else { query };
                query.fetch_all(&mut **transaction).await
            }
        }
    };
}

#[cfg(feature = "postgres")]
database!(sqlx::Postgres);
#[cfg(feature = "sqlite")]
database!(sqlx::Sqlite);
