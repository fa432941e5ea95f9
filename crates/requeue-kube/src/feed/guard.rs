//! Objects that may not be decodable.
//!
//! kube decodes a page of a list, or an event, as a whole: one object that does not fit its
//! type would stop the watch. A [`Guard`] captures the text of each object and decodes it on
//! its own.

use std::borrow::Cow;
use std::fmt;

use kube::api::ObjectMeta;
use kube::core::DynamicResourceScope;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::de::{Deserialize, Deserializer, Error as _};
use serde_json::value::RawValue;

use crate::object::Object;

/// An object, or the metadata of one that cannot be decoded and the reason.
#[derive(Clone)]
pub(crate) enum Guard<K> {
    Valid(K),
    Invalid { meta: Box<ObjectMeta>, error: String },
}

impl<K> fmt::Debug for Guard<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Valid(_) => f.write_str("Valid"),
            Self::Invalid { error, .. } => write!(f, "Invalid({error})"),
        }
    }
}

/// The text is a slice of the response: nothing is copied for a valid object.
impl<'de, K: Object> Deserialize<'de> for Guard<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        struct Head {
            #[serde(default)]
            metadata: ObjectMeta,
        }
        let text = <&RawValue>::deserialize(deserializer)?.get();
        match serde_json::from_str(text) {
            Ok(object) => Ok(Self::Valid(object)),
            Err(error) => {
                let head: Head = serde_json::from_str(text).map_err(D::Error::custom)?;
                let (meta, error) = (Box::new(head.metadata), error.to_string());
                Ok(Self::Invalid { meta, error })
            }
        }
    }
}

impl<K: Object> Resource for Guard<K> {
    type DynamicType = K::DynamicType;
    /// So that an `Api` can be made for any scope.
    type Scope = DynamicResourceScope;

    fn kind(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &K::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn metadata_api() -> bool {
        K::metadata_api()
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Valid(object) => object.meta(),
            Self::Invalid { meta, .. } => meta,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Valid(object) => object.meta_mut(),
            Self::Invalid { meta, .. } => meta,
        }
    }
}

/// Returns an `Api` for the same objects that decodes each on its own.
pub(crate) fn guarded<K: Object>(api: Api<K>, dynamic: &K::DynamicType) -> Api<Guard<K>> {
    let namespace = api.namespace().map(str::to_owned);
    guarded_in(api.into_client(), namespace.as_deref(), dynamic)
}

/// Returns an `Api` for a namespace, or for all of them, that decodes each object on its own.
pub(crate) fn guarded_in<K: Object>(
    client: Client,
    namespace: Option<&str>,
    dynamic: &K::DynamicType,
) -> Api<Guard<K>> {
    match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, dynamic),
        None => Api::all_with(client, dynamic),
    }
}

/// Returns the name of an object and why it cannot be decoded, if it cannot.
pub(crate) fn invalid<K>(
    event: &watcher::Event<Guard<K>>,
) -> Option<(&ObjectMeta, &str)> {
    use watcher::Event::{Apply, Delete, Init, InitApply, InitDone};
    match event {
        Apply(Guard::Invalid { meta, error })
        | Delete(Guard::Invalid { meta, error })
        | InitApply(Guard::Invalid { meta, error }) => Some((meta, error)),
        Apply(_) | Delete(_) | Init | InitApply(_) | InitDone => None,
    }
}
