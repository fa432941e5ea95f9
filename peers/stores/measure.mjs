// Prints a row as the benchmarks of the stores do.
export const ROW = 42

export async function measure(name, count, used, work) {
  const [before, began] = [await used(), performance.now()]
  await work()
  const seconds = (performance.now() - began) / 1000
  const each = ((await used()) - before) / count
  const rate = Math.round(count / seconds)
  console.log(`${name.padEnd(ROW)} ${String(rate).padStart(12)} ${each.toFixed(2).padStart(16)}`)
  return each
}

// Resolves once `seen()` was called `count` times.
export function countdown(count) {
  let finish
  const over = new Promise((resolve) => (finish = resolve))
  const seen = () => {
    count -= 1
    if (count === 0) finish()
  }
  return { over, seen }
}
