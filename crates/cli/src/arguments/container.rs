//! Arguments of `plimsoll container-profile`.

use clap::Args;
use plimsoll_agent::metadata::MetadataError;
use std::path::PathBuf;

/// Arguments of `plimsoll container-profile`.
#[derive(Debug, Args)]
pub struct ContainerProfileArguments {
    /// The socket that containers join at, which `plimsoll up` and `plimsoll agent` print at their start
    #[arg(value_parser = listener)]
    pub listener: PathBuf,
    /// What the container asks for: KEY=VALUE with commas between (docs/tenants.md)
    #[arg(default_value = "", value_name = "ASKS_FOR", value_parser = asks_for)]
    pub metadata: String,
    /// A seccomp profile, or a bundle's config.json, to put the gates into; "-" is stdin. It stays as it is otherwise
    #[arg(long, value_name = "FILE")]
    pub merge: Option<PathBuf>,
}

/// The runtime connects in a mount namespace and folder of its own.
fn listener(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() { Ok(path) } else { Err("allowed is an absolute path".to_owned()) }
}

fn asks_for(text: &str) -> Result<String, MetadataError> {
    plimsoll_agent::metadata::check(text).map(|()| text.to_owned())
}
