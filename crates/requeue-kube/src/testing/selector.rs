//! Which objects of a collection a request is about.

use serde_json::Value;

use super::call::Incoming;

/// The namespace, labels and fields that a list or watch asks for.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    namespace: Option<String>,
    labels: Vec<Condition>,
    fields: Vec<Condition>,
}

#[derive(Clone, Debug)]
enum Condition {
    Equal(String, String),
    NotEqual(String, String),
    Exists(String),
    Missing(String),
}

impl Selector {
    pub(super) fn of(incoming: &Incoming) -> Self {
        let parse = |name| conditions(incoming.query.get(name).unwrap_or_default());
        Self {
            namespace: incoming.call.namespace.clone(),
            labels: parse("labelSelector"),
            fields: parse("fieldSelector"),
        }
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        let metadata = &object["metadata"];
        let namespace = self.namespace.as_deref();
        namespace.is_none_or(|name| metadata["namespace"] == name)
            && self.labels.iter().all(|condition| {
                condition.holds(|label| metadata["labels"].get(label)?.as_str())
            })
            && self.fields.iter().all(|condition| {
                condition.holds(|field| {
                    object.pointer(&format!("/{}", field.replace('.', "/")))?.as_str()
                })
            })
    }
}

impl Condition {
    fn holds<'a>(&self, value: impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::Equal(key, expected) => value(key) == Some(expected),
            Self::NotEqual(key, unwanted) => value(key) != Some(unwanted),
            Self::Exists(key) => value(key).is_some(),
            Self::Missing(key) => value(key).is_none(),
        }
    }
}

fn conditions(text: &str) -> Vec<Condition> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(condition)
        .collect()
}

fn condition(part: &str) -> Condition {
    let pair = |key: &str, value: &str| (key.trim().to_owned(), value.trim().to_owned());
    if let Some((key, value)) = part.split_once("!=") {
        let (key, value) = pair(key, value);
        return Condition::NotEqual(key, value);
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        let (key, value) = pair(key, value);
        return Condition::Equal(key, value);
    }
    match part.strip_prefix('!') {
        Some(key) => Condition::Missing(key.to_owned()),
        None => Condition::Exists(part.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn conditions_select_by_label_and_field() {
        let object = json!({
            "metadata": {"name": "a", "namespace": "n", "labels": {"app": "x", "tier": "y"}}
        });
        let matches = |namespace: Option<&str>, labels, fields| {
            let selector = Selector {
                namespace: namespace.map(str::to_owned),
                labels: conditions(labels),
                fields: conditions(fields),
            };
            selector.matches(&object)
        };
        assert!(matches(None, "", ""));
        assert!(matches(Some("n"), "app=x,tier==y,other!=z,app,!missing", ""));
        assert!(matches(None, "", "metadata.name=a"));
        assert!(!matches(Some("m"), "", ""));
        for labels in ["app=y", "app!=x", "missing", "!app"] {
            assert!(!matches(None, labels, ""), "{labels}");
        }
        assert!(!matches(None, "", "metadata.name=b"));
    }
}
