//! Two holders at the same time, at different isolation levels.

use sqlx::{PgPool, Postgres, Transaction};
use tenure_fenced::Error;
use tenure_fenced::sql::Fences;
use tokio::task::JoinHandle;

use super::cases::{fence, name};
use super::fixture::{postgres, sqlite};

const READ: &str = "SELECT amount FROM stock WHERE item = 'lamp'";
const WRITE: &str = "UPDATE stock SET amount = 9 WHERE item = 'lamp'";

/// Starts a later holder, and returns when the database reports that it waits for a lock.
async fn start_later_holder(pool: &PgPool, begin: &'static str) -> JoinHandle<Result<i64, Error>> {
    let later = pool.clone();
    let later = tokio::spawn(async move {
        let mut transaction = later.begin_with(begin).await.unwrap();
        Fences::in_table().register(&mut transaction, &name("lamp"), fence(8)).await?;
        let amount = sqlx::query_scalar(READ).fetch_one(&mut *transaction).await.unwrap();
        transaction.commit().await.unwrap();
        Ok(amount)
    });
    until_it_waits(pool, &later).await;
    later
}

async fn until_it_waits<T>(pool: &PgPool, later: &JoinHandle<T>) {
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    while sqlx::query_scalar::<_, i64>(waits).fetch_one(pool).await.unwrap() == 0 {
        assert!(!later.is_finished(), "it did not wait");
        tokio::task::yield_now().await;
    }
}

async fn register_and_write(pool: &PgPool) -> Transaction<'static, Postgres> {
    let mut transaction = pool.begin().await.unwrap();
    Fences::in_table().register(&mut transaction, &name("lamp"), fence(7)).await.unwrap();
    sqlx::query(WRITE).execute(&mut *transaction).await.unwrap();
    transaction
}

/// I4: a reader waits for the write of the holder before it, and that holder writes no more after it.
#[tokio::test]
async fn a_later_holder_reads_what_the_earlier_one_wrote() {
    let (_server, pool) = postgres().await;
    let earlier = register_and_write(&pool).await;
    let later = start_later_holder(&pool, "BEGIN").await;
    earlier.commit().await.unwrap();
    assert_eq!(later.await.unwrap().unwrap(), 9);
    let mut late = pool.begin().await.unwrap();
    let refused = Fences::in_table().check(&mut late, &name("lamp"), fence(7)).await.unwrap_err();
    assert!(matches!(refused, Error::Overtaken(_)), "{refused}");
}

/// I4: between the check and the commit no later holder registers, so none reads what is about to be overwritten.
#[tokio::test]
async fn a_later_holder_waits_for_a_write_that_was_checked() {
    let (_server, pool) = postgres().await;
    let mut reading = pool.begin().await.unwrap();
    Fences::in_table().register(&mut reading, &name("lamp"), fence(7)).await.unwrap();
    reading.commit().await.unwrap();
    let mut writing = pool.begin().await.unwrap();
    Fences::in_table().check(&mut writing, &name("lamp"), fence(7)).await.unwrap();
    let later = start_later_holder(&pool, "BEGIN").await;
    sqlx::query(WRITE).execute(&mut *writing).await.unwrap();
    writing.commit().await.unwrap();
    assert_eq!(later.await.unwrap().unwrap(), 9);
}

/// A snapshot from before the other's commit would read old data, so the database refuses; a repetition succeeds.
#[tokio::test]
async fn an_old_snapshot_is_refused_and_a_repetition_succeeds() {
    let (_server, pool) = postgres().await;
    for begin in ["BEGIN ISOLATION LEVEL REPEATABLE READ", "BEGIN ISOLATION LEVEL SERIALIZABLE"] {
        sqlx::raw_sql("DELETE FROM tenure_fences").execute(&pool).await.unwrap();
        let earlier = register_and_write(&pool).await;
        let later = start_later_holder(&pool, begin).await;
        earlier.commit().await.unwrap();
        let refused = later.await.unwrap().unwrap_err();
        let Error::Store { cause, .. } = &refused else { panic!("{refused}") };
        let cause = cause.downcast_ref::<sqlx::Error>().and_then(sqlx::Error::as_database_error);
        assert_eq!(cause.and_then(|error| error.code()).as_deref(), Some("40001"), "{refused}");
        let mut again = pool.begin_with(begin).await.unwrap();
        Fences::in_table().register(&mut again, &name("lamp"), fence(8)).await.unwrap();
        let amount: i64 = sqlx::query_scalar(READ).fetch_one(&mut *again).await.unwrap();
        assert_eq!(amount, 9);
        again.commit().await.unwrap();
    }
}

/// A holder that read before it registered, and was overtaken in between, cannot write.
#[tokio::test]
async fn sqlite_refuses_a_holder_that_read_before_it_registered() {
    let (_folder, pool) = sqlite().await;
    let mut early = pool.begin().await.unwrap();
    let amount: i64 = sqlx::query_scalar(READ).fetch_one(&mut *early).await.unwrap();
    assert_eq!(amount, 10);
    let mut other = pool.begin().await.unwrap();
    Fences::in_table().register(&mut other, &name("lamp"), fence(7)).await.unwrap();
    sqlx::query(WRITE).execute(&mut *other).await.unwrap();
    other.commit().await.unwrap();
    let refused = Fences::in_table().register(&mut early, &name("lamp"), fence(8)).await;
    assert!(matches!(refused, Err(Error::Store { .. })), "{refused:?}");
}

/// I4: a holder inserted a row while the next one waited to register. That row was not in the snapshot of the waiting statement,
/// and the overtaken holder could change it after the next one had read it.
#[tokio::test]
async fn a_row_that_was_inserted_meanwhile_is_registered() {
    let (_server, pool) = postgres().await;
    let fences = Fences::in_column("stock", "item");
    let mut earlier = pool.begin().await.unwrap();
    fences.register(&mut earlier, &name("desk"), fence(7)).await.unwrap();
    let insert = "INSERT INTO stock (item, amount, fence) VALUES ('desk', 30, 7)";
    sqlx::query(insert).execute(&mut *earlier).await.unwrap();

    let (later, of_later) = (pool.clone(), fences.clone());
    let later = tokio::spawn(async move {
        let mut transaction = later.begin().await.unwrap();
        of_later.register(&mut transaction, &name("desk"), fence(9)).await.unwrap();
        transaction.commit().await.unwrap();
    });
    until_it_waits(&pool, &later).await;
    earlier.commit().await.unwrap();
    later.await.unwrap();

    let late = "UPDATE stock SET amount = 0, fence = 7 WHERE item = 'desk' AND fence <= 7";
    let late = sqlx::query(late).execute(&pool).await.unwrap();
    assert_eq!(late.rows_affected(), 0);
    let mut writing = pool.begin().await.unwrap();
    fences.check(&mut writing, &name("desk"), fence(9)).await.unwrap();
}
