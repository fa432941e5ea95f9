//! A `ConfigMap` that knows when it was decoded.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Instant;

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Document {
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub data: BTreeMap<String, String>,
    /// Set while the object is decoded.
    #[serde(skip, default = "Instant::now")]
    pub decoded: Instant,
}

impl Document {
    pub fn value(&self) -> &str {
        self.data.get("value").map_or("", String::as_str)
    }

    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}

impl Resource for Document {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "ConfigMap".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "configmaps".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
