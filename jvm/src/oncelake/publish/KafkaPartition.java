package oncelake.publish;

import org.apache.kafka.common.utils.Utils;
import org.apache.spark.sql.api.java.UDF2;

/** The partition to which Kafka's own producers send a key. */
public final class KafkaPartition implements UDF2<byte[], Integer, Integer> {
  private static final long serialVersionUID = 1L;

  /**
   * As Kafka's {@code BuiltInPartitioner.partitionForKey} has it.
   *
   * @param key the key's bytes; null stays null
   * @param partitions how many the topic has
   */
  @Override
  public Integer call(byte[] key, Integer partitions) {
    return key == null ? null : Utils.toPositive(Utils.murmur2(key)) % partitions;
  }
}
