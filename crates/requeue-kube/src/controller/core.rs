//! What the feeds, the workers and the handles of a controller share.

use std::sync::Arc;

use kube::Resource;
use kube::api::ObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store};
use requeue::pool::Run;
use requeue::{Clock, Finish};
use tokio::sync::watch;

use super::inbox::Inbox;
use super::written::{MAX_WAIT, Writes};
use crate::election::Term;
use crate::feed::Monitor;
use crate::object::Object;
use crate::request::Request;

/// One watch of a controller.
pub(super) struct Watched {
    pub(super) group: String,
    pub(super) kind: String,
    pub(super) monitor: Arc<Monitor>,
}

/// The shared parts of a running controller.
pub(crate) struct Core<K: Object> {
    pub(super) inbox: Arc<Inbox<K>>,
    pub(super) store: Store<K>,
    pub(super) watched: Vec<Watched>,
    pub(super) writes: Writes<ObjectRef<K>>,
    pub(super) terms: Option<watch::Receiver<Option<Term>>>,
    pub(super) clock: Arc<dyn Clock>,
}

impl<K: Object> Core<K> {
    /// Makes the request of a run, or says how to end a run that must not happen now.
    pub(super) fn request(
        self: &Arc<Self>,
        run: &Run<ObjectRef<K>>,
    ) -> Result<Request<K>, Finish> {
        let key = run.key();
        let reasons = self.inbox.reasons.take(key);
        let term = match &self.terms {
            None => None,
            Some(terms) => {
                let current = terms.borrow().clone().filter(Term::is_held);
                let Some(term) = current else {
                    self.inbox.reasons.add(key, reasons, None);
                    return Err(Finish::Release);
                };
                Some(term)
            }
        };
        if !self.writes.may_run(key, self.clock.now()) {
            self.inbox.reasons.add(key, reasons, None);
            let retry = self.inbox.queue.add_after(key.clone(), MAX_WAIT);
            retry.map(drop).unwrap_or_default();
            return Err(Finish::Done);
        }
        let attempt = run.attempt();
        tracing::debug!(%key, %reasons, attempt, "reconciling");
        Ok(Request {
            key: key.clone(),
            object: self.store.get(key),
            reasons,
            attempt,
            term,
            core: Arc::clone(self),
        })
    }

    /// Records a write of a kind that is watched.
    pub(crate) fn wrote<O: Resource>(
        &self,
        key: &ObjectRef<K>,
        written: &O,
        dynamic: &O::DynamicType,
    ) {
        let version = written.meta().resource_version.as_ref();
        let Some(version) = version.and_then(|text| text.parse().ok()) else { return };
        let (group, kind) = (O::group(dynamic), O::kind(dynamic));
        for watched in &self.watched {
            if watched.group == group && watched.kind == kind {
                self.writes.add(key, &watched.monitor, version, self.clock.now());
            }
        }
    }

    /// Returns the keys of the owners of an object.
    pub(super) fn owners(&self, meta: &ObjectMeta) -> Vec<ObjectRef<K>> {
        self.inbox.owners(meta)
    }

    /// Adds the keys that waited for a cache, after it has advanced.
    pub(super) fn release_writes(&self) {
        for key in self.writes.released(self.clock.now()) {
            self.inbox.queue.add(key).map(drop).unwrap_or_default();
        }
    }
}
