package oncelake.rack;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The source `rack-aware-kafka`: {@link AnyTimestampKafkaProvider}, whose ranges are read by executors in a rack
 * that holds a replica. All options are those of `kafka`, and so are checkpoints; one is added,
 * `rackRefreshSeconds`: how often to ask where replicas are.
 */
public final class RackAwareKafkaProvider implements TableProvider, DataSourceRegister {
  private static final Logger LOG = LoggerFactory.getLogger(RackAwareKafkaProvider.class);
  private static final String REFRESH = "rackRefreshSeconds";

  private final TableProvider kafka = new AnyTimestampKafkaProvider();

  @Override
  public String shortName() {
    return "rack-aware-kafka";
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return kafka.inferSchema(options);
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> options) {
    CaseInsensitiveStringMap given = new CaseInsensitiveStringMap(options);
    everySeconds(given);
    Table table = kafka.getTable(schema, partitioning, options);
    try {
      SparkInternals spark = SparkInternals.find();
      return (Table) Delegate.of(table, scans(spark, given));
    } catch (IllegalStateException missing) {
      LOG.warn("Placement by rack is left to Spark: {}", missing.getMessage());
      return table;
    }
  }

  private static Delegate.Change scans(SparkInternals spark, CaseInsensitiveStringMap options) {
    return (method, arguments, answer) ->
        switch (method) {
          case "newScanBuilder", "build" -> Delegate.of(answer, scans(spark, options));
          case "toBatch" -> Delegate.of(answer, plansOnce(new Placement(spark, topology(options))));
          case "toMicroBatchStream" -> {
            Placement placement = new Placement(spark, topology(options));
            yield Delegate.of(answer, plans(placement));
          }
          default -> answer;
        };
  }

  private static Delegate.Change plans(Placement placement) {
    return (method, arguments, answer) ->
        switch (method) {
          case "planInputPartitions" -> placement.place((InputPartition[]) answer);
          case "latestOffset", "deserializeOffset" -> {
            placement.start();
            yield answer;
          }
          case "metrics" -> {
            Map<String, String> told = new HashMap<>();
            ((Map<?, ?>) answer).forEach((name, value) -> told.put((String) name, (String) value));
            told.putAll(placement.metrics());
            yield told;
          }
          case "stop" -> {
            placement.close();
            yield answer;
          }
          default -> answer;
        };
  }

  private static Delegate.Change plansOnce(Placement placement) {
    return (method, arguments, answer) -> {
      if (!method.equals("planInputPartitions")) {
        return answer;
      }
      try {
        return placement.place((InputPartition[]) answer);
      } finally {
        placement.close();
      }
    };
  }

  private static Topology topology(CaseInsensitiveStringMap options) {
    Set<String> named =
        Arrays.stream(options.getOrDefault("subscribe", "").split(","))
            .map(String::strip)
            .filter(name -> !name.isEmpty())
            .collect(Collectors.toSet());
    Map<String, String> given = options.asCaseSensitiveMap();
    // Found anew for each client: a token is good for some time only.
    return new Topology(() -> Admin.create(SparkInternals.driverSettings(given)), named, everySeconds(options));
  }

  private static long everySeconds(CaseInsensitiveStringMap options) {
    String given = options.getOrDefault(REFRESH, "30");
    if (!given.matches("[1-9][0-9]{0,5}")) {
      throw new IllegalArgumentException(
          REFRESH + ": expected a number of seconds, 1 or more, got '" + given + "'");
    }
    return Long.parseLong(given);
  }
}
