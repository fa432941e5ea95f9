//! An API server inside the process, for tests of controllers (feature `testing`).
//!
//! [`FakeCluster`] serves any kind without a schema: list, watch, bookmarks, streaming lists,
//! optimistic locking, patches, the status subresource and finalizers. Faults are
//! [injected](FakeCluster::inject) on demand. Nothing listens on a port, so a test takes
//! milliseconds and can run with the paused time of tokio.
//!
//! # Differences from a real server
//!
//! * No validation, defaults, admission, garbage collection, or authentication.
//! * Every kind exists, in every version, and each version returns the objects as they were
//!   written. Inject a [`Fault`] with status 404 for a kind that does not exist.
//! * The status is written only through the status subresource, for every kind.
//! * Server-side apply merges, without field managers. A strategic merge patch is a merge
//!   patch.
//! * Bookmarks are sent when a test [asks](FakeCluster::send_bookmarks) for them.

mod call;
mod fault;
mod objects;
mod selector;
mod server;
mod status;
mod watch;

use std::fmt::Debug;
use std::sync::Arc;

use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use self::call::{Call, Verb};
pub use self::fault::Fault;

use self::objects::{Kind, Part, Place};
use self::server::{Connection, Server, place_of};

/// A fake Kubernetes API server inside the process.
///
/// Clones refer to the same server. [`client`](FakeCluster::client) returns a
/// [`kube::Client`] for it. Methods such as [`put`](FakeCluster::put) change objects directly,
/// without a request.
///
/// # Examples
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::Api;
/// use kube::api::{ObjectMeta, PostParams};
/// use requeue_kube::testing::{FakeCluster, Fault, Verb};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), kube::Error> {
/// let cluster = FakeCluster::new();
/// let api: Api<ConfigMap> = Api::default_namespaced(cluster.client());
/// let metadata = ObjectMeta { name: Some("app".into()), ..ObjectMeta::default() };
/// let map = ConfigMap { metadata, ..ConfigMap::default() };
/// let created = api.create(&PostParams::default(), &map).await?;
/// assert_eq!(created.metadata.resource_version.as_deref(), Some("1"));
///
/// cluster.inject(Fault::status(500).on(Verb::Get).times(1));
/// assert!(api.get("app").await.is_err());
/// assert!(api.get("app").await.is_ok());
/// assert_eq!(cluster.count(Verb::Get, "configmaps"), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FakeCluster {
    server: Arc<Server>,
}

impl FakeCluster {
    /// Creates a server without objects.
    pub fn new() -> Self {
        Self { server: Server::new() }
    }

    /// Returns a client of this server, whose default namespace is `default`.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn client(&self) -> Client {
        Client::new(Connection(Arc::clone(&self.server)), "default")
    }

    /// Creates or replaces an object, including its status, whatever its version.
    ///
    /// Returns the stored object. A namespaced object needs a namespace.
    ///
    /// # Panics
    ///
    /// If the object cannot be serialized, or has no name.
    #[track_caller]
    pub fn put<K>(&self, object: &K) -> K
    where
        K: Resource + Serialize + DeserializeOwned,
        K::DynamicType: Default,
    {
        let mut value =
            serde_json::to_value(object).expect("the object can be serialized");
        let dynamic = K::DynamicType::default();
        value["apiVersion"] = K::api_version(&dynamic).into();
        value["kind"] = K::kind(&dynamic).into();
        decode(&self.put_value(&K::group(&dynamic), &K::plural(&dynamic), value))
    }

    /// As [`put`](Self::put), for an object as JSON, which need not be valid for its kind.
    ///
    /// # Panics
    ///
    /// If the object has no name.
    #[track_caller]
    pub fn put_value(&self, group: &str, plural: &str, mut object: Value) -> Value {
        let kind = Kind { group: group.to_owned(), plural: plural.to_owned() };
        let place = place_of(&kind, &object);
        assert!(!place.name.is_empty(), "an object needs a name: {object}");
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("resourceVersion");
            metadata.remove("uid");
        }
        let stored = self.server.change(|state| {
            let objects = &mut state.objects;
            if objects.get(&place).is_ok() {
                objects.update(place, object, Part::All)
            } else {
                objects.create(place, object, Part::All)
            }
        });
        (*stored.expect("the test's own writes are not refused")).clone()
    }

    /// Returns an object. Pass an empty namespace for a cluster-scoped kind.
    ///
    /// # Panics
    ///
    /// If the stored object is not a valid `K`.
    #[track_caller]
    pub fn get<K>(&self, namespace: &str, name: &str) -> Option<K>
    where
        K: Resource + DeserializeOwned,
        K::DynamicType: Default,
    {
        let found = self.server.state().objects.get(&place::<K>(namespace, name)).ok();
        found.map(|object| decode(&object))
    }

    /// Removes an object at once, even if it has finalizers. Returns whether it existed.
    pub fn remove<K>(&self, namespace: &str, name: &str) -> bool
    where
        K: Resource,
        K::DynamicType: Default,
    {
        let place = place::<K>(namespace, name);
        self.server.change(|state| {
            let found = state.objects.get(&place);
            found.map(|object| state.objects.remove(&place, (*object).clone())).is_ok()
        })
    }

    /// Injects a fault into matching requests.
    pub fn inject(&self, fault: Fault) {
        self.server.change(|state| state.faults.inject(fault));
    }

    /// Removes all faults. Requests that hang stay so.
    pub fn clear_faults(&self) {
        self.server.change(|state| state.faults.clear());
    }

    /// Sends a bookmark with the current resource version to all watches.
    pub fn send_bookmarks(&self) {
        self.server.change(|state| state.bookmarks += 1);
    }

    /// Ends all watches and forgets the history, so that resuming fails with 410 Gone.
    pub fn expire_watches(&self) {
        self.server.change(server::State::expire);
    }

    /// Ends all watches regularly, as a server does at their timeout.
    pub fn close_watches(&self) {
        self.server.change(|state| state.closes += 1);
    }

    /// Breaks all watches with a connection error.
    pub fn drop_connections(&self) {
        self.server.change(|state| state.resets += 1);
    }

    /// Stops the server: watches break and requests are refused until
    /// [`come_up`](Self::come_up).
    pub fn go_down(&self) {
        self.server.change(|state| {
            state.down = true;
            state.resets += 1;
        });
    }

    /// Starts the server again. Its objects and history are those of before.
    pub fn come_up(&self) {
        self.server.change(|state| state.down = false);
    }

    /// Holds back all further events of a kind, named by its plural.
    ///
    /// Writes and lists still work, so a test can show what happens if a cache is stale.
    pub fn hold_events(&self, plural: &str) {
        self.server.change(|state| {
            let revision = state.objects.revision();
            state.held.insert(plural.to_owned(), revision);
        });
    }

    /// Sends the events that were held back.
    pub fn release_events(&self, plural: &str) {
        self.server.change(|state| state.held.remove(plural));
    }

    /// Returns all requests so far, except those that were refused while the server was
    /// down.
    pub fn calls(&self) -> Vec<Call> {
        self.server.state().log.clone()
    }

    /// Returns the number of requests with a verb for a kind, named by its plural.
    pub fn count(&self, verb: Verb, plural: &str) -> usize {
        let matches = |call: &&Call| call.verb == verb && call.plural == plural;
        self.server.state().log.iter().filter(matches).count()
    }

    /// Waits until there have been `count` requests with a verb for a kind.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn wait_for_calls(&self, verb: Verb, plural: &str, count: usize) {
        let mut changed = self.server.subscribe();
        while self.count(verb, plural) < count {
            // An error is impossible: this handle keeps the server alive.
            changed.changed().await.unwrap_or_default();
        }
    }

    /// Returns the current resource version of the whole server.
    pub fn resource_version(&self) -> u64 {
        self.server.state().objects.revision()
    }
}

impl Default for FakeCluster {
    fn default() -> Self {
        Self::new()
    }
}

fn place<K: Resource>(namespace: &str, name: &str) -> Place
where
    K::DynamicType: Default,
{
    let dynamic = K::DynamicType::default();
    let (group, plural) =
        (K::group(&dynamic).into_owned(), K::plural(&dynamic).into_owned());
    Place {
        kind: Kind { group, plural },
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

#[track_caller]
fn decode<K: DeserializeOwned>(object: &Value) -> K {
    let decoded = K::deserialize(object);
    decoded.unwrap_or_else(|error| panic!("{error} in the stored object {object}"))
}

#[cfg(test)]
mod tests;
