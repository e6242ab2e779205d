package oncelake.rack;

import java.util.Map;
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
 * The source `any-timestamp-kafka`: Spark's own source `kafka`, which also reads records whose timestamp Spark cannot
 * hold ({@link TimestampBounds}). Options and checkpoints are those of `kafka`.
 *
 * <p>Spark refuses interceptors among the options of its source, since they can change what is read. So they are
 * given to the executors' clients where a batch is planned.
 */
public final class AnyTimestampKafkaProvider implements TableProvider, DataSourceRegister {
  private static final Logger LOG = LoggerFactory.getLogger(AnyTimestampKafkaProvider.class);

  private TableProvider kafka;

  @Override
  public String shortName() {
    return "any-timestamp-kafka";
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return kafka().inferSchema(options);
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> options) {
    Table table = kafka().getTable(schema, partitioning, options);
    try {
      return (Table) Delegate.of(table, scans(SparkInternals.find()));
    } catch (IllegalStateException missing) {
      LOG.warn("A record whose timestamp Spark cannot hold would stop the reader: {}", missing.getMessage());
      return table;
    }
  }

  /** Spark's own source; not before it is asked for, as Spark makes one of us for whatever source it looks for. */
  private synchronized TableProvider kafka() {
    if (kafka == null) {
      kafka = SparkInternals.kafkaSource();
    }
    return kafka;
  }

  private static Delegate.Change scans(SparkInternals spark) {
    return (method, arguments, answer) ->
        switch (method) {
          case "newScanBuilder", "build", "toBatch", "toMicroBatchStream" -> Delegate.of(answer, scans(spark));
          case "planInputPartitions" -> bounded(spark, (InputPartition[]) answer);
          default -> answer;
        };
  }

  private static InputPartition[] bounded(SparkInternals spark, InputPartition[] planned) {
    InputPartition[] bounded = planned.clone();
    for (int n = 0; n < planned.length; n++) {
      bounded[n] = spark.intercepted(planned[n], TimestampBounds.class);
    }
    return bounded;
  }
}
