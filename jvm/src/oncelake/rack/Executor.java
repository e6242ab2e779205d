package oncelake.rack;

/**
 * A running executor.
 *
 * @param id Spark's own name for it
 * @param host where it runs
 * @param rack its rack or zone; empty if it has told none
 * @param cores how many tasks it runs at a time
 */
public record Executor(String id, String host, String rack, int cores) {
  public Executor {
    cores = Math.max(cores, 1);
  }
}
