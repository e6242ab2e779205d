package oncelake.rack;

import com.codahale.metrics.Gauge;
import java.io.IOException;
import java.io.Serializable;
import java.lang.management.ManagementFactory;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.MalformedObjectNameException;
import javax.management.ObjectName;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * Counts the bytes that each executor's consumers get from each broker, by the consumers' own metric
 * `incoming-byte-total` of a node, and brings the sums to the driver. To Spark's own metrics each executor tells
 * them as `bytesFromBrokerN`.
 *
 * <p>What a consumer gets in the second before it is closed is not seen. Consumers that share a `client.id`
 * share their metric, and are counted as one.
 */
public final class RackPlugin implements SparkPlugin {
  private static final String METRICS = "kafka.consumer:type=consumer-node-metrics,client-id=*,node-id=*";
  private static final String VARIABLE = "spark.oncelake.rack.variable";
  private static final String ATTRIBUTE = "SPARK_EXECUTOR_ATTRIBUTE_RACK";
  private static final long EVERY_MS = 1_000;
  private static final Map<String, Received> RECEIVED = new ConcurrentHashMap<>();

  /**
   * What executors have received since they started, as last heard of. Those that have gone are kept.
   *
   * @return by executor the bytes from each broker, by the brokers' ids
   */
  public static Map<String, Map<Integer, Long>> received() {
    Map<String, Map<Integer, Long>> found = new TreeMap<>();
    RECEIVED.forEach(
        (executor, each) -> {
          if (!each.bytes().isEmpty()) {
            found.put(executor, each.bytes());
          }
        });
    return found;
  }

  /** The racks that executors have found in their own environment, empty where there was none. */
  public static Map<String, String> racks() {
    Map<String, String> found = new TreeMap<>();
    RECEIVED.forEach((executor, each) -> found.put(executor, each.rack()));
    return found;
  }

  @Override
  public DriverPlugin driverPlugin() {
    return new DriverPlugin() {
      @Override
      public Map<String, String> init(SparkContext spark, PluginContext context) {
        RECEIVED.clear();
        return Map.of(VARIABLE, spark.conf().get(VARIABLE, "NODE_RACK"));
      }

      @Override
      public Object receive(Object message) {
        Received received = (Received) message;
        RECEIVED.put(received.executor(), received);
        return null;
      }
    };
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return new Counter();
  }

  /**
   * What an executor has received since it started.
   *
   * @param executor which
   * @param rack where it says it is
   * @param bytes by the ids of brokers
   */
  record Received(String executor, String rack, TreeMap<Integer, Long> bytes) implements Serializable {}

  private static final class Counter implements ExecutorPlugin {
    private final MBeanServer beans = ManagementFactory.getPlatformMBeanServer();
    private final Map<ObjectName, Long> seen = new HashMap<>();
    private final TreeMap<Integer, Long> bytes = new TreeMap<>();
    private ScheduledExecutorService counting;
    private PluginContext context;
    private String rack = "";
    private boolean isToTell;

    @Override
    public void init(PluginContext given, Map<String, String> extra) {
      context = given;
      rack = RackProvider.resolved(System.getenv(extra.getOrDefault(VARIABLE, "")));
      if (rack.isEmpty()) {
        rack = RackProvider.resolved(System.getenv(ATTRIBUTE));
      }
      // On YARN the driver does not hear of it otherwise.
      isToTell = !rack.isEmpty();
      // Spark takes the metrics of a plugin that has some now, and then those that come.
      Gauge<Long> all = this::fromAll;
      context.metricRegistry().register("bytesFromAllBrokers", all);
      counting =
          Executors.newSingleThreadScheduledExecutor(
              work -> {
                Thread thread = new Thread(work, "oncelake-rack-bytes");
                thread.setDaemon(true);
                return thread;
              });
      counting.scheduleWithFixedDelay(this::count, EVERY_MS, EVERY_MS, TimeUnit.MILLISECONDS);
    }

    @Override
    public void shutdown() {
      counting.shutdownNow();
      count();
    }

    private synchronized void count() {
      Set<ObjectName> nodes;
      try {
        nodes = beans.queryNames(new ObjectName(METRICS), null);
      } catch (MalformedObjectNameException never) {
        throw new IllegalStateException(never);
      }
      seen.keySet().retainAll(nodes);
      nodes.forEach(this::add);
      if (isToTell) {
        try {
          context.send(new Received(context.executorID(), rack, new TreeMap<>(bytes)));
          isToTell = false;
        } catch (IOException | RuntimeException away) {
          // It is told with the next count.
          return;
        }
      }
    }

    private synchronized long fromAll() {
      return bytes.values().stream().mapToLong(Long::longValue).sum();
    }

    private synchronized long from(int broker) {
      return bytes.getOrDefault(broker, 0L);
    }

    private void add(ObjectName node) {
      try {
        int broker = Integer.parseInt(node.getKeyProperty("node-id").replace("node-", ""));
        long now = ((Number) beans.getAttribute(node, "incoming-byte-total")).longValue();
        long before = seen.getOrDefault(node, 0L);
        seen.put(node, now);
        // A consumer that was closed and made again begins at nothing.
        long more = now < before ? now : now - before;
        // Connections for finding brokers and coordinators have numbers that no broker has.
        if (more > 0 && broker >= 0 && broker < Integer.MAX_VALUE / 2) {
          if (bytes.merge(broker, more, Long::sum) == more) {
            Gauge<Long> gauge = () -> from(broker);
            context.metricRegistry().register("bytesFromBroker" + broker, gauge);
          }
          isToTell = true;
        }
      } catch (JMException | RuntimeException closed) {
        // Its consumer went between the list and the look.
        return;
      }
    }
  }
}
