"""Locks with redis-py: threads' API for one caller, asyncio's for many, which is faster there."""

import argparse
import asyncio
import itertools
import json
import os
import sys
import time

import redis
import redis.asyncio

LEASE = 10
# More sections are thinned out: the line stays short enough to be read at once.
MOST = 50_000

now = time.monotonic_ns


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--work", default="pairs", choices=["pairs", "shared", "names"])
    parser.add_argument("--callers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--warm-seconds", type=float, default=0.2)
    parser.add_argument("--section-ms", type=float, default=0)
    parser.add_argument("--pause-ms", type=float, default=0)
    parser.add_argument("--name", default="peers")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--poll-us", type=float, default=500)
    return parser.parse_args()


def warming(options):
    """The same callers on names of their own, for a short time."""
    name = f"{options.name}/warm/{os.getpid()}"
    changes = {"work": "pairs", "seconds": options.warm_seconds, "name": name}
    changes.update({"section_ms": 0, "pause_ms": 0})
    return argparse.Namespace(**{**vars(options), **changes})


def names(options, caller, numbers):
    """The names that the caller locks, one after the other."""
    if options.work == "names":
        for number in numbers:
            yield f"{options.name}/{number}"
        return
    end = now() + int(options.seconds * 1e9)
    name = options.name if options.work == "shared" else f"{options.name}/{caller}"
    while now() < end:
        yield name


def one_caller(options):
    client = redis.Redis.from_url(options.url)

    def work(options):
        times = []
        poll, held = options.poll_us / 1e6, options.section_ms / 1e3
        for name in names(options, 0, iter(range(options.count))):
            asked = now()
            lock = client.lock(name, timeout=LEASE, sleep=poll, thread_local=False)
            lock.acquire()
            acquired = now()
            if held:
                time.sleep(held)
            releasing = now()
            lock.release()
            times.append((asked, acquired - asked, releasing - acquired, now() - releasing))
            if options.pause_ms:
                time.sleep(options.pause_ms / 1e3)
        return times

    return work


def many_callers(options):
    loop = asyncio.new_event_loop()
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        options.url, max_connections=min(options.callers, 64), timeout=None
    )
    client = redis.asyncio.Redis(connection_pool=pool)

    async def call(options, caller, numbers, times):
        poll, held = options.poll_us / 1e6, options.section_ms / 1e3
        for name in names(options, caller, numbers):
            asked = now()
            lock = client.lock(name, timeout=LEASE, sleep=poll, thread_local=False)
            await lock.acquire()
            acquired = now()
            if held:
                await asyncio.sleep(held)
            releasing = now()
            await lock.release()
            times.append((asked, acquired - asked, releasing - acquired, now() - releasing))

    async def all_callers(options):
        times, numbers = [], iter(range(options.count))
        calls = (call(options, caller, numbers, times) for caller in range(options.callers))
        await asyncio.gather(*calls)
        return times

    return lambda options: loop.run_until_complete(all_callers(options))


def main():
    options = parse()
    work = one_caller(options) if options.callers == 1 else many_callers(options)
    work(warming(options))
    print("ready", flush=True)
    sys.stdin.readline()
    begin = now()
    times = work(options)
    seconds = (now() - begin) / 1e9
    every = max(1, -(-len(times) // MOST))
    result = {
        "version": redis.__version__,
        "sections": len(times),
        "seconds": seconds,
        "every": every,
        "times": list(itertools.islice(times, 0, None, every)),
    }
    print(json.dumps(result, separators=(",", ":")), flush=True)


main()
