package tenure.interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * A process that does with Redisson's client what its standard input says.
 *
 * <p>Arguments: the server's address, "single" or "cluster", and "default" or "string" for the codec. A line of input is
 * "id thread command arguments", with spaces between them and names percent-encoded; each thread, known by any text,
 * performs its commands in order. A line of output is "id result", or "id error text".
 */
public final class Agent {
    private final RedissonClient client;
    private final Map<String, ExecutorService> threads = new HashMap<>();

    private Agent(RedissonClient client) {
        this.client = client;
    }

    public static void main(String[] arguments) throws Exception {
        Config config = new Config();
        if (arguments[1].equals("cluster")) {
            config.useClusterServers().addNodeAddress(arguments[0]).setMasterConnectionPoolSize(64);
        } else {
            config.useSingleServer().setAddress(arguments[0]).setConnectionPoolSize(64);
        }
        if (arguments[2].equals("string")) {
            config.setCodec(StringCodec.INSTANCE);
        }
        Agent agent = new Agent(Redisson.create(config));
        say("ready");
        agent.serve();
        // Locks that are held end with their leases, as after a crash.
        Runtime.getRuntime().halt(0);
    }

    private void serve() throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            threads.computeIfAbsent(words[1], it -> Executors.newSingleThreadExecutor())
                .execute(() -> say(words[0] + " " + answer(words)));
        }
    }

    private String answer(String[] words) {
        try {
            return new Commands(client).perform(words);
        } catch (Throwable error) {
            return "error " + String.valueOf(error).replace('\n', ' ');
        }
    }

    private static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
