//! Data that refuses a holder of a [Tenure](tenure) lock that was overtaken.
//!
//! A lock cannot stop a process that was paused past its lease and then continues: when it writes, it does not know
//! yet that another holder has the lock. The data can. Every grant has a larger [`Fence`](tenure::Fence) than all
//! grants before it; the data stores the largest one it has seen, and refuses a smaller one.
//!
//! A holder does two things, in this order:
//!
//! 1. It **registers** its fence, before it reads. From then on every earlier holder is refused, so what it reads
//!    stays true until a later holder registers.
//! 2. It **checks** its fence in the transaction in which it writes. A holder that was overtaken gets [`Overtaken`],
//!    which names the resource and both fences, and writes nothing.
//!
//! A holder that reads and writes in one transaction needs the first step only.
//!
//! | the data is | use | feature |
//! |---|---|---|
//! | in PostgreSQL | `sql::Fences` | `postgres` |
//! | in SQLite | `sql::Fences` | `sqlite` |
//! | in Redis | [`redis::RedisFences`], with the client that the program has | |
//! | behind an HTTP service | `http::FenceLayer` | `http` |
//!
//! No feature is on by default. The resource is called by a [`LockName`](tenure::LockName): usually that of the lock
//! that protects it, `guard.name()`.
//!
#![cfg_attr(
    feature = "sqlite",
    doc = r#"
```
# #[tokio::main(flavor = "current_thread")]
# async fn main() -> Result<(), Box<dyn std::error::Error>> {
use sqlx::Connection as _;
use tenure::Tenure;
use tenure_fenced::sql::Fences;

let mut database = sqlx::SqliteConnection::connect("sqlite::memory:").await?;
sqlx::raw_sql("CREATE TABLE stock (item TEXT, amount INTEGER); INSERT INTO stock VALUES ('lamp', 10)")
    .execute(&mut database)
    .await?;
Fences::create_table(&mut database).await?;

let guard = Tenure::memory()?.lock("stock/lamp").acquire().await?;

let mut transaction = database.begin().await?;
Fences::in_table().register(&mut transaction, guard.name(), guard.fence()).await?; // first
let amount: i64 = sqlx::query_scalar("SELECT amount FROM stock WHERE item = 'lamp'")
    .fetch_one(&mut *transaction)
    .await?; // then read
sqlx::query("UPDATE stock SET amount = $1 WHERE item = 'lamp'")
    .bind(amount - 1)
    .execute(&mut *transaction)
    .await?;
transaction.commit().await?;
# Ok(())
# }
```
"#
)]

mod error;
#[cfg(feature = "http")]
pub mod http;
pub mod redis;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub mod sql;

pub use error::{Error, Overtaken};

#[cfg(all(doctest, feature = "http", feature = "postgres"))]
#[doc = include_str!("../../../docs/fencing.md")]
struct Fencing;
