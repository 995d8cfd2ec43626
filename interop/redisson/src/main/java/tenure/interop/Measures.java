package tenure.interop;

import java.util.Arrays;
import java.util.concurrent.atomic.AtomicLong;

import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** What is measured of Redisson's client, for comparison. */
final class Measures {
    private Measures() {
    }

    /** The median of uncontended pairs by one thread, in nanoseconds, once it is warm. */
    static String pairs(RedissonClient client, long count) {
        RLock lock = client.getLock("pairs/redisson");
        long[] times = new long[(int) count];
        for (int round = 0; round < 2 * count; round++) {
            long begin = System.nanoTime();
            lock.lock();
            lock.unlock();
            times[(int) (round % count)] = System.nanoTime() - begin;
        }
        Arrays.sort(times);
        return String.valueOf(times[times.length / 2]);
    }

    /** Pairs in a second by many threads, each on a lock of its own, once they are warm. */
    static String throughput(RedissonClient client, int callers, long millis) throws Exception {
        AtomicLong pairs = new AtomicLong();
        boolean[] isOver = new boolean[1];
        Thread[] threads = new Thread[callers];
        for (int caller = 0; caller < callers; caller++) {
            RLock lock = client.getLock("callers/" + caller);
            threads[caller] = new Thread(() -> {
                while (!isOver(isOver)) {
                    lock.lock();
                    lock.unlock();
                    pairs.incrementAndGet();
                }
            });
            threads[caller].start();
        }
        Thread.sleep(millis);
        long before = pairs.get();
        long begin = System.nanoTime();
        Thread.sleep(millis);
        double rate = (pairs.get() - before) * 1e9 / (System.nanoTime() - begin);
        synchronized (isOver) {
            isOver[0] = true;
        }
        for (Thread thread : threads) {
            thread.join();
        }
        return String.valueOf((long) rate);
    }

    private static boolean isOver(boolean[] flag) {
        synchronized (flag) {
            return flag[0];
        }
    }
}
