//! The result of one process: one system in one scenario.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// CPU and wall time per operation, or the median wall time of one key, or bytes per key.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ns: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wall_ns: Option<f64>,
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

/// Measures `work`. CPU time is that of the whole process.
pub fn timed(ops: usize, work: impl FnOnce()) -> Sample {
    let (cpu, wall) = (cpu_time(), Instant::now());
    work();
    let (elapsed, used) = (wall.elapsed(), cpu_time() - cpu);
    let per_op = |time: Duration| Some(time.as_nanos() as f64 / ops as f64);
    Sample { cpu_ns: per_op(used), wall_ns: per_op(elapsed), ..Sample::default() }
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Returns the median of the waiting times of all keys.
pub fn median(mut waits: Vec<Duration>) -> Sample {
    waits.sort_unstable();
    let median = waits[waits.len() / 2].as_nanos() as f64;
    Sample { wall_ns: Some(median), ..Sample::default() }
}
