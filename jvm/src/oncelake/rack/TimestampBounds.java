package oncelake.rack;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerInterceptor;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * Gives Spark no timestamp that it cannot hold. Kafka's are milliseconds, up to 2^63 - 1; Spark multiplies them by
 * a thousand, and fails where that is too large: whoever sends nanoseconds would stop every reader of the topic.
 * Such a record gets the nearest timestamp that Spark holds. All else of it stays, and so does every other record.
 */
public final class TimestampBounds implements ConsumerInterceptor<byte[], byte[]> {
  /** The last millisecond of which Spark holds the microseconds; that of the other side is its negative. */
  static final long LAST_MS = Long.MAX_VALUE / 1000;

  @Override
  public ConsumerRecords<byte[], byte[]> onConsume(ConsumerRecords<byte[], byte[]> polled) {
    Map<TopicPartition, List<ConsumerRecord<byte[], byte[]>>> bounded = new HashMap<>();
    boolean isChanged = false;
    for (TopicPartition partition : polled.partitions()) {
      List<ConsumerRecord<byte[], byte[]>> records = polled.records(partition);
      if (!records.stream().allMatch(each -> each.timestamp() == bounded(each.timestamp()))) {
        records = new ArrayList<>(records);
        records.replaceAll(TimestampBounds::bounded);
        isChanged = true;
      }
      bounded.put(partition, records);
    }
    return isChanged ? new ConsumerRecords<>(bounded) : polled;
  }

  @Override
  public void onCommit(Map<TopicPartition, OffsetAndMetadata> offsets) {}

  @Override
  public void close() {}

  @Override
  public void configure(Map<String, ?> settings) {}

  private static long bounded(long timestamp) {
    return Math.max(-LAST_MS, Math.min(timestamp, LAST_MS));
  }

  private static ConsumerRecord<byte[], byte[]> bounded(ConsumerRecord<byte[], byte[]> record) {
    return new ConsumerRecord<>(
        record.topic(),
        record.partition(),
        record.offset(),
        bounded(record.timestamp()),
        record.timestampType(),
        record.serializedKeySize(),
        record.serializedValueSize(),
        record.key(),
        record.value(),
        record.headers(),
        record.leaderEpoch());
  }
}
