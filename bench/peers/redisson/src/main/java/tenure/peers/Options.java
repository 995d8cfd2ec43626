package tenure.peers;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;

/** What to do. */
record Options(String url, String work, int callers, double seconds, long sectionNanos, long pauseNanos, String prefix,
        long count, boolean isFair) {

    static Map<String, String> parse(String[] arguments) {
        Map<String, String> values = new HashMap<>();
        for (int i = 0; i + 1 < arguments.length; i += 2) {
            values.put(arguments[i], arguments[i + 1]);
        }
        return values;
    }

    static Options of(Map<String, String> values) {
        return new Options(values.get("--url"), values.getOrDefault("--work", "pairs"),
                Integer.parseInt(values.getOrDefault("--callers", "1")),
                Double.parseDouble(values.getOrDefault("--seconds", "1")),
                (long) (Double.parseDouble(values.getOrDefault("--section-ms", "0")) * 1e6),
                (long) (Double.parseDouble(values.getOrDefault("--pause-ms", "0")) * 1e6),
                values.getOrDefault("--name", "peers"), Long.parseLong(values.getOrDefault("--count", "1000")),
                values.getOrDefault("--lock", "plain").equals("fair"));
    }

    /** The same callers on names of their own, for a short time. */
    Options warming(double warmSeconds) {
        String name = prefix + "/warm/" + ProcessHandle.current().pid();
        return new Options(url, "pairs", callers, warmSeconds, 0, 0, name, count, isFair);
    }

    /** The name that the caller locks next; null if it is done. */
    String name(int caller, AtomicLong next, long end) {
        if (work.equals("names")) {
            long number = next.getAndIncrement();
            return number < count ? prefix + "/" + number : null;
        }
        if (System.nanoTime() >= end) {
            return null;
        }
        return work.equals("shared") ? prefix : prefix + "/" + caller;
    }
}
