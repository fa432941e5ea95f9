//! The state of a queue in a store, as text and as JSON.

use std::fmt::Write as _;
use std::time::Duration;

use requeue_store::{Dead, Failing, Stats, Worker};
use serde_json::{Map, Value, json};

use super::text::{duration, json as json_text, shown};
use crate::hex::hex;

/// Formats the state of `queue` as text.
pub(crate) fn status_text(
    queue: &str,
    stats: &Stats,
    failing: &[Failing],
    workers: &[Worker],
) -> String {
    let mut text = format!("{queue}{}\n\n", if stats.paused { "  PAUSED" } else { "" });
    text += &counts(stats, workers);
    if !failing.is_empty() {
        text.push('\n');
        let head = ["FAILING KEY", "FAILURES", "NEXT RUN", "LAST ERROR"];
        text += &table(head, failing, failing_row);
    }
    let more = stats.failing.saturating_sub(failing.len() as u64);
    if more > 0 {
        // Writing to a string cannot fail.
        writeln!(text, "and {more} more").unwrap_or_default();
    }
    if !workers.is_empty() {
        text.push('\n');
        text += &table(["WORKER", "KEYS", "LAST SEEN"], workers, worker_row);
    }
    text
}

/// A worker that is silent for longer has lost its leases, unless they are longer than the
/// default of 30 seconds.
const SILENT: Duration = Duration::from_secs(60);

/// Formats the note about processing keys.
fn processing_note(stats: &Stats, workers: &[Worker]) -> Option<String> {
    let silent = workers.iter().filter(|worker| worker.seen > SILENT);
    let silent: u64 = silent.map(|worker| worker.processing).sum();
    let parts = [
        (stats.dirty > 0).then(|| format!("{} added again", stats.dirty)),
        (silent > 0)
            .then(|| format!("{silent} held by workers silent for over a minute")),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn counts(stats: &Stats, workers: &[Worker]) -> String {
    let oldest = stats.oldest_ready.map(|age| format!("oldest {}", duration(age)));
    let rows = [
        ("ready", stats.ready, oldest),
        ("delayed", stats.delayed, None),
        ("processing", stats.processing, processing_note(stats, workers)),
        ("failing", stats.failing, None),
        ("dead", stats.dead, None),
    ];
    let mut text = String::new();
    for (name, number, note) in rows {
        let note = note.map(|note| format!("  {note}")).unwrap_or_default();
        writeln!(text, "{name:<11}{number:>8}{note}").unwrap_or_default();
    }
    text
}

fn failing_row(key: &Failing) -> [String; 4] {
    let next =
        key.retry_in.map_or("now".to_owned(), |left| format!("in {}", duration(left)));
    [shown(&key.key), key.failures.to_string(), next, shown(key.error.as_bytes())]
}

fn worker_row(worker: &Worker) -> [String; 3] {
    let seen = format!("{} ago", duration(worker.seen));
    [shown(worker.owner.as_str().as_bytes()), worker.processing.to_string(), seen]
}

/// Formats dead keys as text.
pub(crate) fn dead_table(dead: &[Dead]) -> String {
    if dead.is_empty() {
        return String::new();
    }
    table(["DEAD KEY", "DIED", "RETRIES", "REASON"], dead, |key| {
        [
            shown(&key.key),
            format!("{} ago", duration(key.since)),
            key.failures.to_string(),
            shown(key.reason.as_bytes()),
        ]
    })
}

/// Formats a table with columns as wide as their longest cell.
fn table<T, const N: usize>(
    head: [&str; N],
    items: &[T],
    row: impl Fn(&T) -> [String; N],
) -> String {
    let rows = std::iter::once(head.map(str::to_owned)).chain(items.iter().map(row));
    let rows: Vec<_> = rows.collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            write!(line, "{cell:<width$}  ").unwrap_or_default();
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

/// Formats the state of `queue` as a JSON object.
pub(crate) fn status_json(
    queue: &str,
    stats: &Stats,
    failing: &[Failing],
    workers: &[Worker],
) -> String {
    let failing: Vec<_> = failing.iter().map(failing_object).collect();
    let workers: Vec<_> = workers.iter().map(worker_object).collect();
    let all = json!({
        "store": queue,
        "ready": stats.ready,
        "delayed": stats.delayed,
        "processing": stats.processing,
        "dirty": stats.dirty,
        "failing": stats.failing,
        "dead": stats.dead,
        "paused": stats.paused,
        "oldest_ready_ms": stats.oldest_ready.map(millis),
        "failing_keys": failing,
        "workers": workers,
    });
    json_text(&all) + "\n"
}

fn failing_object(key: &Failing) -> Value {
    let mut object = keyed(&key.key);
    object.insert("failures".to_owned(), key.failures.into());
    object.insert("error".to_owned(), key.error.clone().into());
    object.insert("retry_in_ms".to_owned(), key.retry_in.map(millis).into());
    object.into()
}

fn worker_object(worker: &Worker) -> Value {
    json!({
        "name": worker.owner.as_str(),
        "keys": worker.processing,
        "seen_ms_ago": millis(worker.seen),
    })
}

/// Formats dead keys as JSON objects, one per line.
pub(crate) fn dead_json(dead: &[Dead]) -> String {
    dead.iter().fold(String::new(), |mut text, key| {
        let mut object = keyed(&key.key);
        object.insert("reason".to_owned(), key.reason.clone().into());
        object.insert("since_ms".to_owned(), millis(key.since).into());
        // Its last failure is the reason, and is not counted.
        object.insert("retries".to_owned(), key.failures.into());
        object.insert("deliveries".to_owned(), key.deliveries.into());
        object.insert("worker".to_owned(), key.owner.as_str().into());
        writeln!(text, "{}", json_text(&object.into())).unwrap_or_default();
        text
    })
}

/// Returns an object with the key as text, and also in hexadecimal if it is not UTF-8.
fn keyed(key: &[u8]) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("key".to_owned(), String::from_utf8_lossy(key).into_owned().into());
    if std::str::from_utf8(key).is_err() {
        object.insert("key_hex".to_owned(), hex(key).into());
    }
    object
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "it overflows after half a billion years"
)]
fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}

#[cfg(test)]
mod tests {
    use requeue_store::{Key, Owner};

    use super::*;

    fn failing() -> Failing {
        Failing {
            key: Key::new(&b"db\n7"[..]).unwrap(),
            failures: 3,
            error: "exit code 1: no route".to_owned(),
            retry_in: Some(Duration::from_millis(1500)),
        }
    }

    fn worker() -> Worker {
        let seen = Duration::from_millis(800);
        Worker { owner: Owner::new("web/42/ff"), seen, processing: 2 }
    }

    fn stats() -> Stats {
        let oldest_ready = Some(Duration::from_secs(3));
        Stats {
            ready: 12,
            processing: 2,
            dirty: 1,
            failing: 4,
            oldest_ready,
            ..Stats::default()
        }
    }

    #[test]
    fn status_shows_counts_failing_keys_and_workers() {
        let text = status_text("the queue", &stats(), &[failing()], &[worker()]);
        let wanted = "the queue\n\n\
                      ready            12  oldest 3.0s\n\
                      delayed           0\n\
                      processing        2  1 added again\n\
                      failing           4\n\
                      dead              0\n\n\
                      FAILING KEY  FAILURES  NEXT RUN  LAST ERROR\n\
                      db\\n7        3         in 1.5s   exit code 1: no route\n\
                      and 3 more\n\n\
                      WORKER     KEYS  LAST SEEN\n\
                      web/42/ff  2     800ms ago\n";
        assert_eq!(text, wanted);
    }

    /// Keys of a killed worker once looked like keys of a live one.
    #[test]
    fn keys_of_silent_workers_are_shown() {
        let gone = Worker { seen: Duration::from_secs(61), ..worker() };
        let text = status_text("the queue", &stats(), &[], &[worker(), gone]);
        let note = "2  1 added again, 2 held by workers silent for over a minute\n";
        assert!(text.contains(note), "{text}");
    }

    #[test]
    fn paused_queue_is_marked() {
        let stats = Stats { paused: true, ..Stats::default() };
        assert!(
            status_text("the queue", &stats, &[], &[]).starts_with("the queue  PAUSED")
        );
    }

    #[test]
    fn json_has_keys_that_are_not_utf8_in_hexadecimal() {
        let key = Key::new(&b"\xff"[..]).unwrap();
        let failing = Failing { key, retry_in: None, ..failing() };
        let text = status_json("q", &stats(), &[failing], &[worker()]);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["failing_keys"][0]["key_hex"], "ff");
        assert_eq!(value["failing_keys"][0]["retry_in_ms"], Value::Null);
        assert_eq!(value["oldest_ready_ms"], 3000);
        assert_eq!(value["workers"][0]["keys"], 2);
    }
}
