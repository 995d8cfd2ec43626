//! A shop that sells ten items, with its data in one of the stores.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{PgPool, SqlitePool};
use tenure::{Fence, LockName};
use tenure_fenced::Error;
use tenure_fenced::redis::RedisFences;
use tenure_fenced::sql::Fences;
use tenure_testkit::resp::{Connection, Reply};

use crate::client::Client;

pub(crate) const ITEMS: i64 = 10;

const PATIENCE: Duration = Duration::from_secs(60);

const TABLES: &str = "
    DROP TABLE IF EXISTS stock; CREATE TABLE stock (amount BIGINT NOT NULL);
    DROP TABLE IF EXISTS sales; CREATE TABLE sales (buyer BIGINT NOT NULL);
    INSERT INTO stock VALUES (10);";

#[derive(Clone)]
pub(crate) enum Shop {
    Postgres(PgPool),
    Sqlite(SqlitePool),
    Redis(Arc<InRedis>),
}

pub(crate) struct InRedis {
    client: Client,
    fences: RedisFences<Client>,
}

/// The same statements on both databases; a function could not be generic without naming a dozen bounds.
macro_rules! in_sql {
    (left: $pool:expr, $name:expr, $fence:expr) => {{
        let mut transaction = $pool.begin().await.unwrap();
        if let Some(fence) = $fence {
            Fences::in_table().register(&mut transaction, $name, fence).await?;
        }
        let left = sqlx::query_scalar("SELECT amount FROM stock");
        let left: i64 = left.fetch_one(&mut *transaction).await.unwrap();
        transaction.commit().await.unwrap();
        Ok(left)
    }};
    (sell: $pool:expr, $name:expr, $fence:expr, $buyer:expr, $left:expr) => {{
        let mut transaction = $pool.begin().await.unwrap();
        if let Some(fence) = $fence {
            Fences::in_table().check(&mut transaction, $name, fence).await?;
        }
        let update = sqlx::query("UPDATE stock SET amount = $1").bind($left - 1);
        update.execute(&mut *transaction).await.unwrap();
        let sale = sqlx::query("INSERT INTO sales VALUES ($1)").bind(i64::from($buyer));
        sale.execute(&mut *transaction).await.unwrap();
        transaction.commit().await.unwrap();
        Ok(())
    }};
    (stock_up: $pool:expr) => {{
        sqlx::raw_sql(TABLES).execute($pool).await.unwrap();
        Fences::create_table(&mut *$pool.acquire().await.unwrap()).await.unwrap();
    }};
    (sold: $pool:expr) => {
        sqlx::query_scalar("SELECT count(*) FROM sales").fetch_one($pool).await.unwrap()
    };
}

impl Shop {
    pub(crate) async fn open(url: &str) -> Self {
        if let Some(socket) = url.strip_prefix("unix://") {
            let connect = || Client::over(Connection::unix(Path::new(socket)).unwrap());
            let fences = RedisFences::new(connect(), "fence:");
            return Self::Redis(Arc::new(InRedis { client: connect(), fences }));
        }
        if url.starts_with("postgres:") {
            let options = PgPoolOptions::new().max_connections(4).acquire_timeout(PATIENCE);
            return Self::Postgres(options.connect(url).await.unwrap());
        }
        let options = SqlitePoolOptions::new().max_connections(4).acquire_timeout(PATIENCE);
        Self::Sqlite(options.connect(url).await.unwrap())
    }

    /// Forgets all sales. The fences stay, as in a real shop.
    pub(crate) async fn stock_up(&self) {
        match self {
            Self::Postgres(pool) => in_sql!(stock_up: pool),
            Self::Sqlite(pool) => in_sql!(stock_up: pool),
            Self::Redis(redis) => {
                redis.client.command(&["SET", "left", "10"]);
                redis.client.command(&["DEL", "sales"]);
            }
        }
    }

    /// Registers the fence, if there is one, and reads how many items are left.
    pub(crate) async fn left(&self, name: &LockName, fence: Option<Fence>) -> Result<i64, Error> {
        match self {
            Self::Postgres(pool) => in_sql!(left: pool, name, fence),
            Self::Sqlite(pool) => in_sql!(left: pool, name, fence),
            Self::Redis(redis) => {
                if let Some(fence) = fence {
                    redis.fences.register(name, fence).await?;
                }
                let left = redis.client.command(&["GET", "left"]).text();
                Ok(left.unwrap().parse().unwrap())
            }
        }
    }

    /// Writes what the buyer computed from what it read, unless it was overtaken.
    pub(crate) async fn sell(
        &self,
        name: &LockName,
        fence: Option<Fence>,
        buyer: u32,
        left: i64,
    ) -> Result<(), Error> {
        match self {
            Self::Postgres(pool) => in_sql!(sell: pool, name, fence, buyer, left),
            Self::Sqlite(pool) => in_sql!(sell: pool, name, fence, buyer, left),
            Self::Redis(redis) => redis.sell(name, fence, buyer, &(left - 1).to_string()).await,
        }
    }

    /// How many items were sold.
    pub(crate) async fn sold(&self) -> i64 {
        match self {
            Self::Postgres(pool) => in_sql!(sold: pool),
            Self::Sqlite(pool) => in_sql!(sold: pool),
            Self::Redis(redis) => match redis.client.command(&["LLEN", "sales"]) {
                Reply::Integer(count) => count,
                other => panic!("{other:?}"),
            },
        }
    }
}

impl InRedis {
    async fn sell(
        &self,
        name: &LockName,
        fence: Option<Fence>,
        buyer: u32,
        left: &str,
    ) -> Result<(), Error> {
        match fence {
            Some(fence) => self.fences.set(name, fence, "left", left.as_bytes()).await?,
            None => drop(self.client.command(&["SET", "left", left])),
        }
        self.client.command(&["RPUSH", "sales", &buyer.to_string()]);
        Ok(())
    }
}
