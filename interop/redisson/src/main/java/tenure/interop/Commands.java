package tenure.interop;

import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** The commands of an {@link Agent}. */
final class Commands {
    private final RedissonClient client;

    Commands(RedissonClient client) {
        this.client = client;
    }

    String perform(String[] words) throws Exception {
        String name = words.length > 3 ? URLDecoder.decode(words[3], StandardCharsets.UTF_8) : "";
        long number = words.length > 4 ? Long.parseLong(words[4]) : 0;
        switch (words[2]) {
            case "lock":
            case "read":
            case "write":
            case "fence":
                return lock(words[2], name, number);
            case "try-lock":
            case "try-read":
            case "try-write":
                return String.valueOf(named(words[2].substring(4), name).tryLock(number, TimeUnit.MILLISECONDS));
            case "unlock":
            case "unread":
            case "unwrite":
                named(words[2].substring(2), name).unlock();
                return "ok";
            case "force":
                return String.valueOf(client.getLock(name).forceUnlock());
            case "entries":
                return String.valueOf(client.getLock(name).getHoldCount());
            case "fight":
                return fight(client.getLock(name), Path.of(words[5]), number);
            case "pairs":
                return Measures.pairs(client, number);
            case "throughput":
                return Measures.throughput(client, (int) number, Long.parseLong(words[5]));
            default:
                return count(words[2], name, (int) number);
        }
    }

    private RLock named(String kind, String name) {
        switch (kind) {
            case "read":
                return client.getReadWriteLock(name).readLock();
            case "write":
                return client.getReadWriteLock(name).writeLock();
            default:
                return client.getLock(name);
        }
    }

    /** With a lease in ms, or with the watchdog. */
    private String lock(String kind, String name, long lease) {
        if (kind.equals("fence")) {
            RFencedLock lock = client.getFencedLock(name);
            return String.valueOf(lock.lockAndGetToken());
        }
        RLock lock = named(kind, name);
        if (lease > 0) {
            lock.lock(lease, TimeUnit.MILLISECONDS);
        } else {
            lock.lock();
        }
        return "ok";
    }

    private String count(String command, String name, int number) throws Exception {
        switch (command) {
            case "set-permits":
                return String.valueOf(client.getSemaphore(name).trySetPermits(number));
            case "acquire":
                client.getSemaphore(name).acquire(number);
                return "ok";
            case "try-acquire":
                return String.valueOf(client.getSemaphore(name).tryAcquire(number));
            case "release":
                client.getSemaphore(name).release(number);
                return "ok";
            case "available":
                return String.valueOf(client.getSemaphore(name).availablePermits());
            case "set-count":
                return String.valueOf(client.getCountDownLatch(name).trySetCount(number));
            case "count-down":
                client.getCountDownLatch(name).countDown();
                return "ok";
            case "await":
                return String.valueOf(client.getCountDownLatch(name).await(number, TimeUnit.MILLISECONDS));
            default:
                throw new IllegalArgumentException("there is no command " + command);
        }
    }

    /** Reads and writes a number in a file, again and again. Some of the sections are entered twice. */
    private static String fight(RLock lock, Path counter, long sections) throws Exception {
        for (long section = 0; section < sections; section++) {
            lock.lock();
            boolean isTwice = section % 8 == 0;
            if (isTwice) {
                lock.lock();
            }
            long seen = Long.parseLong(Files.readString(counter).trim());
            Files.writeString(counter, String.valueOf(seen + 1));
            if (isTwice) {
                lock.unlock();
            }
            lock.unlock();
        }
        return "ok";
    }
}
