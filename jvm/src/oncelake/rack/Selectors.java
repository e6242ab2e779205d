package oncelake.rack;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.common.KafkaFuture;

/**
 * Which brokers send consumers to followers, as each has told last: one that does not answer, or may not be
 * asked any more, is as it was.
 */
public final class Selectors {
  private final Map<Integer, Boolean> hasSelector = new HashMap<>();

  /**
   * Takes in what brokers answer.
   *
   * @param answers the configuration of each, by its id
   * @param withinMs how long to wait for each that has not answered yet
   * @throws InterruptedException the thread was told to end meanwhile
   */
  public synchronized void take(Map<Integer, KafkaFuture<Config>> answers, long withinMs)
      throws InterruptedException {
    for (Map.Entry<Integer, KafkaFuture<Config>> each : answers.entrySet()) {
      try {
        ConfigEntry selector = each.getValue().get(withinMs, TimeUnit.MILLISECONDS).get("replica.selector.class");
        if (selector != null) {
          hasSelector.put(each.getKey(), selector.value() != null && !selector.value().isEmpty());
        }
      } catch (ExecutionException | TimeoutException unknown) {
        // What it told before holds.
      }
    }
  }

  /** Whether a broker is known to serve consumers of its own partitions only. */
  public synchronized boolean isDeaf(int broker) {
    return Boolean.FALSE.equals(hasSelector.get(broker));
  }
}
