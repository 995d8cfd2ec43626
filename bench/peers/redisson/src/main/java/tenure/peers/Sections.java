package tenure.peers;

import java.util.Arrays;
import java.util.List;

/** The sections of one caller: four numbers each. */
final class Sections {
    /** More sections are thinned out: the line stays short enough to be read at once. */
    private static final long MOST = 50_000;

    private long[] times = new long[4096];
    private int used;

    /** Nanoseconds of the clock that all processes of a machine share, as HotSpot has it on Linux. */
    static long now() {
        return System.nanoTime();
    }

    void add(long asked, long acquired, long releasing, long released) {
        if (used == times.length) {
            times = Arrays.copyOf(times, 2 * used);
        }
        times[used] = asked;
        times[used + 1] = acquired - asked;
        times[used + 2] = releasing - acquired;
        times[used + 3] = released - releasing;
        used += 4;
    }

    static String json(String version, double seconds, List<Sections> all) {
        long count = all.stream().mapToLong(it -> it.used / 4).sum();
        long every = Math.max(1, (count + MOST - 1) / MOST);
        StringBuilder line = new StringBuilder();
        line.append("{\"version\":\"").append(version).append("\",\"sections\":").append(count)
                .append(",\"seconds\":").append(seconds).append(",\"every\":").append(every).append(",\"times\":[");
        long index = 0;
        String comma = "";
        for (Sections one : all) {
            for (int i = 0; i < one.used; i += 4) {
                if (index++ % every == 0) {
                    line.append(comma).append('[').append(one.times[i]).append(',').append(one.times[i + 1])
                            .append(',').append(one.times[i + 2]).append(',').append(one.times[i + 3]).append(']');
                    comma = ",";
                }
            }
        }
        return line.append("]}").toString();
    }
}
