package oncelake.state;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.collection.immutable.Seq$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's RocksDB state, which `dropDuplicatesWithinWatermark` does not scan in every micro-batch. It is
 * scanned in the first micro-batch after it was loaded, and then whenever the watermark has moved by
 * {@value #SLACK_MS} since the last scan. In between, keys that have expired are still stored, but the
 * operator does not find them. So it keeps and drops the same rows as with Spark's own provider.
 *
 * <p>Files in the checkpoint are those of Spark's own provider. State of any other operator is left to it.
 */
public final class DeduplicationStateProvider extends RocksDBStateStoreProvider {
  /**
   * How far the watermark moves from one scan to the next, in milliseconds; without it, or with 0, each
   * micro-batch scans. Spark hands executors the settings that begin like this.
   */
  static final String SLACK_MS = "spark.sql.streaming.stateStore.oncelake.evictionSlackMs";

  private static final String EXPIRY = "expiresAtMicros";

  private boolean isOfDeduplication;
  private long slackMs;
  private Watermarks watermarks;
  private volatile Scan last = Scan.NONE;

  @Override
  public void init(
      StateStoreId id,
      StructType key,
      StructType value,
      KeyStateEncoderSpec encoder,
      boolean hasColumnFamilies,
      StateStoreConf conf,
      Configuration hadoop,
      boolean hasManyValues,
      Option<StateSchemaProvider> schemas) {
    super.init(id, key, value, encoder, hasColumnFamilies, conf, hadoop, hasManyValues, schemas);
    isOfDeduplication = !hasColumnFamilies && isExpiry(value);
    slackMs = Long.parseLong(CollectionConverters.asJava(conf.sqlConfs()).getOrDefault(SLACK_MS, "0"));
    watermarks = new Watermarks(id, hadoop);
  }

  @Override
  public StateStore getStore(long version, Option<String> id, boolean withSnapshot, boolean asEmpty) {
    if (!isOfDeduplication || asEmpty) {
      return super.getStore(version, id, withSnapshot, asEmpty);
    }
    // The micro-batch that is done on a version has the same number.
    long watermark = watermarks.of(version);
    long before = version == 0 ? Long.MIN_VALUE : Math.multiplyExact(watermarks.of(version - 1), 1000L);
    boolean isDue = last.isNotOf(version) || slackMs == 0 || watermark - last.watermark() >= slackMs;
    StateStore store = super.getStore(version, id, withSnapshot, false);
    return new DeduplicationStore(store, before, isDue, made -> last = new Scan(made, watermark));
  }

  @Override
  public Seq<StateStoreCustomMetric> supportedCustomMetrics() {
    List<StateStoreCustomMetric> metrics =
        new ArrayList<>(CollectionConverters.asJava(super.supportedCustomMetrics()));
    metrics.add(DeduplicationStore.SCANS);
    return Seq$.MODULE$.from(CollectionConverters.asScala(metrics));
  }

  private static boolean isExpiry(StructType value) {
    StructField[] fields = value.fields();
    return fields.length == 1
        && fields[0].name().equals(EXPIRY)
        && fields[0].dataType().equals(DataTypes.LongType);
  }

  /**
   * The last scan that was committed here.
   *
   * @param version what it made
   * @param watermark of its micro-batch
   */
  private record Scan(long version, long watermark) {
    static final Scan NONE = new Scan(Long.MAX_VALUE, 0);

    /** Whether a version does not have it: the scan was made by a task whose result was not taken. */
    boolean isNotOf(long other) {
      return other < version;
    }
  }
}
