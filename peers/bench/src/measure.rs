//! What one process has to say about one system.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// Nanoseconds for each operation, or, where lateness or latency is the point, the
/// median and the 99th percentile as wall time; bytes for each key where memory is.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<f64>,
}

/// How much work a scenario does.
#[derive(Clone, Copy)]
pub struct Load {
    pub quick: bool,
}

impl Load {
    pub fn ops(self, full: usize, quick: usize) -> usize {
        if self.quick { quick } else { full }
    }
}

/// Charges `work` with the CPU time of the whole process.
pub fn timed(ops: usize, work: impl FnOnce()) -> Sample {
    let (cpu, wall) = (cpu_time(), Instant::now());
    work();
    let (elapsed, used) = (wall.elapsed(), cpu_time() - cpu);
    let each = |time: Duration| Some(time.as_nanos() as f64 / ops as f64);
    Sample { cpu_ns: each(used), wall_ns: each(elapsed), ..Sample::default() }
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Median and 99th percentile of how long keys took.
pub fn quantiles(mut waits: Vec<Duration>) -> Sample {
    waits.sort_unstable();
    let at = |index: usize| Some(waits[index].as_nanos() as f64);
    let last = waits.len() * 99 / 100;
    Sample { wall_ns: at(waits.len() / 2), p99_ns: at(last), ..Sample::default() }
}
