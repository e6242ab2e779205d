package oncelake.decode;

import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.util.AccumulatorV2;

/** How many records are broken, by reason: the sum over the tasks that count. */
final class ReasonCounts extends AccumulatorV2<String, Map<String, Long>> {
  private static final long serialVersionUID = 1L;
  private final TreeMap<String, Long> counts = new TreeMap<>();

  @Override
  public synchronized boolean isZero() {
    return counts.isEmpty();
  }

  @Override
  public synchronized ReasonCounts copy() {
    ReasonCounts copied = new ReasonCounts();
    copied.counts.putAll(counts);
    return copied;
  }

  @Override
  public synchronized void reset() {
    counts.clear();
  }

  @Override
  public synchronized void add(String reason) {
    counts.merge(reason, 1L, Long::sum);
  }

  @Override
  public synchronized void merge(AccumulatorV2<String, Map<String, Long>> other) {
    other.value().forEach((reason, count) -> counts.merge(reason, count, Long::sum));
  }

  @Override
  public synchronized Map<String, Long> value() {
    return new TreeMap<>(counts);
  }
}
