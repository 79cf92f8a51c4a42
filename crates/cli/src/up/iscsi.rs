//! Volumes as iSCSI targets: where initiators connect, and what they get.

use super::exports::{Exports, Place};
use crate::config::Configuration;
use crate::outcome::Failure;
use plimsoll_engine::backend::VolumeInfo;
use plimsoll_engine::{EngineHandle, SessionConfig};
use plimsoll_serve::connection::{ListenerOptions, Serving};
use plimsoll_serve::iscsi::{Target, serve as serve_targets};
use plimsoll_serve::nbd::Listener;
use std::sync::Arc;

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}

/// Binds the portals. Which of them other machines may reach was checked with the configuration.
pub(super) fn bind(configuration: &Configuration) -> Result<Vec<Listener>, Failure> {
    let options = ListenerOptions { allow_remote: true, ..ListenerOptions::default() };
    let bind = |listen: &crate::config::Listen| {
        Listener::bind(&listen.address, options).map_err(|error| match listen.line {
            0 => failed(error),
            line => failed(format!("{}:{line}: iscsi.listen: {error}", configuration.file.display())),
        })
    };
    configuration.iscsi_listen.iter().map(bind).collect()
}

/// Serves the targets on `portals`; answers with the listeners at work and with what is served, a line each.
pub(super) fn serve(
    configuration: &Configuration,
    exports: &Arc<Exports>,
    portals: Vec<Listener>,
    infos: &[VolumeInfo],
    engine: impl Fn(&str) -> EngineHandle,
) -> Result<(Vec<Serving>, Vec<String>), Failure> {
    let mut served = Vec::new();
    for (section, info) in configuration.volumes.iter().zip(infos) {
        let Some(target) = &section.iscsi else { continue };
        let is_rotational = configuration.device(&section.device).is_some_and(|device| device.profile.is_rotational);
        let place = Place {
            engine: engine(&section.device),
            volume: section.name.clone(),
            session: SessionConfig { name: "iscsi".into(), allocation: configuration.session_allocation(section) },
            account: configuration.volume_path(section),
        };
        let of_volume = Target::of_volume(&target.name, target.chap.clone(), info, is_rotational);
        if !exports.add_target(of_volume, place) {
            return Err(failed(format!("there is already a target named {}", target.name)));
        }
        served.push(format!("volume {}: iSCSI target {}", section.name, target.name));
    }
    let mut listeners = Vec::new();
    for portal in portals {
        let exports = exports.clone();
        let serving = serve_targets(portal, exports.targets(), move |session, peer| exports.logged_in(session, &peer))?;
        served.push(format!("iSCSI on {}", serving.address()));
        listeners.push(serving);
    }
    Ok((listeners, served))
}
