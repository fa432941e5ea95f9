// Prints a row in the format of the store benchmarks.
export const ROW = 42

export async function measure(name, count, cpuMicros, work) {
  const [before, started] = [await cpuMicros(), performance.now()]
  await work()
  const seconds = (performance.now() - started) / 1000
  const perJob = ((await cpuMicros()) - before) / count
  const rate = Math.round(count / seconds)
  console.log(`${name.padEnd(ROW)} ${String(rate).padStart(12)} ${perJob.toFixed(2).padStart(16)}`)
  return perJob
}

// Returns a promise that resolves after `total` calls of `count`.
export function countdown(total) {
  let resolve
  const done = new Promise((resolvePromise) => (resolve = resolvePromise))
  const count = () => {
    total -= 1
    if (total === 0) resolve()
  }
  return { done, count }
}
