package oncelake.rack;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.connector.read.InputPartition;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Where the ranges of one stream are read, batch by batch, and how that went.
 *
 * <p>Whatever goes wrong here, the batch is planned as Spark planned it.
 */
final class Placement {
  private static final Logger LOG = LoggerFactory.getLogger(Placement.class);

  private final SparkInternals spark;
  private final Topology topology;
  private final Map<String, Long> counts = new TreeMap<>();
  private Map<String, String> before = Map.of();
  private String reason = "";
  private double skew = 1;

  Placement(SparkInternals spark, Topology topology) {
    this.spark = spark;
    this.topology = topology;
    for (String name : List.of("placed", "left", "local", "remote", "moved")) {
      counts.put(name, 0L);
    }
  }

  /** A batch's partitions, each with the executor that should read it. */
  synchronized InputPartition[] place(InputPartition[] planned) {
    if (planned.length == 0) {
      return planned;
    }
    try {
      InputPartition[] placed = placed(planned);
      count("placed", 1);
      return placed;
    } catch (RuntimeException | LinkageError why) {
      if (!String.valueOf(why.getMessage()).equals(reason)) {
        reason = String.valueOf(why.getMessage());
        LOG.warn("Placement by rack is left to Spark: {}", reason);
      }
      count("left", 1);
      return planned;
    }
  }

  /**
   * What happened since the stream began, for its progress.
   *
   * @return `rackBatchesPlaced`, `rackBatchesLeft` to Spark, `rackRecordsLocal` and `rackRecordsRemote` as
   *     planned, `rackRangesMoved` from one executor to another, `rackSkew` of the last batch (the largest
   *     load of an executor, by core, against the mean), and `rackReason`: why it was left, or is remote
   */
  synchronized Map<String, String> metrics() {
    Map<String, String> told = new TreeMap<>();
    told.put("rackBatchesPlaced", counts.get("placed").toString());
    told.put("rackBatchesLeft", counts.get("left").toString());
    told.put("rackRecordsLocal", counts.get("local").toString());
    told.put("rackRecordsRemote", counts.get("remote").toString());
    told.put("rackRangesMoved", counts.get("moved").toString());
    told.put("rackSkew", String.format(Locale.ROOT, "%.3f", skew));
    told.put("rackReason", reason);
    return told;
  }

  /** Begins to ask where replicas are; to be called once the stream runs, which will then also be stopped. */
  void start() {
    topology.start();
  }

  void close() {
    topology.close();
  }

  private InputPartition[] placed(InputPartition[] planned) {
    List<Executor> executors = SparkInternals.executors();
    Set<String> racks = executors.stream().map(Executor::rack).collect(Collectors.toSet());
    racks.remove("");
    if (executors.isEmpty()) {
      throw new IllegalStateException("there are no executors but the driver");
    }
    if (racks.isEmpty()) {
      throw new IllegalStateException(
          "no executor has told its rack: set SPARK_EXECUTOR_ATTRIBUTE_RACK where executors start");
    }
    List<SparkInternals.Read> reads = new ArrayList<>();
    for (InputPartition each : planned) {
      Optional<SparkInternals.Read> read = spark.read(each);
      reads.add(read.orElseThrow(() -> new IllegalStateException("not Kafka's: " + each.getClass())));
    }
    Set<TopicPartition> partitions =
        reads.stream().map(SparkInternals.Read::partition).collect(Collectors.toSet());
    Map<TopicPartition, Set<String>> replicas = topology.of(partitions);
    if (replicas.isEmpty()) {
      throw new IllegalStateException("racks of replicas are not known: " + topology.failure());
    }
    List<Range> ranges = named(reads, replicas);
    Map<String, Executor> assigned = Assignment.assign(ranges, executors, before);
    note(ranges, assigned, executors, racks);
    InputPartition[] placed = new InputPartition[planned.length];
    for (int n = 0; n < planned.length; n++) {
      placed[n] = spark.at(planned[n], Locations.of(assigned.get(ranges.get(n).name()), executors));
    }
    Map<String, String> now = new HashMap<>(before);
    assigned.forEach((name, executor) -> now.put(name, executor.id()));
    before = now;
    return placed;
  }

  /** Spark divides a partition where `minPartitions` asks for it: its parts are counted. */
  private static List<Range> named(
      List<SparkInternals.Read> reads, Map<TopicPartition, Set<String>> replicas) {
    Map<TopicPartition, Integer> parts = new HashMap<>();
    List<Range> ranges = new ArrayList<>();
    for (SparkInternals.Read read : reads) {
      int part = parts.merge(read.partition(), 1, Integer::sum);
      Set<String> racks = replicas.getOrDefault(read.partition(), Set.of());
      // In Spark's real-time mode ranges have no end.
      long records = read.until() == Long.MAX_VALUE ? 1 : read.until() - read.from();
      ranges.add(new Range(read.partition() + "/" + part, records, racks));
    }
    return ranges;
  }

  private void note(
      List<Range> ranges, Map<String, Executor> assigned, List<Executor> executors, Set<String> racks) {
    Map<String, Double> loads = new HashMap<>();
    Set<String> lacking = new TreeSet<>();
    double records = 0;
    for (Range range : ranges) {
      Executor executor = assigned.get(range.name());
      String last = before.get(range.name());
      if (last != null && !last.equals(executor.id())) {
        count("moved", 1);
      }
      count(range.racks().contains(executor.rack()) ? "local" : "remote", range.records());
      if (Assignment.near(range, racks).isEmpty()) {
        lacking.addAll(range.racks().isEmpty() ? Set.of("no rack") : range.racks());
      }
      loads.merge(executor.id(), (double) range.records() / executor.cores(), Double::sum);
      records += range.records();
    }
    int cores = executors.stream().mapToInt(Executor::cores).sum();
    skew = loads.values().stream().max(Double::compare).orElse(0.0) / (records / cores);
    String remote =
        lacking.isEmpty() ? "" : "no executor runs where these replicas are: " + String.join(", ", lacking);
    if (remote.isEmpty() && !topology.failure().isEmpty()) {
      remote = "where replicas are is known from before only: " + topology.failure();
    }
    if (!remote.isEmpty() && !remote.equals(reason)) {
      LOG.warn("Some partitions are read from another rack: {}", remote);
    }
    reason = remote;
  }

  private void count(String name, long more) {
    counts.merge(name, more, Long::sum);
  }
}
