//! Finalizers: clean-up before an object is deleted.

use std::error::Error as StdError;
use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, PatchOperation, TestOperation};
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use thiserror::Error;

use crate::Action;

/// The work that [`finalizer`] asks for.
#[derive(Clone, Debug)]
pub enum Event<K> {
    /// The object exists: drive the world to the state that it describes.
    Apply(Arc<K>),
    /// The object is being deleted: remove everything that was made for it.
    Cleanup(Arc<K>),
}

/// A failure of [`finalizer`].
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error<E: StdError + 'static> {
    /// The reconciler failed on [`Event::Apply`].
    #[error("failed to apply the object: {0}")]
    ApplyFailed(#[source] E),
    /// The reconciler failed on [`Event::Cleanup`]. The finalizer stays, so it is retried.
    #[error("failed to clean up: {0}")]
    CleanupFailed(#[source] E),
    /// The finalizer could not be added.
    #[error("failed to add the finalizer: {0}")]
    AddFinalizer(#[source] kube::Error),
    /// The finalizer could not be removed.
    #[error("failed to remove the finalizer: {0}")]
    RemoveFinalizer(#[source] kube::Error),
    /// The object has no name, so it was not read from the server.
    #[error("the object has no name")]
    UnnamedObject,
}

/// Reconciles an object that must be cleaned up before it is deleted.
///
/// Drop-in for `kube::runtime::finalizer::finalizer`, with this crate's [`Action`]. It keeps
/// `name` in `metadata.finalizers` from before the first [`Event::Apply`] until
/// [`Event::Cleanup`] has succeeded. Kubernetes deletes the object only then.
///
/// * If `Apply` has ever started, `Cleanup` succeeds before the object disappears.
/// * Both must be idempotent. `Cleanup` may run without an `Apply` before it.
/// * `name` has the form `example.com/name`, and only one controller uses it.
/// * Every patch tests that the list of finalizers is the one that was read. If another
///   controller changed it, the run fails and is retried with the new list.
///
/// A [predicate](crate::Controller::predicate) that compares only generations does not see the
/// patch that adds the finalizer. So after adding it, the function continues with `Apply` in the
/// same run, with the object as the server returned it.
///
/// # Errors
///
/// [`Error`](enum@Error) if a patch or the reconciler fails.
///
/// # Cancel safety
///
/// Dropping the future is safe: the next run continues with what the server stores.
pub async fn finalizer<K, F, Fut, E>(
    api: &Api<K>,
    name: &str,
    object: Arc<K>,
    reconcile: F,
) -> Result<Action, Error<E>>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug,
    F: FnOnce(Event<K>) -> Fut,
    Fut: Future<Output = Result<Action, E>>,
    E: StdError + 'static,
{
    let has_finalizer = object.finalizers().iter().any(|finalizer| finalizer == name);
    let is_deleted = object.meta().deletion_timestamp.is_some();
    match (has_finalizer, is_deleted) {
        (true, false) => {
            reconcile(Event::Apply(object)).await.map_err(Error::ApplyFailed)
        }
        (false, false) => {
            let object = add(api, name, &object).await?;
            // It may have been deleted meanwhile; the next run cleans up.
            if object.meta().deletion_timestamp.is_some() {
                return Ok(Action::await_change());
            }
            reconcile(Event::Apply(object)).await.map_err(Error::ApplyFailed)
        }
        (true, true) => {
            let action = reconcile(Event::Cleanup(Arc::clone(&object)))
                .await
                .map_err(Error::CleanupFailed)?;
            remove(api, name, &object).await?;
            Ok(action)
        }
        (false, true) => Ok(Action::await_change()),
    }
}

async fn add<K, E>(api: &Api<K>, name: &str, object: &K) -> Result<Arc<K>, Error<E>>
where
    K: Resource + Clone + DeserializeOwned + Debug,
    E: StdError + 'static,
{
    let mut list = object.finalizers().to_vec();
    list.push(name.to_owned());
    replace_list(api, object, list).await?.map(Arc::new).map_err(Error::AddFinalizer)
}

async fn remove<K, E>(api: &Api<K>, name: &str, object: &K) -> Result<(), Error<E>>
where
    K: Resource + Clone + DeserializeOwned + Debug,
    E: StdError + 'static,
{
    let mut list = object.finalizers().to_vec();
    list.retain(|finalizer| finalizer != name);
    match replace_list(api, object, list).await? {
        // Gone: an earlier attempt succeeded, and its reply was lost.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        result => result.map(|_object| ()).map_err(Error::RemoveFinalizer),
    }
}

/// Replaces the list of finalizers, if it is the one of `object` and the uid is the same.
async fn replace_list<K, E>(
    api: &Api<K>,
    object: &K,
    list: Vec<String>,
) -> Result<Result<K, kube::Error>, Error<E>>
where
    K: Resource + Clone + DeserializeOwned + Debug,
    E: StdError + 'static,
{
    let name = object.meta().name.as_deref().ok_or(Error::UnnamedObject)?;
    let old = match object.finalizers() {
        [] => Value::Null,
        finalizers => json!(finalizers),
    };
    let finalizers = || PointerBuf::from_tokens(["metadata", "finalizers"]);
    let patch = json_patch::Patch(vec![
        PatchOperation::Test(TestOperation {
            path: PointerBuf::from_tokens(["metadata", "uid"]),
            value: json!(object.meta().uid),
        }),
        // A missing list equals null.
        PatchOperation::Test(TestOperation { path: finalizers(), value: old }),
        PatchOperation::Add(AddOperation { path: finalizers(), value: json!(list) }),
    ]);
    Ok(api.patch(name, &PatchParams::default(), &Patch::Json::<()>(patch)).await)
}
