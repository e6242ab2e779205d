package oncelake.rack;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.common.config.ConfigData;
import org.apache.kafka.common.config.provider.ConfigProvider;
import org.apache.spark.SparkEnv;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Resolves `${PROVIDER:VARIABLE}` in a Kafka client's settings where the client is built: on an executor.
 *
 * <p>Kafka's own provider leaves the text as it is where the variable is not set, and the client then sends
 * it as its rack. This one gives the empty text, which is no rack: the client reads from leaders.
 */
public final class RackProvider implements ConfigProvider {
  private static final Logger LOG = LoggerFactory.getLogger(RackProvider.class);
  private static final AtomicBoolean TOLD = new AtomicBoolean();

  @Override
  public ConfigData get(String path) {
    return new ConfigData(Map.of());
  }

  @Override
  public ConfigData get(String path, Set<String> variables) {
    Map<String, String> found = new HashMap<>();
    variables.forEach(name -> found.put(name, rack(name)));
    return new ConfigData(found);
  }

  @Override
  public void configure(Map<String, ?> settings) {}

  @Override
  public void close() {}

  private static String rack(String variable) {
    String rack = resolved(System.getenv(variable));
    if (rack.isEmpty() && isExecutor() && TOLD.compareAndSet(false, true)) {
      LOG.warn("{} is not set on this executor: it reads from leaders, in whatever rack they are", variable);
    }
    return rack;
  }

  /** A rack as it was told; empty if it was not, or is what somebody forgot to resolve. */
  static String resolved(String told) {
    String rack = told == null ? "" : told.strip();
    return rack.contains("${") || rack.contains("$(") ? "" : rack;
  }

  private static boolean isExecutor() {
    SparkEnv env = SparkEnv.get();
    return env != null && !env.executorId().equals("driver");
  }
}
