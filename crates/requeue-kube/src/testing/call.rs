//! A request to the fake API server, taken apart.

use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, Method};

use super::status::Refusal;

/// What a request does. The names are those of RBAC rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Reads one object.
    Get,
    /// Reads a collection.
    List,
    /// Follows a collection, including streaming lists.
    Watch,
    /// Creates an object.
    Create,
    /// Replaces an object.
    Update,
    /// Changes parts of an object.
    Patch,
    /// Deletes an object.
    Delete,
    /// Deletes a collection.
    DeleteCollection,
}

/// A request that the fake API server has received.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// What the request does.
    pub verb: Verb,
    /// The API group; empty for the core group.
    pub group: String,
    /// The API version.
    pub version: String,
    /// The plural name of the kind, such as `configmaps`.
    pub plural: String,
    /// The namespace, if the path has one.
    pub namespace: Option<String>,
    /// The name of the object, if the path has one.
    pub name: Option<String>,
    /// The subresource, such as `status`.
    pub subresource: Option<String>,
}

/// A call with its parameters and body.
pub(super) struct Incoming {
    pub(super) call: Call,
    pub(super) query: Query,
    pub(super) content_type: String,
    /// Whether only the metadata of the objects is wanted.
    pub(super) metadata_only: bool,
    pub(super) body: Vec<u8>,
}

/// The parameters of a request.
#[derive(Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    fn parse(text: &str) -> Self {
        Self(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn is_true(&self, name: &str) -> bool {
        self.get(name) == Some("true")
    }
}

impl Incoming {
    pub(super) fn parse(
        method: &Method,
        path: &str,
        query: &str,
        headers: &HeaderMap,
        body: Vec<u8>,
    ) -> Result<Self, Refusal> {
        let query = Query::parse(query);
        let mut call = target(path).ok_or_else(|| Refusal::unknown_path(path))?;
        call.verb = verb(method, &call, &query).ok_or_else(|| Refusal::method(method))?;
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        Ok(Self {
            call,
            query,
            content_type: header(CONTENT_TYPE).unwrap_or_default().to_owned(),
            metadata_only: header(ACCEPT)
                .is_some_and(|accept| accept.contains("as=PartialObjectMetadata")),
            body,
        })
    }
}

/// Finds the resource of a path. The verb is a placeholder.
fn target(path: &str) -> Option<Call> {
    let mut parts = path.trim_matches('/').split('/').map(str::to_owned);
    let group = match parts.next()?.as_str() {
        "api" => String::new(),
        "apis" => parts.next()?,
        _ => return None,
    };
    let version = parts.next()?;
    let rest: Vec<String> = parts.collect();
    let (namespace, rest) = match rest.as_slice() {
        // `namespaces/a/status` belongs to the namespace, `namespaces/a/pods` is in it.
        [first, name, third, ..]
            if first == "namespaces" && !is_namespace_subresource(third) =>
        {
            (Some(name.clone()), &rest[2..])
        }
        all => (None, all),
    };
    let mut rest = rest.iter().cloned();
    Some(Call {
        verb: Verb::Get,
        group,
        version,
        plural: rest.next().filter(|plural| !plural.is_empty())?,
        namespace,
        name: rest.next(),
        subresource: rest.next(),
    })
}

fn is_namespace_subresource(part: &str) -> bool {
    part == "status" || part == "finalize"
}

fn verb(method: &Method, call: &Call, query: &Query) -> Option<Verb> {
    let one = call.name.is_some();
    Some(match method.as_str() {
        "GET" if query.is_true("watch") => Verb::Watch,
        "GET" if one => Verb::Get,
        "GET" => Verb::List,
        "POST" => Verb::Create,
        "PUT" if one => Verb::Update,
        "PATCH" if one => Verb::Patch,
        "DELETE" if one => Verb::Delete,
        "DELETE" => Verb::DeleteCollection,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(path: &str) -> Option<[String; 5]> {
        let Call { group, plural, namespace, name, subresource, .. } = target(path)?;
        let or = Option::unwrap_or_default;
        Some([group, plural, or(namespace), or(name), or(subresource)])
    }

    #[test]
    fn paths_name_a_resource() {
        let cases = [
            ("/api/v1/pods", ["", "pods", "", "", ""]),
            ("/api/v1/namespaces/a/pods/b", ["", "pods", "a", "b", ""]),
            ("/api/v1/namespaces/a/pods/b/status", ["", "pods", "a", "b", "status"]),
            ("/api/v1/namespaces", ["", "namespaces", "", "", ""]),
            ("/api/v1/namespaces/a", ["", "namespaces", "", "a", ""]),
            ("/api/v1/namespaces/a/status", ["", "namespaces", "", "a", "status"]),
            ("/apis/x.io/v1/zoos/z", ["x.io", "zoos", "", "z", ""]),
        ];
        for (path, expected) in cases {
            assert_eq!(parts(path).expect(path), expected, "{path}");
        }
        for path in ["/", "/api", "/api/v1", "/version", "/apis/x.io"] {
            assert_eq!(parts(path), None, "{path}");
        }
    }
}
