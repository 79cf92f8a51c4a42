//! The front ends that clients connect to: the daemon's listeners and their doors.

use super::doors::{OpenDoors, Place};
use super::plan;
use crate::config::{Configuration, Listen};
use crate::outcome::Failure;
use plimsoll_engine::backend::VolumeInfo;
use plimsoll_engine::{EngineHandle, SessionConfig};
use plimsoll_serve::connection::{Listener, ListenerOptions, Serving};
use plimsoll_serve::doors::DoorPlan;
use plimsoll_serve::registry::{Entry, with_sockets};
use std::sync::Arc;

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}

/// Listeners of a front end that answer no client yet.
pub(super) struct Bound {
    front_end: &'static Entry,
    listeners: Vec<Listener>,
}

/// Binds every address of every front end. Which of them other machines may reach was checked with the configuration.
///
/// # Errors
/// The first address that cannot be bound, with its place in the configuration.
pub(super) fn bind(configuration: &Configuration) -> Result<Vec<Bound>, Failure> {
    let mut bound = Vec::new();
    for (front_end, sockets) in with_sockets() {
        let options = ListenerOptions { allow_remote: sockets.login.is_some(), ..ListenerOptions::default() };
        let section = front_end.section;
        let bind = |listen: &Listen| {
            Listener::bind(&listen.address, options).map_err(|error| match listen.line {
                0 => failed(error),
                line => failed(format!("{}:{line}: {section}.listen: {error}", configuration.file.display())),
            })
        };
        let listeners = configuration.listens(section).iter().map(bind).collect::<Result<_, _>>()?;
        bound.push(Bound { front_end, listeners });
    }
    Ok(bound)
}

/// Opens the doors of all volumes and serves them. Answers the running listeners and a line for each.
///
/// # Errors
/// A door cannot be opened, or the system has no thread for a listener.
pub(super) fn serve(
    configuration: &Configuration,
    doors: &Arc<OpenDoors>,
    bound: Vec<Bound>,
    infos: &[VolumeInfo],
    engine: impl Fn(&str) -> EngineHandle,
) -> Result<(Vec<Serving>, Vec<String>), Failure> {
    let (mut working, mut served) = (Vec::new(), Vec::new());
    for Bound { front_end, listeners } in bound {
        for (section, info) in configuration.volumes.iter().zip(infos) {
            let Some(own) = section.door(front_end.section) else { continue };
            let device = configuration.device(&section.device);
            let opened = DoorPlan {
                name: own.name.clone(),
                volume: info.clone(),
                is_rotational: device.is_some_and(|device| device.profile.is_rotational),
                login: own.login.clone(),
            };
            let place = Place {
                engine: engine(&section.device),
                volume: section.name.clone(),
                session: SessionConfig {
                    name: front_end.name.into(),
                    allocation: configuration.session_allocation(section),
                },
                account: configuration.volume_path(section),
            };
            doors
                .add(front_end, opened, place)
                .map_err(|error| failed(plan::at(configuration, section, front_end.section, error)))?;
            served.push(format!("volume {}: {}", section.name, (front_end.shown)(&own.name, "")));
        }
        for listener in listeners {
            let listener = OpenDoors::serve(doors, front_end, listener)?;
            served.push(format!("{} on {}", front_end.title, listener.address()));
            working.push(listener);
        }
    }
    Ok((working, served))
}
