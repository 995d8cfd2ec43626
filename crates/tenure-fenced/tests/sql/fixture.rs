//! A database with the tables of the cases.

use std::time::Duration;

use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{PgPool, SqlitePool};
use tempfile::TempDir;
use tenure_fenced::sql::Fences;
use tenure_testkit::Postgres;

/// Connections of a pool: enough for the holders of one case.
const CONNECTIONS: u32 = 8;

/// How long a holder waits for a lock of the database: far longer than any case takes.
const PATIENCE: Duration = Duration::from_secs(60);

const TABLES: &str = "
    CREATE TABLE stock (item TEXT, amount BIGINT, fence BIGINT NOT NULL DEFAULT 0);
    INSERT INTO stock (item, amount) VALUES ('lamp', 10), ('desk', 10), ('desk', 20);
    CREATE TABLE orders (id BIGINT PRIMARY KEY, fence BIGINT NOT NULL DEFAULT 0);
    INSERT INTO orders (id) VALUES (42);";

pub(crate) async fn postgres() -> (Postgres, PgPool) {
    let server = Postgres::start();
    let options = PgPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(PATIENCE);
    let pool = options.connect(&server.url("postgres")).await.unwrap();
    sqlx::raw_sql(TABLES).execute(&pool).await.unwrap();
    Fences::create_table(&mut *pool.acquire().await.unwrap()).await.unwrap();
    (server, pool)
}

pub(crate) async fn sqlite() -> (TempDir, SqlitePool) {
    let folder = tempfile::tempdir().unwrap();
    let options = SqliteConnectOptions::new().filename(folder.path().join("shop.db"));
    let options = options.create_if_missing(true).busy_timeout(PATIENCE);
    let options = options.journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(PATIENCE);
    let pool = pool.connect_with(options).await.unwrap();
    sqlx::raw_sql(TABLES).execute(&pool).await.unwrap();
    Fences::create_table(&mut *pool.acquire().await.unwrap()).await.unwrap();
    (folder, pool)
}
