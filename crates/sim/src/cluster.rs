//! A cluster of datanodes as in HDFS: each block of a file goes through a pipeline of nodes, packet by packet.
//!
//! ```text
//!   client --packets--> node 4 --packets--> node 0 --packets--> node 6       (nodes by chance for each block)
//!      ^                  | append            | append            | append   (in the writer's account on each)
//!      +---- acknowledged when all of them have it <--------------+
//! ```
//!
//! The request that opens a block carries the writer's account, and each node hands it on. So each node's scheduler
//! charges the writes to their account, though a server makes them (split-level paper, section 7.3).
//!
//! The complication: a node that holds its writer back (no tokens left, too many dirty pages) stops receiving. Buffers
//! between the nodes fill, then the client's window. Then the whole pipeline has the rate of its slowest node, while
//! the others' tokens are unused. The paper's figure 21 shows that.
//!
//! As in HDFS: a node passes a packet on before it writes it (`BlockReceiver.receivePacket`). Data goes into the page
//! cache and is not synced at a block's end (`dfs.datanode.synconclose` = false). The next block begins when the last
//! packet of this one was acknowledged (`DataStreamer`). Left out: checksum files, renaming of finished blocks, racks,
//! the NameNode's view of load, failures, and the time of the servers' own code.

use crate::executor::Executor;
use crate::executor::wait::{Semaphore, WaitQueue};
use crate::machine::Machine;
use crate::network::{Network, NetworkConfig, Stream};
use crate::process::Process;
use plimsoll_core::{AccountId, Time};
use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Packets that a client sends ahead of their acknowledgement (HDFS `dfs.client.write.max-packets-in-flight` = 80).
const PACKETS_IN_FLIGHT_MAX: u64 = 80;
/// Bytes in the buffers of a connection: 128 KiB at the sender and at the receiver each (HDFS
/// `dfs.datanode.transfer.socket.{send,recv}.buffer.size` = 131072).
const SOCKET_BYTES: u64 = 2 * 128 * 1024;
/// The name under which a node's writers keep their figures.
const DATANODE: &str = "datanode";

/// What a cluster is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterConfig {
    /// Nodes that have each block; at least one, at most as many as there are.
    pub replication: usize,
    /// Bytes of a block (`dfs.blocksize`).
    pub block_bytes: u64,
    /// Bytes of a packet (`dfs.client-write-packet-size` = 64 KiB).
    pub packet_bytes: u64,
    /// Cards and switch.
    pub network: NetworkConfig,
}

/// Datanodes, their network, and the blocks under way.
pub struct Cluster {
    nodes: Vec<Machine>,
    network: Rc<Network>,
    config: ClusterConfig,
    blocks: Cell<u64>,
    under_way: RefCell<BTreeMap<u64, Rc<Block>>>,
    /// Bytes that each node's writers have written of blocks.
    written_bytes: Vec<Cell<u64>>,
}

/// What a client tells of a packet that all nodes of its pipeline have: when it was sent, and its bytes.
pub type Acknowledged = Rc<dyn Fn(Time, u64)>;

/// The client that writes a file, from a machine of its own.
pub struct Client {
    cluster: Rc<Cluster>,
    card: usize,
    account: AccountId,
    random: Pcg64Mcg,
    acknowledged: Acknowledged,
}

/// A block under way.
struct Block {
    packets: u64,
    /// To each node of the pipeline from the one before it, the first from the client.
    streams: Vec<Rc<Stream>>,
    /// Packets that each node has written.
    written: Vec<Cell<u64>>,
    /// Packets that all nodes have written, with the acknowledgement on its way or there.
    complete: Cell<u64>,
    acknowledged: Cell<u64>,
    /// Packets that may still be sent ahead.
    window: Semaphore,
    /// When each packet was sent that is not acknowledged, and its bytes.
    sent: RefCell<VecDeque<(Time, u64)>>,
    end: WaitQueue,
}

impl Cluster {
    /// A cluster of `nodes`, which all know the same accounts by the same numbers, and of `clients` other machines.
    ///
    /// # Panics
    /// If there are fewer nodes than replicas.
    pub fn new(executor: &Rc<Executor>, nodes: &[Machine], clients: usize, config: ClusterConfig) -> Rc<Cluster> {
        assert!((1..=nodes.len()).contains(&config.replication), "{} of {} nodes", config.replication, nodes.len());
        Rc::new(Cluster {
            nodes: nodes.to_vec(),
            network: Rc::new(Network::new(executor.clone(), nodes.len() + clients, config.network)),
            config,
            blocks: Cell::new(0),
            under_way: RefCell::default(),
            written_bytes: nodes.iter().map(|_| Cell::new(0)).collect(),
        })
    }

    /// The `number`-th client, counted from 0, which writes in `account`; `seed` decides which nodes it is given.
    pub fn client(self: &Rc<Self>, number: usize, account: AccountId, seed: u64, acknowledged: Acknowledged) -> Client {
        let random = Pcg64Mcg::new(u128::from(seed) << 64 | (number as u128) << 1 | 1);
        Client { cluster: self.clone(), card: self.nodes.len() + number, account, random, acknowledged }
    }

    /// Bytes that the writers of this node have written.
    pub fn written_bytes(&self, node: usize) -> u64 {
        self.written_bytes[node].get()
    }

    fn executor(&self) -> &Rc<Executor> {
        self.network.executor()
    }

    /// # Panics
    /// If a packet was lost or doubled on its way down a pipeline.
    pub fn assert_conserved(&self) {
        self.under_way.borrow().values().for_each(|block| block.assert_conserved());
        for (node, written) in self.nodes.iter().zip(&self.written_bytes) {
            let appended = match written.get() {
                0 => continue,
                _ => node.statistics.of(DATANODE).bytes(plimsoll_core::CallKind::Write),
            };
            assert_eq!(appended, written.get(), "bytes that writers wrote = bytes of packets");
        }
    }
}

impl Client {
    /// Writes a block and waits until all nodes of its pipeline have it (in memory, as far as they are concerned).
    pub async fn write_block(&mut self) {
        let cluster = self.cluster.clone();
        let ClusterConfig { block_bytes, packet_bytes, .. } = cluster.config;
        let pipeline = self.choose();
        // The request goes down the pipeline, the answer up.
        cluster.executor().sleep(cluster.network.latency() * (2 * pipeline.len() as u64)).await;
        let number = cluster.blocks.replace(cluster.blocks.get() + 1);
        let block = Rc::new(self.block(&pipeline));
        cluster.under_way.borrow_mut().insert(number, block.clone());
        for (place, &node) in pipeline.iter().enumerate() {
            let (cluster, block, acknowledged) = (cluster.clone(), block.clone(), self.acknowledged.clone());
            self.cluster.nodes[node].spawn(DATANODE, self.account, move |process| async move {
                let of = Replica { cluster, block, place, node };
                of.receive(process, number, acknowledged).await;
            });
        }
        let mut rest = block_bytes;
        while rest > 0 {
            let bytes = rest.min(packet_bytes);
            block.window.acquire(cluster.executor()).await;
            block.sent.borrow_mut().push_back((cluster.executor().now(), bytes));
            block.streams[0].send(bytes).await;
            rest -= bytes;
        }
        while block.acknowledged.get() < block.packets {
            block.end.wait(cluster.executor()).await;
        }
        block.assert_conserved();
        cluster.under_way.borrow_mut().remove(&number);
    }

    /// Different nodes, each as likely: HDFS's policy for a client outside of the cluster, on one rack.
    fn choose(&mut self) -> Vec<usize> {
        let mut nodes: Vec<usize> = (0..self.cluster.nodes.len()).collect();
        let mut below = |bound: usize| ((u128::from(self.random.next_u64()) * bound as u128) >> 64) as usize;
        (0..self.cluster.config.replication).map(|_| nodes.remove(below(nodes.len()))).collect()
    }

    fn block(&self, pipeline: &[usize]) -> Block {
        let ClusterConfig { block_bytes, packet_bytes, .. } = self.cluster.config;
        let cards = std::iter::once(self.card).chain(pipeline.iter().copied());
        let window = (SOCKET_BYTES / packet_bytes).max(1);
        let stream = |(from, &to)| Stream::new(self.cluster.network.clone(), from, to, window);
        Block {
            packets: block_bytes.div_ceil(packet_bytes),
            streams: cards.zip(pipeline).map(stream).collect(),
            written: pipeline.iter().map(|_| Cell::new(0)).collect(),
            complete: Cell::new(0),
            acknowledged: Cell::new(0),
            window: Semaphore::new(PACKETS_IN_FLIGHT_MAX),
            sent: RefCell::default(),
            end: WaitQueue::default(),
        }
    }
}

/// One node's part in a block.
struct Replica {
    cluster: Rc<Cluster>,
    block: Rc<Block>,
    /// Its place in the pipeline, and the node's number in the cluster.
    place: usize,
    node: usize,
}

impl Replica {
    /// Receives the block number `number`, passes each packet on and writes it.
    async fn receive(self, process: Process, number: u64, acknowledged: Acknowledged) {
        let Replica { cluster, block, place, node } = self;
        let file = process.create(&format!("/blk_{number}")).await.expect("numbers of blocks are used once");
        for _ in 0..block.packets {
            let bytes = block.streams[place].receive().await;
            if let Some(next) = block.streams.get(place + 1) {
                next.send(bytes).await;
            }
            file.append(bytes).await;
            cluster.written_bytes[node].set(cluster.written_bytes[node].get() + bytes);
            block.written[place].set(block.written[place].get() + 1);
            block.acknowledge(&cluster, &acknowledged);
        }
    }
}

impl Block {
    /// Sends back the acknowledgement of what all nodes have now.
    fn acknowledge(self: &Rc<Self>, cluster: &Rc<Cluster>, acknowledged: &Acknowledged) {
        let complete = self.written.iter().map(Cell::get).min().unwrap_or(0);
        for _ in self.complete.replace(complete)..complete {
            let (block, cluster, acknowledged) = (self.clone(), cluster.clone(), acknowledged.clone());
            cluster.executor().clone().spawn(async move {
                let hops = block.streams.len() as u64;
                cluster.executor().sleep(cluster.network.latency() * hops).await;
                let (since, bytes) = block.sent.borrow_mut().pop_front().expect("what is acknowledged was sent");
                acknowledged(since, bytes);
                block.acknowledged.set(block.acknowledged.get() + 1);
                block.window.release(cluster.executor());
                block.end.wake_all(cluster.executor());
            });
        }
    }

    /// # Panics
    /// If a packet was lost or doubled, or overtook another.
    fn assert_conserved(&self) {
        self.streams.iter().for_each(|stream| stream.assert_conserved());
        for (place, (stream, written)) in self.streams.iter().zip(&self.written).enumerate() {
            let in_hand = stream.received() - written.get();
            assert!(in_hand <= 1, "{in_hand} packets in the hand of one writer");
            if let Some(next) = self.streams.get(place + 1) {
                let passed_on = next.sent();
                assert!(
                    (written.get()..=stream.received()).contains(&passed_on),
                    "packets are passed on, then written"
                );
            }
        }
        let last = self.written.iter().map(Cell::get).min().unwrap_or(0);
        assert!(self.acknowledged.get() <= last && last <= self.streams[0].sent(), "acknowledged <= written <= sent");
    }
}
