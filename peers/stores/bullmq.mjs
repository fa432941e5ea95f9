// Measures BullMQ with deduplication by key: a job added while its key is active runs once
// more. 100 concurrent jobs, no job history. Prints the CPU time of Redis per job.
import { Queue, Worker } from 'bullmq'
import Redis from 'ioredis'
import { countdown, measure } from './measure.mjs'

const JOBS = 20_000
const BULK = 500
const { hostname: host, port } = new URL(process.env.REQUEUE_REDIS_URL)
const connection = { host, port: Number(port), maxRetriesPerRequest: null }

const queue = new Queue('bench', { connection })
const redis = new Redis(connection)

async function cpuMicros() {
  const info = await redis.info('cpu')
  const seconds = (name) => Number(info.match(new RegExp(`${name}:([0-9.]+)`))[1])
  return (seconds('used_cpu_user') + seconds('used_cpu_sys')) * 1e6
}

function job(number) {
  const deduplication = { id: `key-${number}`, keepLastIfActive: true }
  return { name: 'work', data: {}, opts: { deduplication, removeOnComplete: true } }
}

async function add() {
  for (let first = 0; first < JOBS; first += BULK) {
    await queue.addBulk(Array.from({ length: BULK }, (_, n) => job(first + n)))
  }
}

async function work() {
  const { done, count } = countdown(JOBS)
  const worker = new Worker('bench', async () => {}, { connection, concurrency: 100 })
  worker.on('completed', count)
  await done
  await worker.close()
}

await redis.flushall()
const adding = await measure('BullMQ: add, batches of 500', JOBS, cpuMicros, add)
const working = await measure('BullMQ: process, 100 concurrent', JOBS, cpuMicros, work)
console.log(`${'BullMQ: total'.padEnd(42)} ${''.padStart(12)} ${(adding + working).toFixed(2).padStart(16)}`)
await redis.flushall()
process.exit(0)
