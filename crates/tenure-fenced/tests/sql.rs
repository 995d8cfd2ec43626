//! R15: fences in real databases. Each case runs on PostgreSQL and on SQLite.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod sql {
    pub(crate) mod cases;
    pub(crate) mod fixture;
    mod isolation;
}

use sql::cases;
use sql::fixture::{postgres, sqlite};

/// Makes a test for each case and database, so that a failure reads `postgres::an_overtaken_holder_is_refused`.
macro_rules! on_every_database {
    ($($case:ident),* $(,)?) => {
        mod on_postgres {
            $(#[tokio::test]
            async fn $case() {
                let (_server, pool) = super::postgres().await;
                super::cases::$case(&pool).await;
            })*
        }

        mod on_sqlite {
            $(#[tokio::test]
            async fn $case() {
                let (_folder, pool) = super::sqlite().await;
                super::cases::$case(&pool).await;
            })*
        }
    };
}

on_every_database! {
    an_overtaken_holder_is_refused,
    a_holder_may_register_and_write_again,
    a_fence_that_was_not_registered_is_refused,
    a_registration_that_is_rolled_back_has_no_effect,
    a_column_needs_its_row,
    a_key_may_be_a_number,
    a_number_that_is_no_fence_is_not_stored,
    first_holders_at_once_are_put_in_order,
    a_column_that_is_null_is_an_error,
}
