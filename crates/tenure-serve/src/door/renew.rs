//! `POST …/renew`.

use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use tenure::{Handle, LockName};
use tokio::time::Instant;

use super::{acquire, json};
use crate::body::Fields;
use crate::problem::Problem;
use crate::server::Server;

pub(super) async fn answer(
    server: &Server,
    name: &LockName,
    request: Request,
) -> Result<Response<Body>, Problem> {
    let mut fields = Fields::read(request.into_body()).await?;
    let handle = handle(&mut fields, name)?;
    let lease = fields.millis("lease_ms")?.unwrap_or(handle.lease().duration());
    fields.end()?;
    let (tenure, asked) = (server.tenure().await?, Instant::now());
    tenure.renew_for(&handle, lease).await?;
    server.door().keys.renewed(&handle, lease);
    Ok(json(&acquire::object(&handle, lease, lease.saturating_sub(asked.elapsed()))))
}

/// The handle in a request, which must be of the lock in its address.
pub(super) fn handle(fields: &mut Fields, name: &LockName) -> Result<Handle, Problem> {
    let handle: Result<Handle, _> = fields.required("handle")?.parse();
    let handle = handle.map_err(|invalid| Problem::usage(invalid.to_string()))?;
    if handle.name() != name {
        return Err(Problem::usage(format!("the handle is not one of `{name}`")));
    }
    Ok(handle)
}
