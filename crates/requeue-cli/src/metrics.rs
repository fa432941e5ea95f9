//! A minimal HTTP server for metrics: one page, one connection at a time.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// Maximum size of a request, in bytes.
const MAX_REQUEST: u64 = 8 * 1024;

/// A slower client is dropped, because other clients wait for it.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Serves `page` as `content_type` at `/metrics`, forever.
pub(crate) fn serve(
    listener: &TcpListener,
    content_type: &str,
    page: impl Fn() -> String,
) {
    for client in listener.incoming().flatten() {
        // Errors only mean that the client has disconnected.
        respond(&client, content_type, &page).unwrap_or_default();
    }
}

fn respond(
    mut client: &TcpStream,
    content_type: &str,
    page: impl Fn() -> String,
) -> io::Result<()> {
    client.set_read_timeout(Some(TIMEOUT))?;
    client.set_write_timeout(Some(TIMEOUT))?;
    let path = read_path(client)?;
    let (status, body) = match path.as_deref() {
        Some("/metrics" | "/") => ("200 OK", page()),
        Some(_) => ("404 Not Found", "metrics are at /metrics\n".to_owned()),
        None => ("400 Bad Request", "only GET is supported\n".to_owned()),
    };
    let length = body.len();
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// Reads a request. Returns its path without the query, or `None` if it is not a GET.
fn read_path(client: &TcpStream) -> io::Result<Option<String>> {
    let mut lines = BufReader::new(client.take(MAX_REQUEST)).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    // Closing with unread bytes would reset the connection and lose the response.
    for line in lines {
        if line?.is_empty() {
            break;
        }
    }
    let mut words = first.split(' ');
    let get = words.next() == Some("GET");
    let path = words.next().and_then(|path| path.split('?').next());
    Ok(path.filter(|_| get).map(str::to_owned))
}
