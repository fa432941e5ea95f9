//! Metrics for whoever asks over HTTP: one page, one connection at a time.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// The most that is read of a request.
const REQUEST: u64 = 8 * 1024;

/// A client that is slower is not served: others wait.
const PATIENCE: Duration = Duration::from_secs(2);

/// Serves `page` as `content_type` at `/metrics`, for ever.
pub(crate) fn serve(
    listener: &TcpListener,
    content_type: &str,
    page: impl Fn() -> String,
) {
    for client in listener.incoming().flatten() {
        // A client that goes away has no one to complain to.
        answer(&client, content_type, &page).unwrap_or_default();
    }
}

fn answer(
    mut client: &TcpStream,
    content_type: &str,
    page: impl Fn() -> String,
) -> io::Result<()> {
    client.set_read_timeout(Some(PATIENCE))?;
    client.set_write_timeout(Some(PATIENCE))?;
    let path = requested(client)?;
    let (status, body) = match path.as_deref() {
        Some("/metrics" | "/") => ("200 OK", page()),
        Some(_) => ("404 Not Found", "metrics are at /metrics\n".to_owned()),
        None => ("400 Bad Request", "only GET is understood\n".to_owned()),
    };
    let length = body.len();
    write!(
        client,
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// The path that is asked for, without its query; `None` if it is not asked for by GET.
fn requested(client: &TcpStream) -> io::Result<Option<String>> {
    let mut lines = BufReader::new(client.take(REQUEST)).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    // The rest is read so that closing does not cut the answer off.
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
