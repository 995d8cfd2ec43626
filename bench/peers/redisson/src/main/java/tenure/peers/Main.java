package tenure.peers;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

import io.netty.channel.epoll.Epoll;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.TransportMode;

/**
 * Locks with Redisson: `RLock` or, with `--lock fair`, `RFairLock`. One caller is a thread; many use the asynchronous calls, which are
 * faster than as many threads.
 */
public final class Main {
    private static final int CONNECTIONS = 8;

    private final RedissonClient client;

    private Main(RedissonClient client) {
        this.client = client;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> values = Options.parse(arguments);
        Options options = Options.of(values);
        Main main = new Main(connect(options.url()));
        double warmSeconds = Double.parseDouble(values.getOrDefault("--warm-seconds", "0.2"));
        main.run(options.warming(warmSeconds));
        System.out.println("ready");
        System.in.read();
        long begin = Sections.now();
        List<Sections> sections = main.run(options);
        double seconds = (Sections.now() - begin) / 1e9;
        System.out.println(Sections.json(version(), seconds, sections));
        System.out.flush();
        // Its threads would run for another two seconds.
        Runtime.getRuntime().halt(0);
    }

    private static RedissonClient connect(String url) {
        Config config = new Config();
        config.setTransportMode(Epoll.isAvailable() ? TransportMode.EPOLL : TransportMode.NIO);
        // Two for each core, and few connections that are full: the defaults, 32 and 64, are for larger machines.
        config.setNettyThreads(0);
        config.useSingleServer().setAddress(url).setConnectionPoolSize(CONNECTIONS)
                .setConnectionMinimumIdleSize(CONNECTIONS);
        return Redisson.create(config);
    }

    private static String version() {
        String version = Redisson.class.getPackage().getImplementationVersion();
        return version == null ? "unknown" : version;
    }

    private List<Sections> run(Options options) throws Exception {
        long end = Sections.now() + (long) (options.seconds() * 1e9);
        AtomicLong next = new AtomicLong();
        if (options.callers() == 1) {
            return List.of(inThread(options, next, end));
        }
        List<Sections> all = new ArrayList<>();
        List<CompletableFuture<Void>> ends = new ArrayList<>();
        for (int caller = 0; caller < options.callers(); caller++) {
            Sections sections = new Sections();
            CompletableFuture<Void> done = new CompletableFuture<>();
            all.add(sections);
            ends.add(done);
            step(options, caller, next, end, sections, done);
        }
        for (CompletableFuture<Void> done : ends) {
            done.get();
        }
        return all;
    }

    private RLock lock(Options options, String name) {
        return options.isFair() ? client.getFairLock(name) : client.getLock(name);
    }

    private Sections inThread(Options options, AtomicLong next, long end) {
        Sections sections = new Sections();
        for (String name = options.name(0, next, end); name != null; name = options.name(0, next, end)) {
            long asked = Sections.now();
            RLock lock = lock(options, name);
            lock.lock();
            long acquired = Sections.now();
            pass(options.sectionNanos());
            long releasing = Sections.now();
            lock.unlock();
            sections.add(asked, acquired, releasing, Sections.now());
            pass(options.pauseNanos());
        }
        return sections;
    }

    /** One section of a caller, after which the next one begins. The caller's number stands for a thread. */
    private void step(Options options, int caller, AtomicLong next, long end, Sections sections,
            CompletableFuture<Void> done) {
        String name = options.name(caller, next, end);
        if (name == null) {
            done.complete(null);
            return;
        }
        long asked = Sections.now();
        RLock lock = lock(options, name);
        lock.lockAsync(caller).thenCompose(nothing -> {
            long acquired = Sections.now();
            return lock.unlockAsync(caller).thenAccept(released -> {
                sections.add(asked, acquired, acquired, Sections.now());
            });
        }).whenComplete((nothing, error) -> {
            if (error != null) {
                done.completeExceptionally(error);
            } else {
                step(options, caller, next, end, sections, done);
            }
        });
    }

    private static void pass(long nanos) {
        long end = System.nanoTime() + nanos;
        for (long left = nanos; left > 0; left = end - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }
}
