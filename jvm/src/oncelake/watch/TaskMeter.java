package oncelake.watch;

import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.apache.spark.SparkEnv;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.scheduler.AccumulableInfo;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorMetricsUpdate;
import org.apache.spark.scheduler.SparkListenerJobStart;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import scala.collection.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Adds up what the tasks of each micro-batch took, by the id of its query and its number.
 *
 * <p>Spark tells of tasks in a thread of its own, so the last of a micro-batch may be told of after it is done.
 * What its queue has no room for, it drops: of a task the begin, the end or both may never be told. So a task
 * runs as long as its executor tells of it.
 */
public final class TaskMeter extends SparkListener {
  private static final String QUERY = "sql.streaming.queryId";
  private static final String BATCH = "streaming.sql.batchId";
  private static final int MOST_STAGES = 10_000;
  private static final int MOST_BATCHES = 200;
  private static final int MOST_TASKS = 10_000;
  // The one counter of a running task that grows whatever the task does.
  private static final String GC_TIME = "internal.metrics.jvmGCTime";
  private static final String HEARTBEATS = "spark.executor.heartbeatInterval";
  // After this, too, Spark takes an executor for lost.
  private static final long UNTOLD_MS = 120_000;
  private static final int MISSED_HEARTBEATS = 6;

  private final Map<Integer, String> batchOfStage = new Newest<>(MOST_STAGES);
  private final Map<String, long[]> sums = new Newest<>(MOST_BATCHES);
  private final Map<Long, Long> countedByTask = new Newest<>(MOST_TASKS);
  private final Map<Long, Long> toldAt = new Newest<>(MOST_TASKS);
  private final Map<Long, Boolean> over = new Newest<>(MOST_TASKS);
  private final LongSupplier clock;
  private final long untoldMs;
  private long begun;
  private long counted;
  private long ended;

  /** Measures tasks of the application that runs. */
  public TaskMeter() {
    this(() -> TimeUnit.NANOSECONDS.toMillis(System.nanoTime()), untoldMs());
  }

  /**
   * Measures tasks by another clock.
   *
   * @param clock tells milliseconds, and never goes back
   * @param untoldMs for how long a task that nobody tells of counts as one that runs
   */
  public TaskMeter(LongSupplier clock, long untoldMs) {
    this.clock = clock;
    this.untoldMs = untoldMs;
  }

  private static long untoldMs() {
    long each = SparkEnv.get().conf().getTimeAsMs(HEARTBEATS, "10s");
    return Math.max(UNTOLD_MS, MISSED_HEARTBEATS * each);
  }

  @Override
  public synchronized void onJobStart(SparkListenerJobStart job) {
    Properties properties = job.properties();
    String query = properties == null ? null : properties.getProperty(QUERY);
    String batch = properties == null ? null : properties.getProperty(BATCH);
    if (query == null || batch == null) {
      return;
    }
    for (Object stage : CollectionConverters.asJava(job.stageIds())) {
      batchOfStage.put((Integer) stage, key(query, batch));
    }
  }

  @Override
  public synchronized void onTaskStart(SparkListenerTaskStart task) {
    begun++;
    tell(task.taskInfo().taskId());
  }

  /** Executors tell every ten seconds what running tasks have counted: records, bytes, rows of each operator. */
  @Override
  public synchronized void onExecutorMetricsUpdate(SparkListenerExecutorMetricsUpdate update) {
    for (var task : CollectionConverters.asJava(update.accumUpdates())) {
      tell((Long) task._1());
      Long number = sum(task._4());
      if (!number.equals(countedByTask.put((Long) task._1(), number))) {
        counted++;
      }
    }
  }

  private void tell(Long task) {
    // A heartbeat may be told of after the end.
    if (!over.containsKey(task)) {
      toldAt.put(task, clock.getAsLong());
    }
  }

  private static long sum(Seq<AccumulableInfo> counters) {
    long sum = 0;
    for (AccumulableInfo each : CollectionConverters.asJava(counters)) {
      boolean isGcTime = each.name().isDefined() && each.name().get().equals(GC_TIME);
      if (!isGcTime && each.update().isDefined() && each.update().get() instanceof Number number) {
        sum += number.longValue();
      }
    }
    return sum;
  }

  @Override
  public synchronized void onTaskEnd(SparkListenerTaskEnd task) {
    ended++;
    countedByTask.remove(task.taskInfo().taskId());
    toldAt.remove(task.taskInfo().taskId());
    over.put(task.taskInfo().taskId(), true);
    String batch = batchOfStage.get(task.stageId());
    if (batch == null) {
      return;
    }
    long[] sum = sums.computeIfAbsent(batch, none -> new long[7]);
    sum[0]++;
    sum[1] += task.taskInfo().successful() ? 0 : 1;
    sum[5] = Math.max(sum[5], task.taskInfo().duration());
    TaskMetrics metrics = task.taskMetrics();
    if (metrics != null) {
      sum[2] += metrics.executorRunTime();
      sum[3] += metrics.jvmGCTime();
      sum[4] += metrics.diskBytesSpilled();
      sum[6] += metrics.shuffleWriteMetrics().recordsWritten() > 0 ? metrics.executorRunTime() : 0;
    }
  }

  /**
   * What the tasks of a micro-batch took.
   *
   * @param query the id of its query
   * @param batch its number
   * @return the tasks that have ended, how many of them failed, milliseconds that executors ran them,
   *     milliseconds of garbage collection, bytes spilled to disk, milliseconds of the longest, and milliseconds
   *     that executors ran those that handed rows on to others; null if no task is known
   */
  public synchronized long[] of(String query, long batch) {
    long[] sum = sums.get(key(query, Long.toString(batch)));
    return sum == null ? null : sum.clone();
  }

  /** How many tasks have ended, of whatever job: while it grows, something moves. */
  public synchronized long ended() {
    return ended;
  }

  /**
   * Whether tasks move.
   *
   * @return a number that grows whenever a task of whatever job begins, ends, or has counted something; and how
   *     many tasks run: those whose begin or heartbeat is not too long ago, and whose end was not told
   */
  public synchronized long[] signs() {
    long since = clock.getAsLong() - untoldMs;
    toldAt.values().removeIf(at -> at < since);
    return new long[] {begun + counted + ended, toldAt.size()};
  }

  private static String key(String query, String batch) {
    return query + " " + batch;
  }

  private static final class Newest<K, V> extends LinkedHashMap<K, V> {
    private static final long serialVersionUID = 1L;
    private final int most;

    Newest(int most) {
      this.most = most;
    }

    @Override
    protected boolean removeEldestEntry(Map.Entry<K, V> eldest) {
      return size() > most;
    }
  }
}
