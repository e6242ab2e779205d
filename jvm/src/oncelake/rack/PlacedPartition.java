package oncelake.rack;

import java.util.List;
import java.util.Map;
import org.apache.spark.sql.kafka010.KafkaBatchInputPartition;
import org.apache.spark.sql.kafka010.KafkaOffsetRange;

/** A partition of Spark's Kafka source that names several places, of which Spark's own names one. */
public final class PlacedPartition extends KafkaBatchInputPartition {
  private static final long serialVersionUID = 1;

  private final String[] locations;

  /**
   * Made by Spark's own parts.
   *
   * @param range what is read
   * @param settings of the executor's client
   * @param pollTimeoutMs as Spark's own
   * @param failOnDataLoss as Spark's own
   * @param includeHeaders as Spark's own
   * @param locations where it is best read, the best first
   */
  public PlacedPartition(
      KafkaOffsetRange range,
      Map<String, Object> settings,
      long pollTimeoutMs,
      boolean failOnDataLoss,
      boolean includeHeaders,
      List<String> locations) {
    super(range, settings, pollTimeoutMs, failOnDataLoss, includeHeaders);
    this.locations = locations.toArray(String[]::new);
  }

  @Override
  public String[] preferredLocations() {
    return locations.clone();
  }
}
