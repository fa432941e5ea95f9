//! Kinds that tests define.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::json;

use crate::support::{SOON, eventually, random};

/// A namespaced kind `Widget` in a new group, with a status.
pub(crate) struct Kind {
    client: Client,
    pub(crate) group: String,
    versions: &'static [&'static str],
}

impl Kind {
    pub(crate) async fn create(
        client: &Client,
        versions: &'static [&'static str],
    ) -> Self {
        let group = format!("g{:08x}.requeue.test", random());
        let kind = Self { client: client.clone(), group, versions };
        kind.define().await;
        kind
    }

    /// Creates the kind in a given group, which no other test uses.
    pub(crate) async fn in_group(client: &Client, group: &str) -> Self {
        let kind =
            Self { client: client.clone(), group: group.to_owned(), versions: &["v1"] };
        kind.define().await;
        kind
    }

    /// Creates the definition, and waits until objects can be created.
    pub(crate) async fn define(&self) {
        let versions: Vec<_> = self
            .versions
            .iter()
            .enumerate()
            .map(|(n, version)| {
                json!({
                    "name": version, "served": true, "storage": n == 0,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    }},
                })
            })
            .collect();
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": self.definition_name()},
            "spec": {
                "group": self.group, "scope": "Namespaced", "versions": versions,
                "names": {"kind": "Widget", "plural": "widgets"},
            },
        });
        let definition = serde_json::from_value(definition).unwrap();
        self.definitions().create(&PostParams::default(), &definition).await.unwrap();
        eventually("the kind is served", SOON, async || {
            self.all(self.versions[0])
                .list(&kube::api::ListParams::default())
                .await
                .is_ok()
        })
        .await;
    }

    /// Deletes the definition with all objects.
    pub(crate) async fn delete(&self) {
        let name = self.definition_name();
        self.definitions().delete(&name, &DeleteParams::default()).await.unwrap();
        eventually("the kind is gone", SOON, async || {
            self.definitions().get_opt(&name).await.unwrap().is_none()
        })
        .await;
    }

    fn definition_name(&self) -> String {
        format!("widgets.{}", self.group)
    }

    fn definitions(&self) -> Api<CustomResourceDefinition> {
        Api::all(self.client.clone())
    }

    pub(crate) fn resource(&self, version: &str) -> ApiResource {
        let kind = GroupVersionKind::gvk(&self.group, version, "Widget");
        ApiResource::from_gvk_with_plural(&kind, "widgets")
    }

    fn all(&self, version: &str) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &self.resource(version))
    }

    pub(crate) fn api(&self, version: &str, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &self.resource(version))
    }

    pub(crate) fn object(&self, version: &str, name: &str) -> DynamicObject {
        DynamicObject::new(name, &self.resource(version)).data(json!({"spec": {"n": 0}}))
    }
}
