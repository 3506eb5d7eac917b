//! A member that speaks the wire itself, to say what the command line never would.

use potluck_wire::call::Caller;
use potluck_wire::control::{Call, DonorAccess};
use potluck_wire::env::Env;
use potluck_wire::error::Failure;
use potluck_wire::identity::Identity;
use potluck_wire::net::{BoxStream, SystemNet};
use potluck_wire::tls::{Dial, TlsDial, install_provider};
use potluck_wire::upgrade::{self, OpenedBulk};
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// An identity, and a runtime to use it on.
pub struct Member {
    /// The identity of the member.
    pub identity: Identity,
    /// The runtime that drives the wire.
    pub runtime: Runtime,
    /// The clocks, the randomness and the network of this machine.
    pub env: Env,
}

impl Member {
    /// Loads the member whose identity is in `dir`.
    pub fn load(dir: &Path) -> Self {
        Self::new(Identity::load(dir).expect("an identity"))
    }

    /// Makes the member with this identity.
    pub fn new(identity: Identity) -> Self {
        install_provider();
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().expect("a runtime");
        Self { identity, runtime, env: Env::system() }
    }

    fn dial(&self) -> Arc<TlsDial> {
        Arc::new(TlsDial::member(&self.identity).expect("a usable identity"))
    }

    /// Calls the manager and returns its reply.
    pub fn call<C: Call>(&self, request: &C) -> Result<C::Reply, Failure> {
        self.call_through(self.dial(), request)
    }

    /// Makes one call over the connection that `dial` secures.
    pub fn call_through<C: Call>(
        &self,
        dial: Arc<TlsDial>,
        request: &C,
    ) -> Result<C::Reply, Failure> {
        let caller = Caller::new(Arc::new(SystemNet), dial, self.identity.about.manager.clone());
        self.runtime.block_on(caller.call(request))
    }

    /// Opens a stream to the manager on which both have proved who they are, and nothing was said yet.
    pub fn stream(&self) -> BoxStream {
        let (dial, manager) = (self.dial(), self.identity.about.manager.clone());
        self.runtime.block_on(async {
            let stream = self
                .env
                .net
                .connect(manager.first().expect("an address").as_str())
                .await
                .expect("a manager that listens");
            dial.secure(stream).await.expect("a manager that knows this member")
        })
    }

    /// Opens a bulk connection to a donor.
    pub fn open(&self, access: &DonorAccess) -> OpenedBulk {
        let ticket = access.ticket.as_ref().expect("a ticket");
        let opening = upgrade::open(&*self.env.net, &*self.env.entropy, &access.addresses, ticket);
        self.runtime.block_on(opening).expect("a donor that takes the ticket")
    }
}
