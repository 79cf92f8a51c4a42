//! Volumes as iSCSI targets: where initiators connect, and what they get.

use crate::config::Configuration;
use crate::outcome::Failure;
use plimsoll_brick::backend::VolumeInfo;
use plimsoll_brick::connection::{ListenerOptions, Serving};
use plimsoll_brick::engine::{EngineHandle, SessionConfig};
use plimsoll_brick::iscsi::{Target, Targets, serve as serve_targets};
use plimsoll_brick::nbd::Listener;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where a target's sessions go.
struct Place {
    engine: EngineHandle,
    volume: String,
    account: String,
    session: SessionConfig,
}

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
    portals: Vec<Listener>,
    infos: &[VolumeInfo],
    engine: impl Fn(&str) -> EngineHandle,
) -> Result<(Vec<Serving>, Vec<String>), Failure> {
    let (targets, mut places, mut served) = (Targets::default(), BTreeMap::new(), Vec::new());
    for (section, info) in configuration.volumes.iter().zip(infos) {
        let Some(target) = &section.iscsi else { continue };
        let is_rotational = configuration.device(&section.device).is_some_and(|device| device.profile.is_rotational);
        let added = targets.add(Target::of_volume(&target.name, target.chap.clone(), info, is_rotational));
        added.ok_or_else(|| failed(format!("there is already a target named {}", target.name)))?;
        let allocation = configuration.session_allocation(section);
        let place = Place {
            engine: engine(&section.device),
            volume: section.name.clone(),
            account: configuration.volume_path(section),
            session: SessionConfig { name: "iscsi".into(), allocation },
        };
        places.insert(target.name.clone(), place);
        served.push(format!("volume {}: iSCSI target {}", section.name, target.name));
    }
    let (places, mut listeners) = (Arc::new(places), Vec::new());
    for portal in portals {
        let places = places.clone();
        let serving = serve_targets(portal, targets.clone(), move |session, peer| {
            let Some(place) = places.get(session.target.name()) else { return };
            let connection = Box::new(session.connection());
            let attached = place.engine.attach_in(&place.volume, &place.account, place.session.clone(), connection);
            if let Err(error) = attached {
                tracing::warn!("{peer} turned away from volume {}: {error}", place.volume);
            }
        })?;
        served.push(format!("iSCSI on {}", serving.address()));
        listeners.push(serving);
    }
    Ok((listeners, served))
}
