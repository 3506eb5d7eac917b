//! The state that the server, the heartbeats and the background work of a donor share.

use crate::chunk_orders::ChunkOrderQueues;
use crate::governor_feed::GovernorFeed;
use crate::lending_terms::LendingTerms;
use crate::metrics::counted::DonorMetrics;
use crate::mirror::Deferred;
use crate::owner_mode::OwnerMode;
use crate::peer_addresses::PeerAddresses;
use crate::peer_connections::{ChunkFetch, PeerConnections};
use crate::registration::ManagersWord;
use crate::scrub::Scrub;
use crate::session::LongPieces;
use crate::session_budgets::SessionTickets;
use crate::store::Store;
use crate::task_failure::TaskFailure;
use crate::throttle::Throttle;
use crate::traffic::ServedTraffic;
use potluck_core::chunk::ChunkName;
use potluck_wire::call::Caller;
use potluck_wire::control::Source;
use potluck_wire::env::{Env, Offload};
use potluck_wire::ticket::Secret;
use std::sync::{Arc, Mutex};
use tokio::runtime::Handle;
use tokio::sync::watch;

/// The state that the server, the heartbeats and the background work of a donor share.
pub(crate) struct Service {
    pub env: Env,
    pub store: Arc<Store>,
    /// The donor's key, by which tickets are checked and receipts are signed.
    pub key: Secret,
    pub tickets: SessionTickets,
    pub long_pieces: LongPieces,
    pub registration: ManagersWord,
    pub governor: GovernorFeed,
    /// The limits on what is read and written for others.
    pub throttle: Throttle,
    /// Connections to other donors.
    pub peer_connections: PeerConnections,
    /// Copies that are made after their put was answered.
    pub deferred: Deferred,
    pub scrub: Scrub,
    /// The chunks to delete and to verify.
    pub chunk_orders: ChunkOrderQueues,
    pub lending_terms: LendingTerms,
    /// How much the donor does now.
    pub owner: Arc<OwnerMode>,
    /// The figures that monitoring asks for.
    pub metrics: DonorMetrics,
    /// The traffic with clients and other donors.
    pub traffic: ServedTraffic,
    /// The addresses of other donors.
    pub peer_addresses: PeerAddresses,
    /// The caller of the manager.
    pub caller: Caller,
    /// The reason why the daemon goes by its earlier settings, if it does.
    pub settings_fault: Mutex<Option<String>>,
    closing: watch::Sender<bool>,
}

impl Service {
    /// Makes the service of a donor to which nobody has connected yet.
    pub fn new(env: Env, store: Arc<Store>, key: Secret, scrub: Scrub, caller: Caller) -> Self {
        let registration = ManagersWord::new(env.clock.clone());
        let traffic = ServedTraffic::new(env.clock.clone());
        let throttle = Throttle::new(env.clock.clone());
        Self {
            env,
            store,
            key,
            tickets: SessionTickets::default(),
            long_pieces: LongPieces::default(),
            registration,
            governor: GovernorFeed::default(),
            throttle,
            peer_connections: PeerConnections::default(),
            deferred: Deferred::default(),
            scrub,
            chunk_orders: ChunkOrderQueues::default(),
            lending_terms: LendingTerms::default(),
            owner: Arc::default(),
            metrics: DonorMetrics::default(),
            traffic,
            peer_addresses: PeerAddresses::new(caller.clone()),
            caller,
            settings_fault: Mutex::default(),
            closing: watch::Sender::new(false),
        }
    }

    /// Returns true once the donor is shutting down.
    pub fn closing(&self) -> bool {
        *self.closing.borrow()
    }

    /// Marks the donor as shutting down, so that requests are refused from now on.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Waits until the donor shuts down.
    pub async fn closed(&self) {
        // An error would mean that the sender is gone, which is in `self`.
        let _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// Asks another donor for a chunk of `len` stored bytes.
    ///
    /// Errors: a fault of the source.
    pub async fn fetch(
        &self,
        source: &Source,
        name: ChunkName,
        len: u32,
    ) -> Result<ChunkFetch<'_>, TaskFailure> {
        self.peer_connections.fetch(&self.env, &self.throttle, source, name, len).await
    }

    /// Returns true if nothing more is to be moved, read or written: the donor shuts down, or its owner has it do
    /// nothing.
    pub fn stopped(&self) -> bool {
        self.closing() || self.owner.is_off()
    }

    /// Runs work with other machines, and returns `None` as soon as the donor is to stop, where a frozen machine would
    /// hold that up.
    pub async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        if self.stopped() {
            return None;
        }
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.closed() => None,
            () = self.owner.off() => None,
        }
    }

    /// Runs work that waits for the network and, in between, blocks on the disk and hashes. Returns `None` once the
    /// donor is to stop.
    pub async fn run_blocking<T: Send + 'static>(
        self: Arc<Self>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let offload = self.env.offload;
        let work = async move { self.unless_stopped(work).await };
        match offload {
            Offload::Inline => work.await,
            Offload::Threads => {
                let runtime = Handle::current();
                offload.run(move || runtime.block_on(work)).await
            }
        }
    }
}
