package oncelake.state;

import java.util.function.LongConsumer;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomSumMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator$;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.Iterator$;
import scala.collection.immutable.Map;
import scala.collection.immutable.Set;

/**
 * The state of one micro-batch. Keys that the micro-batch before has seen expire are absent, whether they
 * are stored or not; `iterator`, by which the operator evicts, is empty unless a scan is due.
 */
final class DeduplicationStore implements StateStore {
  /** How many partitions a micro-batch has scanned. */
  static final StateStoreCustomMetric SCANS =
      new StateStoreCustomSumMetric("oncelakeStateScans", "partitions whose state was scanned for expired keys");

  private final StateStore stored;
  private final long expiredUntil;
  private final boolean isScanDue;
  private final LongConsumer onScan;
  private boolean hasScanned;

  /**
   * Changes nothing yet.
   *
   * @param stored what is stored
   * @param expiredUntil in microseconds: the watermark of the micro-batch before. A key whose expiry is not
   *     after it, the operator would have evicted then
   * @param isScanDue whether to let the operator evict
   * @param onScan gets the version that is committed with a scan
   */
  DeduplicationStore(StateStore stored, long expiredUntil, boolean isScanDue, LongConsumer onScan) {
    this.stored = stored;
    this.expiredUntil = expiredUntil;
    this.isScanDue = isScanDue;
    this.onScan = onScan;
  }

  @Override
  public UnsafeRow get(UnsafeRow key, String family) {
    UnsafeRow expiry = stored.get(key, family);
    return expiry == null || expiry.getLong(0) <= expiredUntil ? null : expiry;
  }

  @Override
  public boolean keyExists(UnsafeRow key, String family) {
    return get(key, family) != null;
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> iterator(String family) {
    if (isScanDue) {
      hasScanned = true;
      return stored.iterator(family);
    }
    Iterator<UnsafeRowPair> nothing = Iterator$.MODULE$.empty();
    return new StateStoreIterator<>(nothing, StateStoreIterator$.MODULE$.$lessinit$greater$default$2());
  }

  @Override
  public long commit() {
    long version = stored.commit();
    if (hasScanned) {
      onScan.accept(version);
    }
    return version;
  }

  @Override
  public StateStoreMetrics metrics() {
    StateStoreMetrics found = stored.metrics();
    // Scala's Long, which Java sees as an Object.
    Object scans = hasScanned ? 1L : 0L;
    return new StateStoreMetrics(
        found.numKeys(), found.memoryUsedBytes(), withScans(found.customMetrics(), scans), found.instanceMetrics());
  }

  @SuppressWarnings("unchecked")
  private static Map<StateStoreCustomMetric, Object> withScans(
      Map<StateStoreCustomMetric, Object> metrics, Object scans) {
    return (Map<StateStoreCustomMetric, Object>) metrics.updated(SCANS, scans);
  }

  @Override
  public StateStoreId id() {
    return stored.id();
  }

  @Override
  public long version() {
    return stored.version();
  }

  @Override
  public void put(UnsafeRow key, UnsafeRow value, String family) {
    stored.put(key, value, family);
  }

  @Override
  public void remove(UnsafeRow key, String family) {
    stored.remove(key, family);
  }

  @Override
  public void abort() {
    stored.abort();
  }

  @Override
  public void release() {
    stored.release();
  }

  @Override
  public boolean hasCommitted() {
    return stored.hasCommitted();
  }

  @Override
  public StateStoreCheckpointInfo getStateStoreCheckpointInfo() {
    return stored.getStateStoreCheckpointInfo();
  }

  @Override
  public Set<String> allColumnFamilyNames() {
    return stored.allColumnFamilyNames();
  }

  @Override
  public void createColFamilyIfAbsent(
      String family,
      StructType key,
      StructType value,
      KeyStateEncoderSpec encoder,
      boolean hasManyValues,
      boolean isInternal) {
    stored.createColFamilyIfAbsent(family, key, value, encoder, hasManyValues, isInternal);
  }

  @Override
  public boolean removeColFamilyIfExists(String family) {
    return stored.removeColFamilyIfExists(family);
  }

  @Override
  public void putList(UnsafeRow key, UnsafeRow[] values, String family) {
    throw unasked("putList");
  }

  @Override
  public void merge(UnsafeRow key, UnsafeRow value, String family) {
    throw unasked("merge");
  }

  @Override
  public void mergeList(UnsafeRow key, UnsafeRow[] values, String family) {
    throw unasked("mergeList");
  }

  @Override
  public Iterator<UnsafeRow> valuesIterator(UnsafeRow key, String family) {
    throw unasked("valuesIterator");
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScan(UnsafeRow prefix, String family) {
    throw unasked("prefixScan");
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScanWithMultiValues(UnsafeRow prefix, String family) {
    throw unasked("prefixScanWithMultiValues");
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> iteratorWithMultiValues(String family) {
    throw unasked("iteratorWithMultiValues");
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> rangeScan(
      Option<UnsafeRow> from, Option<UnsafeRow> until, String family) {
    throw unasked("rangeScan");
  }

  @Override
  public void deleteRange(UnsafeRow from, UnsafeRow until, String family) {
    throw unasked("deleteRange");
  }

  /** What the operator of Spark 4.2 never asks: an answer with expired keys in it might be a wrong one. */
  private static UnsupportedOperationException unasked(String method) {
    return new UnsupportedOperationException(
        method + ": the state of dropDuplicatesWithinWatermark was not expected to be asked for it by this"
            + " Spark; use Spark's own state store, see docs/runbook.md, 'The state store'");
  }
}
