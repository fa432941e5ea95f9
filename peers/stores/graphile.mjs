// Measures graphile-worker with a key per job: 24 concurrent jobs from a local queue of 500.
// Prints the CPU time of all PostgreSQL processes per job.
import { readdirSync, readFileSync } from 'node:fs'
import { Logger, makeWorkerUtils, run } from 'graphile-worker'
import pg from 'pg'
import { countdown, measure } from './measure.mjs'

const JOBS = 20_000
const BULK = 500
const TICK_US = 10_000
const connectionString = process.env.REQUEUE_POSTGRES_URL
// Logs only warnings and errors.
const logger = new Logger(() => (level, message) => {
  if (level === 'error' || level === 'warning') console.error(message)
})

// Returns the parent and the CPU ticks of a process, including exited children. Zeros if the
// process has exited.
function stat(pid) {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').pop().split(' ')
    const ticks = [11, 12, 13, 14].map((at) => Number(fields[at])).reduce((a, b) => a + b)
    return { parent: Number(fields[1]), ticks }
  } catch {
    return { parent: 0, ticks: 0 }
  }
}

async function postmaster() {
  const client = new pg.Client({ connectionString })
  await client.connect()
  const { rows } = await client.query('select pg_backend_pid() as pid')
  const { parent } = stat(rows[0].pid)
  await client.end()
  return parent
}

function cpuMicros(postmaster) {
  const pids = readdirSync('/proc').filter((name) => /^[0-9]+$/.test(name)).map(Number)
  const own = pids.filter((pid) => pid === postmaster || stat(pid).parent === postmaster)
  return own.map((pid) => stat(pid).ticks).reduce((a, b) => a + b) * TICK_US
}

async function add(utils) {
  for (let first = 0; first < JOBS; first += BULK) {
    const specs = Array.from({ length: BULK }, (_, n) => ({
      identifier: 'work', payload: {}, jobKey: `key-${first + n}`,
    }))
    await utils.addJobs(specs)
  }
}

async function work() {
  const { done, count } = countdown(JOBS)
  const preset = {
    worker: {
      connectionString,
      concurrentJobs: 24,
      localQueue: { size: 500 },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
      maxPoolSize: 24,
      logger,
    },
  }
  const runner = await run({ preset, noHandleSignals: true, taskList: { work: async () => count() } })
  await done
  await runner.stop()
}

const server = await postmaster()
const utils = await makeWorkerUtils({ connectionString })
await utils.migrate()
const cpu = async () => cpuMicros(server)
const adding = await measure('graphile-worker: add, batches of 500', JOBS, cpu, () => add(utils))
const working = await measure('graphile-worker: process, 24 concurrent', JOBS, cpu, work)
console.log(`${'graphile-worker: total'.padEnd(42)} ${''.padStart(12)} ${(adding + working).toFixed(2).padStart(16)}`)
await utils.release()
process.exit(0)
