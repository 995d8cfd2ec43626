//! Fences in PostgreSQL and SQLite, in the caller's own transaction.
//!
//! Both operations of [`Fences`] are one statement that updates the row with the fence and returns what it stores then.
//! The update locks the row (in SQLite: the database) until the transaction ends, so two holders of one resource
//! cannot pass at the same time, and a holder that waited for another one sees its fence. Fences grow in the order of
//! the grants (I4), so the larger one is the later holder's.
//!
//! | isolation level | a holder that waited for another one's transaction |
//! |---|---|
//! | PostgreSQL, read committed (the default) | continues with the fence that the other one stored, and reads what it wrote |
//! | PostgreSQL, repeatable read or serializable | gets [`Error::Store`] (SQLSTATE 40001) if the other one committed, because its snapshot is older; roll back and repeat the transaction |
//! | SQLite, where this is the first statement | continues, as above; waits for at most the busy timeout |
//! | SQLite, after another statement has read | gets [`Error::Store`] (`SQLITE_BUSY`) if the other one committed; roll back and repeat |
//!
//! So the first statement of a transaction should be `register` or `check`: what was read before it is not protected
//! at the level read committed, and refused at the others. After an error, roll back: dropping the transaction does it.
//! Locks that a statement took within a savepoint end when that savepoint is rolled back.

mod database;

use std::sync::Arc;

use sqlx::Transaction;
use tenure::{Fence, LockName};

use crate::error::{self, Error, Overtaken};

pub use database::Database;

/// Creates the table of [`Fences::in_table`], for a migration. [`Fences::create_table`] executes it.
pub const CREATE_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS tenure_fences (resource TEXT PRIMARY KEY, fence BIGINT NOT NULL)";

/// A resource without a row gets one: two first holders at once are put in order by the primary key.
const REGISTER_IN_TABLE: &str = "INSERT INTO tenure_fences (resource, fence) VALUES ($1, $2) \
     ON CONFLICT (resource) DO UPDATE SET fence = \
     CASE WHEN tenure_fences.fence < excluded.fence THEN excluded.fence ELSE tenure_fences.fence END \
     RETURNING fence";

/// Changes nothing, but locks the row, on every database.
const CHECK_IN_TABLE: &str =
    "UPDATE tenure_fences SET fence = fence WHERE resource = $1 RETURNING fence";

/// Where the fences of some resources are: in a table of their own, or in a column of the data.
///
/// # Examples
///
#[cfg_attr(
    feature = "sqlite",
    doc = r#"
A read, a long computation, and a write in another transaction:

```
# #[tokio::main(flavor = "current_thread")]
# async fn main() -> Result<(), Box<dyn std::error::Error>> {
use sqlx::Connection as _;
use tenure::{Fence, LockName};
use tenure_fenced::{Error, sql::Fences};

let mut database = sqlx::SqliteConnection::connect("sqlite::memory:").await?;
Fences::create_table(&mut database).await?;
let fences = Fences::in_table();
let (name, stopped, current) = (LockName::new("report")?, Fence::from_value(7), Fence::from_value(8));

let mut reading = database.begin().await?;
fences.register(&mut reading, &name, stopped).await?; // then it reads, and is stopped
reading.commit().await?;

let mut reading = database.begin().await?;
fences.register(&mut reading, &name, current).await?;
reading.commit().await?;

let mut writing = database.begin().await?;
let Err(Error::Overtaken(overtaken)) = fences.check(&mut writing, &name, stopped).await else {
    panic!("a stopped holder must not write");
};
assert_eq!((overtaken.fence(), overtaken.newer()), (stopped, current));
# Ok(())
# }
```
"#
)]
#[derive(Clone, Debug)]
pub struct Fences {
    register: Arc<str>,
    check: Arc<str>,
    /// Whether `register` inserts a row that is missing. There is one row for each resource then.
    inserts: bool,
}

impl Fences {
    /// In the table `tenure_fences` ([`CREATE_TABLE`]), for data that has no column for a fence.
    #[must_use]
    pub fn in_table() -> Self {
        Self { register: REGISTER_IN_TABLE.into(), check: CHECK_IN_TABLE.into(), inserts: true }
    }

    /// In the column `fence BIGINT NOT NULL DEFAULT 0` of a table of yours, in the row, or rows, whose column `key`
    /// equals the name of the resource.
    ///
    /// This is the column of [`tenure::fenced::SQL_SET`] and [`SQL_CHECK`](tenure::fenced::SQL_CHECK), which check it
    /// in the caller's own statement. A row that is missing is an error ([`Error::NoRow`]); one that is inserted must have the
    /// fence of the holder that inserts it. Both names become part of
    /// the statement as they are: they must come from the program, never from input.
    #[must_use]
    pub fn in_column(table: &'static str, key: &'static str) -> Self {
        Self::in_row(table, key, "$1")
    }

    /// The same, with a key that is not a text: the name of the resource is cast to `key_type`, such as `BIGINT`.
    #[must_use]
    pub fn in_column_of_type(
        table: &'static str,
        key: &'static str,
        key_type: &'static str,
    ) -> Self {
        Self::in_row(table, key, &format!("CAST($1 AS {key_type})"))
    }

    fn in_row(table: &str, key: &str, name: &str) -> Self {
        let update = |fence| {
            format!("UPDATE {table} SET fence = {fence} WHERE {key} = {name} RETURNING fence")
        };
        Self {
            register: update("CASE WHEN fence < $2 THEN $2 ELSE fence END").into(),
            check: update("fence").into(),
            inserts: false,
        }
    }

    /// Creates the table `tenure_fences`, if there is none.
    ///
    /// # Errors
    /// Returns the error of the database. On PostgreSQL two clients that create it at once can get one: run it as a
    /// migration, before the service starts.
    pub async fn create_table<C>(connection: &mut C) -> Result<(), sqlx::Error>
    where
        C: sqlx::Connection,
        C::Database: Database,
        for<'c> &'c mut C: sqlx::Executor<'c, Database = C::Database>,
    {
        sqlx::raw_sql(CREATE_TABLE).execute(connection).await.map(drop)
    }

    /// Registers the fence: from the commit on, every earlier holder is refused. Call it before the data is read.
    ///
    /// The same holder may register again, and a holder that reads and writes in this transaction needs no check.
    ///
    /// # Errors
    /// [`Error::Overtaken`] if a newer holder has registered; [`Error::NoRow`] if the fence is in a column of a row
    /// that is missing; [`Error::Store`] if the database fails, or the transaction must be repeated.
    pub async fn register<D: Database>(
        &self,
        transaction: &mut Transaction<'_, D>,
        resource: &LockName,
        fence: Fence,
    ) -> Result<(), Error> {
        let mine = error::to_stored(resource, fence)?;
        let (mut oldest, newest) = self.store(transaction, resource, mine).await?;
        refuse_overtaken(resource, fence, newest)?;
        if D::SNAPSHOTS_STATEMENTS && !self.inserts {
            // A row that was inserted while the statement waited for another transaction is not in its snapshot. Now
            // that the other rows are locked, it is in the next one.
            let (again, newest) = self.store(transaction, resource, mine).await?;
            refuse_overtaken(resource, fence, newest)?;
            oldest = again;
        }
        if oldest == fence {
            return Ok(());
        }
        Err(Error::store(
            resource,
            "the database did not store the fence: is there a trigger that changes it?",
        ))
    }

    /// Stores the fence where it is the largest. Returns the smallest and the largest that are stored then.
    async fn store<D: Database>(
        &self,
        transaction: &mut Transaction<'_, D>,
        resource: &LockName,
        mine: i64,
    ) -> Result<(Fence, Fence), Error> {
        let rows = D::fences(transaction, &self.register, resource.as_str(), Some(mine)).await;
        let stored = stored(resource, rows)?;
        stored.ok_or_else(|| Error::NoRow { resource: resource.clone() })
    }

    /// Checks that the fence is registered and not overtaken. It stays so until the transaction ends, so the caller
    /// writes in this transaction, and commits.
    ///
    /// # Errors
    /// [`Error::Overtaken`] if a newer holder has registered; [`Error::Unregistered`] if this one has not, so that an
    /// earlier one may have written after it read; [`Error::NoRow`] and [`Error::Store`] as for
    /// [`register`](Self::register).
    pub async fn check<D: Database>(
        &self,
        transaction: &mut Transaction<'_, D>,
        resource: &LockName,
        fence: Fence,
    ) -> Result<(), Error> {
        error::to_stored(resource, fence)?;
        let unregistered = || Error::Unregistered { resource: resource.clone(), fence };
        let rows = D::fences(transaction, &self.check, resource.as_str(), None).await;
        let Some((oldest, newest)) = stored(resource, rows)? else {
            let no_row = || Error::NoRow { resource: resource.clone() };
            return Err(if self.inserts { unregistered() } else { no_row() });
        };
        refuse_overtaken(resource, fence, newest)?;
        if oldest == fence { Ok(()) } else { Err(unregistered()) }
    }
}

/// The smallest and the largest of the fences that are stored; none without a row.
fn stored(
    resource: &LockName,
    rows: Result<Vec<Option<i64>>, sqlx::Error>,
) -> Result<Option<(Fence, Fence)>, Error> {
    let rows = rows.map_err(|cause| Error::store(resource, cause))?;
    let read = |row: Option<i64>| match row {
        Some(stored) => error::from_stored(resource, stored),
        // No number is larger or smaller than NULL, so it would refuse no holder.
        None => Err(Error::store(
            resource,
            "the column of the fence is NULL: declare it as BIGINT NOT NULL DEFAULT 0",
        )),
    };
    let fences = rows.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(fences.iter().min().copied().zip(fences.iter().max().copied()))
}

fn refuse_overtaken(resource: &LockName, fence: Fence, stored: Fence) -> Result<(), Error> {
    if stored <= fence {
        return Ok(());
    }
    Err(Overtaken::new(resource, fence, stored).into())
}
