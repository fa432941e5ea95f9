//! The HTTP service of the fake API server.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::TryStreamExt;
use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::call::{Call, Incoming, Verb};
use super::fault::{Effect, Faults};
use super::objects::{Kind, Objects, Part, PatchKind, Place};
use super::selector::Selector;
use super::status::Refusal;
use super::watch::Watch;

/// The server behind all clients of a cluster.
#[derive(Debug)]
pub(super) struct Server {
    state: Mutex<State>,
    /// Notified after each change of the state.
    changed: watch::Sender<()>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) objects: Objects,
    pub(super) faults: Faults,
    pub(super) log: Vec<Call>,
    /// Whether connections are refused.
    pub(super) down: bool,
    pub(super) resets: u64,
    pub(super) closes: u64,
    pub(super) bookmarks: u64,
    /// The newest revision that watches of a kind see, if they are held back.
    pub(super) held: HashMap<String, u64>,
    pages: HashMap<String, Page>,
}

/// The rest of a list in pages, and the revision of the list.
#[derive(Debug)]
struct Page {
    revision: u64,
    rest: VecDeque<Arc<Value>>,
}

impl State {
    pub(super) fn signals(&self) -> [u64; 3] {
        [self.resets, self.closes, self.bookmarks]
    }

    pub(super) fn visible_revision(&self, kind: &Kind) -> u64 {
        self.held.get(&kind.plural).copied().unwrap_or(u64::MAX)
    }

    /// Forgets the history and the open lists, and ends all watches.
    pub(super) fn expire(&mut self) {
        self.objects.compact();
        self.pages.clear();
        self.closes += 1;
    }
}

impl Server {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), changed: watch::Sender::new(()) })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Changes the state and notifies all watches.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.send_replace(());
        result
    }

    /// Answers one request.
    #[expect(clippy::disallowed_methods, reason = "it follows the paused time of tokio")]
    async fn answer(self: Arc<Self>, request: Request<Body>) -> io::Result<Answer> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let (path, query) = (parts.uri.path(), parts.uri.query().unwrap_or_default());
        let parsed =
            Incoming::parse(&parts.method, path, query, &parts.headers, body.into());
        let incoming = match parsed {
            Ok(incoming) => incoming,
            Err(refusal) => return Ok(refused(&refusal)),
        };
        match self.admit(&incoming.call)? {
            None => {}
            Some(Effect::Status(code)) => {
                return Ok(refused(&Refusal::of_call(code, &incoming.call)));
            }
            Some(Effect::Delay(delay)) => tokio::time::sleep(delay).await,
            Some(Effect::Hang) => pending().await,
            Some(Effect::Reset) => return Err(io::ErrorKind::ConnectionReset.into()),
        }
        Ok(self.perform(&incoming).unwrap_or_else(|refusal| refused(&refusal)))
    }

    /// Logs a call and returns the fault for it.
    fn admit(&self, call: &Call) -> io::Result<Option<Effect>> {
        let mut state = self.state();
        if state.down {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        state.log.push(call.clone());
        let effect = state.faults.apply(call);
        drop(state);
        self.changed.send_replace(()); // for tests that wait for a call
        Ok(effect)
    }

    fn perform(self: &Arc<Self>, incoming: &Incoming) -> Result<Answer, Refusal> {
        match incoming.call.verb {
            Verb::Watch => {
                let watch = Watch::start(self, &self.state(), incoming);
                Ok(stream(watch))
            }
            Verb::List => {
                let list = list(&mut self.state(), incoming)?;
                Ok(answer(StatusCode::OK, &list))
            }
            Verb::Get => {
                let object = self.state().objects.get(&place(&incoming.call))?;
                Ok(answer(StatusCode::OK, &present(&object, incoming.metadata_only)))
            }
            Verb::Create
            | Verb::Update
            | Verb::Patch
            | Verb::Delete
            | Verb::DeleteCollection => {
                let value = self.change(|state| write(&mut state.objects, incoming))?;
                let created = incoming.call.verb == Verb::Create;
                let code = if created { StatusCode::CREATED } else { StatusCode::OK };
                Ok(answer(code, &present(&value, incoming.metadata_only)))
            }
        }
    }
}

fn place(call: &Call) -> Place {
    Place {
        kind: Kind::of(call),
        namespace: call.namespace.clone().unwrap_or_default(),
        name: call.name.clone().unwrap_or_default(),
    }
}

fn write(objects: &mut Objects, incoming: &Incoming) -> Result<Arc<Value>, Refusal> {
    let call = &incoming.call;
    let place = place(call);
    let part = match call.subresource.as_deref() {
        Some("status") => Part::Status,
        _ => Part::Main,
    };
    match call.verb {
        Verb::Create => objects.create(place, body(incoming)?, part),
        Verb::Update => objects.update(place, body(incoming)?, part),
        Verb::Patch => objects.patch(place, body(incoming)?, patch_kind(incoming)?, part),
        Verb::Delete => {
            let options = body(incoming).unwrap_or_default();
            objects.delete(&place, &options["preconditions"])
        }
        Verb::Get | Verb::List | Verb::Watch | Verb::DeleteCollection => {
            for object in objects.list(&place.kind, &Selector::of(incoming)) {
                objects.delete(&place_of(&place.kind, &object), &Value::Null)?;
            }
            Ok(Arc::new(
                json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
            ))
        }
    }
}

/// Returns where an object of a kind is stored.
pub(super) fn place_of(kind: &Kind, object: &Value) -> Place {
    let field =
        |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
    Place { kind: kind.clone(), namespace: field("namespace"), name: field("name") }
}

fn body(incoming: &Incoming) -> Result<Value, Refusal> {
    serde_json::from_slice(&incoming.body)
        .map_err(|error| Refusal::new(400, format!("the body is not JSON: {error}")))
}

fn patch_kind(incoming: &Incoming) -> Result<PatchKind, Refusal> {
    let kind = incoming.content_type.split(';').next().unwrap_or_default();
    match kind {
        "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
            Ok(PatchKind::Merge)
        }
        "application/json-patch+json" => Ok(PatchKind::Json),
        "application/apply-patch+yaml" => Ok(PatchKind::Apply),
        other => Err(Refusal::new(415, format!("unknown patch type {other}"))),
    }
}

/// Lists a collection, or one page of it.
fn list(state: &mut State, incoming: &Incoming) -> Result<Value, Refusal> {
    let page = if let Some(token) = incoming.query.get("continue") {
        state.pages.remove(token).ok_or_else(Refusal::expired)?
    } else {
        let kind = Kind::of(&incoming.call);
        let rest = state.objects.list(&kind, &Selector::of(incoming)).into();
        Page { revision: state.objects.revision(), rest }
    };
    let Page { revision, mut rest } = page;
    let limit = incoming.query.get("limit").and_then(|text| text.parse().ok());
    let limit = limit.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    let count = limit.min(rest.len());
    let items: Vec<Value> = rest
        .drain(..count)
        .map(|object| present(&object, incoming.metadata_only))
        .collect();
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if !rest.is_empty() {
        let token = format!("{revision}-{}-{}", rest.len(), state.log.len());
        metadata["remainingItemCount"] = rest.len().into();
        metadata["continue"] = token.clone().into();
        state.pages.insert(token, Page { revision, rest });
    }
    Ok(json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}))
}

/// Returns an object as the client wants it: whole, or its metadata only.
pub(super) fn present(object: &Value, metadata_only: bool) -> Value {
    if !metadata_only || object["kind"] == "Status" {
        return object.clone();
    }
    json!({
        "apiVersion": "meta.k8s.io/v1",
        "kind": "PartialObjectMetadata",
        "metadata": object["metadata"],
    })
}

type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

fn refused(refusal: &Refusal) -> Answer {
    let code = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::BAD_REQUEST);
    answer(code, &refusal.to_value())
}

fn answer(code: StatusCode, value: &Value) -> Answer {
    let body = Full::new(Bytes::from(value.to_string()));
    response(code, body.map_err(|never| match never {}).boxed_unsync())
}

fn stream(watch: Watch) -> Answer {
    let body = StreamBody::new(watch.into_stream().map_ok(Frame::data));
    response(StatusCode::OK, body.boxed_unsync())
}

fn response(code: StatusCode, body: UnsyncBoxBody<Bytes, io::Error>) -> Answer {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let json = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

/// The service that a `kube::Client` calls.
#[derive(Clone, Debug)]
pub(super) struct Connection(pub(super) Arc<Server>);

impl tower_service::Service<Request<Body>> for Connection {
    type Response = Answer;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Answer>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(Arc::clone(&self.0).answer(request))
    }
}
