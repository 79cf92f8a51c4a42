//! Clients that write files to a cluster of datanodes.

use super::Accounts;
use super::recorder::Recorder;
use crate::scenario::{ClusterSetup, Setup};
use plimsoll_core::Time;
use plimsoll_sim::Simulation;
use plimsoll_sim::cluster::Cluster;
use std::rc::Rc;

/// Starts all writers on the machines of `simulation`; each writes blocks until the run ends.
pub(super) fn start(
    simulation: &Simulation,
    setup: &Setup,
    cluster: &ClusterSetup,
    accounts: &Accounts,
    seed: u64,
    recorder: &Recorder,
) -> Rc<Cluster> {
    let executor = simulation.machine().executor.clone();
    let clients = setup.writers.iter().map(|writer| writer.threads as usize).sum();
    let cluster = Cluster::new(&executor, simulation.machines(), clients, cluster.config);
    let each = setup.writers.iter().flat_map(|writer| (0..writer.threads).map(move |_| writer));
    for (number, writer) in each.enumerate() {
        let (source, recorder, clock) = (recorder.source(&writer.name), recorder.clone(), executor.clone());
        let acknowledged = move |since: Time, bytes: u64| {
            let now = clock.now();
            source.borrow_mut().record("write", recorder.at(now), now.since(since), bytes);
        };
        let mut client = cluster.client(number, accounts.ids[&writer.account], seed, Rc::new(acknowledged));
        executor.spawn(async move {
            loop {
                client.write_block().await;
            }
        });
    }
    cluster
}
