//! The cases, for any database.

use std::sync::{Arc, Mutex};

use sqlx::Pool;
use tenure::{Fence, LockName};
use tenure_fenced::Error;
use tenure_fenced::sql::{Database, Fences};
use tokio::task::JoinSet;

pub(crate) fn name(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

pub(crate) fn fence(value: u64) -> Fence {
    Fence::from_value(value)
}

/// Registers in a transaction of its own.
async fn register<D: Database>(
    pool: &Pool<D>,
    fences: &Fences,
    resource: &str,
    value: u64,
) -> Result<(), Error> {
    let mut transaction = pool.begin().await.unwrap();
    fences.register(&mut transaction, &name(resource), fence(value)).await?;
    transaction.commit().await.unwrap();
    Ok(())
}

/// Checks in a transaction of its own.
async fn check<D: Database>(
    pool: &Pool<D>,
    fences: &Fences,
    resource: &str,
    value: u64,
) -> Result<(), Error> {
    let mut transaction = pool.begin().await.unwrap();
    fences.check(&mut transaction, &name(resource), fence(value)).await?;
    transaction.commit().await.unwrap();
    Ok(())
}

/// The table, and a column of a row and of two rows.
fn places() -> [(Fences, &'static str); 3] {
    let column = || Fences::in_column("stock", "item");
    [(Fences::in_table(), "lamp"), (column(), "lamp"), (column(), "desk")]
}

pub(crate) async fn an_overtaken_holder_is_refused<D: Database>(pool: &Pool<D>) {
    for (fences, resource) in places() {
        register(pool, &fences, resource, 7).await.unwrap();
        check(pool, &fences, resource, 7).await.unwrap();
        register(pool, &fences, resource, 9).await.unwrap();
        let late_read = register(pool, &fences, resource, 7).await.unwrap_err();
        let late_write = check(pool, &fences, resource, 7).await.unwrap_err();
        for refused in [late_read, late_write] {
            let Error::Overtaken(overtaken) = refused else { panic!("{refused}") };
            assert_eq!(overtaken.resource().as_str(), resource);
            assert_eq!((overtaken.fence(), overtaken.newer()), (fence(7), fence(9)));
        }
        check(pool, &fences, resource, 9).await.unwrap();
    }
}

pub(crate) async fn a_holder_may_register_and_write_again<D: Database>(pool: &Pool<D>) {
    for (fences, resource) in places() {
        for _ in 0..2 {
            register(pool, &fences, resource, 7).await.unwrap();
            check(pool, &fences, resource, 7).await.unwrap();
        }
    }
}

pub(crate) async fn a_fence_that_was_not_registered_is_refused<D: Database>(pool: &Pool<D>) {
    for (fences, resource) in places() {
        let first = check(pool, &fences, resource, 7).await.unwrap_err();
        assert!(matches!(first, Error::Unregistered { .. }), "{first}");
        register(pool, &fences, resource, 7).await.unwrap();
        let later = check(pool, &fences, resource, 8).await.unwrap_err();
        assert!(matches!(later, Error::Unregistered { .. }), "{later}");
    }
}

pub(crate) async fn a_registration_that_is_rolled_back_has_no_effect<D: Database>(pool: &Pool<D>) {
    for (fences, resource) in places() {
        let mut transaction = pool.begin().await.unwrap();
        fences.register(&mut transaction, &name(resource), fence(9)).await.unwrap();
        transaction.rollback().await.unwrap();
        register(pool, &fences, resource, 7).await.unwrap();
        check(pool, &fences, resource, 7).await.unwrap();
    }
}

pub(crate) async fn a_column_needs_its_row<D: Database>(pool: &Pool<D>) {
    let fences = Fences::in_column("stock", "item");
    let registered = register(pool, &fences, "sofa", 7).await.unwrap_err();
    let checked = check(pool, &fences, "sofa", 7).await.unwrap_err();
    for refused in [registered, checked] {
        assert_eq!(
            refused.to_string(),
            "there is no row for `sofa` to store its fence in; insert the row first"
        );
    }
}

pub(crate) async fn a_key_may_be_a_number<D: Database>(pool: &Pool<D>) {
    let fences = Fences::in_column_of_type("orders", "id", "BIGINT");
    register(pool, &fences, "42", 7).await.unwrap();
    check(pool, &fences, "42", 7).await.unwrap();
    let missing = register(pool, &fences, "43", 7).await.unwrap_err();
    assert!(matches!(missing, Error::NoRow { .. }), "{missing}");
}

/// A hostile or broken holder must not exclude all later ones.
pub(crate) async fn a_number_that_is_no_fence_is_not_stored<D: Database>(pool: &Pool<D>) {
    for (fences, resource) in places() {
        for value in [1 << 53, u64::MAX] {
            let refused = register(pool, &fences, resource, value).await.unwrap_err();
            assert!(matches!(refused, Error::NotAFence { .. }), "{refused}");
        }
        register(pool, &fences, resource, Fence::MAX.value()).await.unwrap();
    }
}

/// Many holders register a resource that has no row yet. In the order in which they commit, the fences grow.
pub(crate) async fn first_holders_at_once_are_put_in_order<D: Database>(pool: &Pool<D>) {
    const HOLDERS: u64 = 24;
    let admitted = Arc::new(Mutex::new(Vec::new()));
    let mut holders = JoinSet::new();
    // In a mixed order: 7 and 24 have no common factor.
    for value in (0..HOLDERS).map(|index| 1 + index * 7 % HOLDERS) {
        let (pool, admitted) = (pool.clone(), Arc::clone(&admitted));
        holders.spawn(async move {
            let mut transaction = pool.begin().await.unwrap();
            let outcome =
                Fences::in_table().register(&mut transaction, &name("new"), fence(value)).await;
            if outcome.is_ok() {
                // The row is locked until the commit.
                admitted.lock().unwrap().push(value);
                transaction.commit().await.unwrap();
            }
            matches!(outcome, Ok(()) | Err(Error::Overtaken(_)))
        });
    }
    let outcomes = holders.join_all().await;
    assert!(outcomes.into_iter().all(|is_expected| is_expected));
    let admitted = admitted.lock().unwrap().clone();
    assert!(admitted.is_sorted(), "{admitted:?}");
    assert_eq!(admitted.last(), Some(&HOLDERS));
    check(pool, &Fences::in_table(), "new", HOLDERS).await.unwrap();
}

/// A column without NOT NULL refused no holder on SQLite, which reads NULL as 0.
pub(crate) async fn a_column_that_is_null_is_an_error<D: Database>(pool: &Pool<D>)
where
    for<'c> &'c mut D::Connection: sqlx::Executor<'c, Database = D>,
{
    let table = "CREATE TABLE goods (item TEXT, fence BIGINT)";
    let mut connection = pool.acquire().await.unwrap();
    for statement in [table, "INSERT INTO goods (item) VALUES ('lamp')"] {
        sqlx::raw_sql(statement).execute(&mut *connection).await.unwrap();
    }
    drop(connection);
    let fences = Fences::in_column("goods", "item");
    for refused in [
        register(pool, &fences, "lamp", 9).await.unwrap_err(),
        check(pool, &fences, "lamp", 9).await.unwrap_err(),
    ] {
        assert!(refused.to_string().contains("NOT NULL"), "{refused}");
    }
}
