//! Where the store is.

use clap::Args;
use tenure::{Error, Tenure};

#[derive(Args)]
pub(crate) struct Store {
    /// The store, such as redis://host, rediss://host for TLS, or local:///folder. Without it REDIS_URL
    /// is used, if it is set; otherwise `local:`, which the commands of one user on this machine share
    #[arg(long, env = "TENURE_URL", hide_env_values = true)]
    url: Option<String>,
}

impl Store {
    pub(crate) async fn connect(&self) -> Result<Tenure, Error> {
        let redis = || std::env::var("REDIS_URL").ok();
        let url = self.url.clone().or_else(redis).unwrap_or_else(|| "local:".to_owned());
        Tenure::connect(&url).await
    }
}
