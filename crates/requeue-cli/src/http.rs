//! A small HTTP server: a router, limits, and timeouts against slow clients.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use requeue::{Clock, SystemClock};
use tokio::sync::Semaphore;

/// The time in which a client must send the head of its request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The time in which a connection must end, however slowly its client reads.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);

/// Connections served at the same time. Others wait in the backlog of the listener.
const MAX_CONNECTIONS: usize = 128;

/// The pause after a failed accept. Without it, a lack of file descriptors would cause a busy
/// loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Size of the buffer for the head of a request, in bytes. A longer head is refused.
const MAX_HEAD: usize = 16 * 1024;

/// Returns a router that serves `page` as `content_type` at `/metrics`. `page` may block.
pub(crate) fn metrics(
    content_type: &'static str,
    page: impl Fn() -> String + Send + Sync + 'static,
) -> Router {
    let page = Arc::new(page);
    let respond = move || {
        let page = Arc::clone(&page);
        async move {
            match tokio::task::spawn_blocking(move || page()).await {
                Ok(text) => ([(CONTENT_TYPE, content_type)], text).into_response(),
                Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
            }
        }
    };
    Router::new()
        .route("/metrics", get(respond.clone()))
        .route("/", get(respond))
        .fallback(|uri: Uri| async move {
            let path = uri.path().escape_debug().to_string();
            (
                StatusCode::NOT_FOUND,
                format!("{path} not found; metrics are at /metrics\n"),
            )
        })
}

/// Serves a router on the current thread, forever.
pub(crate) fn serve(listener: TcpListener, router: &Router) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        accept_all(tokio::net::TcpListener::from_std(listener)?, router).await
    })
}

async fn accept_all(
    listener: tokio::net::TcpListener,
    router: &Router,
) -> io::Result<()> {
    let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let permit = Arc::clone(&free).acquire_owned().await.map_err(io::Error::other)?;
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEAD_TIMEOUT)
                    .max_buf_size(MAX_HEAD)
                    .keep_alive(false)
                    .serve_connection(
                        TokioIo::new(stream),
                        TowerToHyperService::new(router.clone()),
                    );
                tokio::spawn(async move {
                    // Errors only mean that the client is gone or too slow.
                    drop(tokio::time::timeout(CONNECTION_TIMEOUT, connection).await);
                    drop(permit);
                });
            }
            Err(_) => SystemClock.timer(SystemClock.now() + ACCEPT_PAUSE).await,
        }
    }
}
