package oncelake.rack;

import java.util.Collection;
import java.util.List;
import java.util.stream.Stream;

/** Where Spark is to run the task that reads a range, the best place first. */
public final class Locations {
  private Locations() {}

  /**
   * The executor that a range was given to; then, should it have no room in time, any of its rack. Spark
   * waits for an executor first, then for a host that is named, and then for none.
   *
   * @param given the executor
   * @param running all executors
   * @return locations as Spark writes them: the executor, then the other hosts of its rack
   */
  public static List<String> of(Executor given, Collection<Executor> running) {
    Stream<String> hosts =
        running.stream()
            .filter(each -> !given.rack().isEmpty() && each.rack().equals(given.rack()))
            .map(Executor::host)
            .filter(host -> !host.equals(given.host()))
            .distinct()
            .sorted();
    return Stream.concat(Stream.of("executor_" + given.host() + "_" + given.id()), hosts).toList();
  }
}
