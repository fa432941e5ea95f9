//! The event stream of a watch.
//!
//! A stream reads the history of the server from where it stands. It ends at its timeout,
//! when the server closes its watches, and with an error when connections are dropped.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use futures::stream::unfold;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::call::Incoming;
use super::objects::{Change, Kind};
use super::selector::Selector;
use super::server::{Server, State, present};
use super::status::Refusal;

/// One watch.
pub(super) struct Watch {
    server: Arc<Server>,
    changed: watch::Receiver<()>,
    kind: Kind,
    api_version: String,
    selector: Selector,
    metadata_only: bool,
    bookmarks: bool,
    revision: u64,
    /// The numbers of resets, closes and bookmarks that the stream has seen.
    seen: [u64; 3],
    lines: VecDeque<Bytes>,
    ended: bool,
    deadline: Instant,
}

impl Watch {
    /// Starts a watch, at a revision or with a streaming list.
    #[expect(clippy::disallowed_methods, reason = "it follows the paused time of tokio")]
    pub(super) fn start(
        server: &Arc<Server>,
        state: &State,
        incoming: &Incoming,
    ) -> Self {
        let query = &incoming.query;
        let seconds = query.get("timeoutSeconds").and_then(|text| text.parse().ok());
        let mut watch = Self {
            server: Arc::clone(server),
            changed: server.subscribe(),
            kind: Kind::of(&incoming.call),
            api_version: incoming.call.version.clone(),
            selector: Selector::of(incoming),
            metadata_only: incoming.metadata_only,
            bookmarks: query.is_true("allowWatchBookmarks"),
            revision: state.objects.revision(),
            seen: state.signals(),
            lines: VecDeque::new(),
            ended: false,
            deadline: Instant::now() + Duration::from_secs(seconds.unwrap_or(3600)),
        };
        let version = query.get("resourceVersion").unwrap_or_default();
        if query.is_true("sendInitialEvents") || version.is_empty() || version == "0" {
            watch.push_objects(state);
            if query.is_true("sendInitialEvents") {
                watch.push_bookmark(true);
            }
        } else {
            watch.revision = version.parse().unwrap_or_default();
        }
        watch
    }

    pub(super) fn into_stream(self) -> impl Stream<Item = io::Result<Bytes>> + Send {
        unfold(self, |mut watch| async move {
            let line = watch.next().await?;
            Some((line, watch))
        })
    }

    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                return Some(Ok(line));
            }
            if self.ended {
                return None;
            }
            self.changed.borrow_and_update();
            let server = Arc::clone(&self.server);
            let read = self.read(&server.state());
            if let Err(error) = read {
                self.ended = true;
                return Some(Err(error));
            }
            if self.lines.is_empty() && !self.ended {
                tokio::select! {
                    _ = self.changed.changed() => {}
                    () = sleep_until(self.deadline) => self.ended = true,
                }
            }
        }
    }

    /// Queues lines for all news since the last call.
    fn read(&mut self, state: &State) -> io::Result<()> {
        let [resets, closes, bookmarks] = state.signals();
        if resets != self.seen[0] {
            return Err(io::Error::new(
                io::ErrorKind::ConnectionReset,
                "connection reset",
            ));
        }
        if closes != self.seen[1] {
            self.ended = true;
            return Ok(());
        }
        if self.revision < state.objects.compacted() {
            let status = Refusal::expired().to_value();
            self.push(&json!({"type": "ERROR", "object": status}));
            self.ended = true;
            return Ok(());
        }
        let limit = state.visible_revision(&self.kind);
        for change in state.objects.changes_since(self.revision) {
            if change.revision <= limit && change.kind == self.kind {
                self.push_change(change);
            }
        }
        self.revision = self.revision.max(limit.min(state.objects.revision()));
        if bookmarks != self.seen[2] {
            self.seen[2] = bookmarks;
            if self.bookmarks {
                self.push_bookmark(false);
            }
        }
        Ok(())
    }

    /// An object that starts or stops to match the selector is added or deleted.
    fn push_change(&mut self, change: &Change) {
        let matched = change.before.as_ref().is_some_and(|o| self.selector.matches(o));
        let selected = !change.deleted && self.selector.matches(&change.after);
        let event = match (matched, selected) {
            (false, true) => "ADDED",
            (true, true) => "MODIFIED",
            (true, false) => "DELETED",
            (false, false) => return,
        };
        self.push_object(event, &change.after);
    }

    fn push_objects(&mut self, state: &State) {
        for object in state.objects.list(&self.kind, &self.selector) {
            self.push_object("ADDED", &object);
        }
    }

    fn push_object(&mut self, event: &str, object: &Value) {
        let object = present(object, self.metadata_only);
        self.push(&json!({"type": event, "object": object}));
    }

    fn push_bookmark(&mut self, initial: bool) {
        let mut metadata = json!({"resourceVersion": self.revision.to_string()});
        if initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        self.push(&json!({
            "type": "BOOKMARK",
            "object": {
                "apiVersion": self.api_version, "kind": "Bookmark", "metadata": metadata,
            },
        }));
    }

    /// Writes the type before the object, as a real server does.
    fn push(&mut self, event: &Value) {
        let line =
            format!("{{\"type\":{},\"object\":{}}}\n", event["type"], event["object"]);
        self.lines.push_back(Bytes::from(line));
    }
}
