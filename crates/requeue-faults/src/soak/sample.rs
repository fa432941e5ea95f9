//! Memory, connections and open files at one time.

use std::fs;

use anyhow::{Context, Result};

use crate::server::Servers;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Memory that belongs to the processes alone, in bytes.
    pub(crate) client_memory: u64,
    pub(crate) server_memory: u64,
    /// Connections of clients to servers.
    pub(crate) connections: u64,
    /// Open files of all processes, including connections.
    pub(crate) files: u64,
}

impl Sample {
    pub(super) fn take(clients: &[u32], servers: &Servers) -> Result<Self> {
        let servers_and_backends = with_children(&servers.process_ids())?;
        let all = || clients.iter().chain(&servers_and_backends);
        Ok(Self {
            client_memory: clients.iter().map(|id| memory(*id)).sum(),
            server_memory: servers_and_backends.iter().map(|id| memory(*id)).sum(),
            connections: servers.connections() as u64,
            files: all().map(|id| open_files(*id)).sum(),
        })
    }
}

/// Returns the processes and their children: PostgreSQL has one for each connection.
fn with_children(ids: &[u32]) -> Result<Vec<u32>> {
    let mut all = ids.to_vec();
    for entry in fs::read_dir("/proc").context("cannot list processes")?.flatten() {
        let id = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        let Some(id) = id else { continue };
        if parent(id).is_some_and(|parent| ids.contains(&parent)) {
            all.push(id);
        }
    }
    Ok(all)
}

fn parent(id: u32) -> Option<u32> {
    status(id, "PPid:")?.parse().ok()
}

/// Returns the memory that is not shared with other processes. A process that has exited
/// has none.
fn memory(id: u32) -> u64 {
    let kilobytes = status(id, "RssAnon:").and_then(|text| text.parse::<u64>().ok());
    kilobytes.unwrap_or_default() << 10
}

/// Returns the first word of a line of the status of a process.
fn status(id: u32, name: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next().map(str::to_owned)
}

fn open_files(id: u32) -> u64 {
    fs::read_dir(format!("/proc/{id}/fd")).map_or(0, |files| files.count() as u64)
}
