//! What a reconciler is asked to do.

use std::fmt;
use std::sync::Arc;

use kube::Resource;
use kube::runtime::reflector::ObjectRef;

use crate::controller::Core;
use crate::election::Term;
use crate::object::Object;
use crate::reasons::Reasons;

/// One object to reconcile; the argument of a reconciler of
/// [`Controller::start`](crate::Controller::start).
#[non_exhaustive]
pub struct Request<K: Object> {
    /// The key of the object. A cluster-scoped object has no namespace.
    pub key: ObjectRef<K>,
    /// The object in the store, or `None` if it is gone.
    pub object: Option<Arc<K>>,
    /// Why the object is reconciled.
    pub reasons: Reasons,
    /// 1 for the first run, and one more after each failure in a row.
    pub attempt: u32,
    /// The fencing token, if there is an election.
    pub term: Option<Term>,
    pub(crate) core: Arc<Core<K>>,
}

impl<K: Object> Request<K> {
    /// Records a write of this run: the object is not reconciled again before the controller's
    /// caches have seen it.
    ///
    /// Without it, the next run may find an old state in the store, and for example create a
    /// child a second time. `written` is the object that the API server returned. Its kind
    /// must be watched by this controller, otherwise this has no effect. The wait ends after
    /// 30 s even if no event comes.
    ///
    /// # Examples
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// use kube::Api;
    /// use kube::api::PostParams;
    /// use requeue_kube::{Action, Request};
    ///
    /// async fn create_child(
    ///     request: Request<ConfigMap>,
    ///     secrets: &Api<Secret>,
    ///     child: &Secret,
    /// ) -> Result<Action, kube::Error> {
    ///     let created = secrets.create(&PostParams::default(), child).await?;
    ///     request.wrote(&created); // the next run finds it in the store
    ///     Ok(Action::await_change())
    /// }
    /// ```
    #[doc(alias = "ReadYourWrites")]
    pub fn wrote<O>(&self, written: &O)
    where
        O: Resource,
        O::DynamicType: Default,
    {
        self.core.wrote(&self.key, written, &O::DynamicType::default());
    }

    /// As [`wrote`](Self::wrote), for kinds that are known at run time only.
    pub fn wrote_with<O: Resource>(&self, written: &O, dynamic: &O::DynamicType) {
        self.core.wrote(&self.key, written, dynamic);
    }
}

impl<K: Object> fmt::Debug for Request<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("key", &self.key)
            .field("exists", &self.object.is_some())
            .field("reasons", &self.reasons)
            .field("attempt", &self.attempt)
            .field("term", &self.term)
            .finish_non_exhaustive()
    }
}
