//! `POST …/release`, by handle or by the owner of an event stream; and `POST …/force-release`.

use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use tenure::engine::ForceOutcome;
use tenure::{LockName, Owner, Released, Tenure};

use super::{json, renew};
use crate::body::Fields;
use crate::problem::Problem;
use crate::server::Server;
use crate::shape;
use crate::word::Word;

pub(super) async fn answer(
    server: &Server,
    name: &LockName,
    request: Request,
) -> Result<Response<Body>, Problem> {
    let mut fields = Fields::read(request.into_body()).await?;
    let tenure = server.tenure().await?;
    let (owner, released) = match owner(&mut fields, "owner")? {
        Some(owner) => {
            fields.end()?;
            (owner, server.door().sessions.release(name, owner).await)
        }
        None => {
            let handle = renew::handle(&mut fields, name)?;
            fields.end()?;
            let released = tenure.release(&handle).await;
            server.door().keys.forget(&handle);
            (handle.owner(), Some(released))
        }
    };
    match released.transpose()? {
        Some(Released::Now) => Ok(json(&shape::released(name, &[owner]))),
        Some(Released::AlreadyLost) => Err(lost(tenure, name, owner).await),
        None => Err(Problem::of_word(
            Word::Lost,
            format!("no event stream of this server holds `{name}` for this owner"),
        )),
    }
}

/// The lock is not held any more; with the reason of a forced release.
async fn lost(tenure: &Tenure, name: &LockName, owner: Owner) -> Problem {
    let mut detail = format!("`{name}` was not held any more");
    let info = tenure.lock(name.clone()).inspect().await.ok();
    if let Some(forced) = info.and_then(|info| info.forced).filter(|it| it.owners.contains(&owner))
    {
        let reason = forced.reason.escape_debug();
        detail = format!("{detail}: its release was forced by {}: {reason}", forced.by);
    }
    Problem::of_word(Word::Lost, detail)
}

/// Takes a lock away from its holders. The name must be repeated, so that a typing error takes no other one.
pub(super) async fn force(
    server: &Server,
    name: LockName,
    request: Request,
) -> Result<Response<Body>, Problem> {
    let mut fields = Fields::read(request.into_body()).await?;
    let reason = fields.required("reason")?;
    let confirm = fields.required("confirm")?;
    let expected = owner(&mut fields, "owner")?;
    fields.end()?;
    if confirm != name.as_str() {
        return Err(Problem::usage("nothing was done: `confirm` must be the name of the lock"));
    }
    if !reason.chars().any(is_visible) {
        return Err(Problem::usage("nothing was done: `reason` must say why"));
    }
    let forced = server.tenure().await?.force_release(name.clone(), expected, &reason).await?;
    match forced {
        ForceOutcome::Released(owners) => {
            server.log(&format!("the release of `{name}` was forced: {}", reason.escape_debug()));
            Ok(json(&shape::released(&name, &owners)))
        }
        ForceOutcome::NotHeld => {
            let by = expected.map_or_else(String::new, |owner| format!(" by {owner}"));
            let detail = format!("`{name}` is not held{by}: nothing was done");
            Err(Problem::of_word(Word::NotAcquired, detail)
                .with_status(axum::http::StatusCode::CONFLICT))
        }
    }
}

/// Whether a reader sees something: no space, control or format character, and no letter without a shape.
fn is_visible(letter: char) -> bool {
    let is_blank = matches!(letter, '\u{115f}' | '\u{1160}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}');
    let is_printed = letter.escape_debug().len() == 1 || matches!(letter, '"' | '\'' | '\\');
    is_printed && !is_blank && !letter.is_whitespace()
}

fn owner(fields: &mut Fields, name: &str) -> Result<Option<Owner>, Problem> {
    let owner = fields.text(name)?.map(|owner| owner.parse()).transpose();
    owner.map_err(|invalid: tenure::Invalid| Problem::usage(invalid.to_string()))
}
