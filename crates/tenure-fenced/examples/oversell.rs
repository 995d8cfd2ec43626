//! 100 buyers, 10 items, and one buyer that is stopped (SIGSTOP) after it has read how many are left. When its lease is
//! over, the others buy everything; then it continues, and sells an item that is gone, unless the database checks its
//! fence.
//!
//! `cargo run -p tenure-fenced --example oversell --features sqlite`

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sqlx::{Connection, SqliteConnection};
use tenure::Tenure;
use tenure_fenced::sql::Fences;

type Outcome<T> = Result<T, Box<dyn Error>>;

const TABLES: &str = "
    DROP TABLE IF EXISTS stock; CREATE TABLE stock (amount INTEGER); INSERT INTO stock VALUES (10);
    DROP TABLE IF EXISTS sales; CREATE TABLE sales (buyer INTEGER);";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    // Started again as the buyer that is stopped: the folder, and whether fences are checked.
    if let [_, folder, fenced] = &std::env::args().collect::<Vec<_>>()[..] {
        return run_stopped_buyer(Path::new(folder), fenced == "true").await;
    }
    let folder = tempfile::tempdir()?;
    for fenced in [false, true] {
        let sold = sell_out(folder.path(), fenced).await?;
        let with = if fenced { "with" } else { "without" };
        println!("{with} the fence: {sold} of 10 items were sold");
    }
    Ok(())
}

async fn sell_out(folder: &Path, fenced: bool) -> Outcome<i64> {
    let mut database = open(folder).await?;
    sqlx::raw_sql(TABLES).execute(&mut database).await?;
    Fences::create_table(&mut database).await?;
    let mut stopped = start_stopped_buyer(folder, fenced)?;
    let tenure = connect(folder).await?;
    for buyer in 1..100 {
        buy(&tenure, &mut database, fenced, buyer, || Ok(())).await?;
    }
    kill_process(Pid::from_child(&stopped), Signal::CONT)?;
    drop(stopped.stdin.take());
    stopped.wait()?;
    Ok(sqlx::query_scalar("SELECT count(*) FROM sales").fetch_one(&mut database).await?)
}

/// Starts the other process, and stops it when it has read.
fn start_stopped_buyer(folder: &Path, fenced: bool) -> Outcome<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(folder).arg(fenced.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let output = child.stdout.take().ok_or("its output is a pipe")?;
    BufReader::new(output).read_line(&mut String::new())?;
    kill_process(Pid::from_child(&child), Signal::STOP)?;
    Ok(child)
}

async fn run_stopped_buyer(folder: &Path, fenced: bool) -> Outcome<()> {
    let (tenure, mut database) = (connect(folder).await?, open(folder).await?);
    let pause = || {
        println!("read");
        std::io::stdout().flush()?;
        // Until the other process closes the pipe.
        std::io::stdin().read_line(&mut String::new()).map(drop)
    };
    match buy(&tenure, &mut database, fenced, 0, pause).await {
        Ok(()) => eprintln!("the stopped buyer: sold"),
        Err(refused) => eprintln!("the stopped buyer: {refused}"),
    }
    Ok(())
}

async fn buy(
    tenure: &Tenure,
    database: &mut SqliteConnection,
    fenced: bool,
    buyer: i64,
    pause: impl FnOnce() -> std::io::Result<()>,
) -> Outcome<()> {
    let guard = tenure.lock("stock").lease(Duration::from_secs(1)).acquire().await?;
    let fences = Fences::in_table();

    let mut reading = database.begin().await?;
    if fenced {
        fences.register(&mut reading, guard.name(), guard.fence()).await?;
    }
    let left: i64 = sqlx::query_scalar("SELECT amount FROM stock").fetch_one(&mut *reading).await?;
    reading.commit().await?;
    if left == 0 {
        return Ok(());
    }
    pause()?;

    let mut writing = database.begin().await?;
    if fenced {
        fences.check(&mut writing, guard.name(), guard.fence()).await?;
    }
    let update = sqlx::query("UPDATE stock SET amount = $1").bind(left - 1);
    update.execute(&mut *writing).await?;
    sqlx::query("INSERT INTO sales VALUES ($1)").bind(buyer).execute(&mut *writing).await?;
    writing.commit().await?;
    Ok(())
}

async fn connect(folder: &Path) -> Outcome<Tenure> {
    Ok(Tenure::connect(&format!("local://{}", folder.join("locks").display())).await?)
}

async fn open(folder: &Path) -> Outcome<SqliteConnection> {
    let url = format!("sqlite:{}?mode=rwc", folder.join("shop.db").display());
    Ok(SqliteConnection::connect(&url).await?)
}
