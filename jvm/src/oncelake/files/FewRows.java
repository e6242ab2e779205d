package oncelake.files;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.TaskAttemptContext;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Repartition;
import org.apache.spark.sql.catalyst.util.CaseInsensitiveMap;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.OptimisticTransaction;
import org.apache.spark.sql.delta.actions.Action;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.FileAction;
import org.apache.spark.sql.delta.actions.Metadata;
import org.apache.spark.sql.delta.actions.Protocol;
import org.apache.spark.sql.delta.constraints.Constraints;
import org.apache.spark.sql.delta.schema.SchemaUtils;
import org.apache.spark.sql.delta.stats.DeltaJobStatisticsTracker;
import org.apache.spark.sql.execution.datasources.OutputWriter;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.execution.datasources.WriteTaskStats;
import org.apache.spark.sql.execution.datasources.WriteTaskStatsTracker;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.List$;
import scala.collection.immutable.Map$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Rows that the driver has, written to files of a table by the driver.
 *
 * <p>A query would cost more than the rest of a small commit: planning and a job.
 */
public final class FewRows {
  private static final int MOST = 10_000;
  // What a writer has to do for any other feature is not done here.
  private static final Set<String> FEATURES =
      Set.of("appendOnly", "invariants", "checkConstraints", "v2Checkpoint", "vacuumProtocolCheck");
  // Other properties may ask for files of another kind, for statistics, or for more to be done.
  private static final Set<String> PROPERTIES =
      Set.of(
          "delta.appendOnly",
          "delta.checkpointInterval",
          "delta.deletedFileRetentionDuration",
          "delta.enableExpiredLogCleanup",
          "delta.logRetentionDuration");
  private static final String STATISTICS = "delta.dataSkippingStatsColumns";
  private static final String OWN_PROPERTIES = "oncelake.";
  private static final ObjectMapper JSON = new ObjectMapper();

  private FewRows() {}

  /**
   * Writes rows to files of the table of a transaction, one for each partition, as {@link
   * OptimisticTransaction#writeFiles} does.
   *
   * @param spark the session
   * @param transaction the transaction
   * @param rows the rows, in the columns of the table
   * @param withStatistics whether to give a file the statistics that Delta would; of a table with partitions
   *     Delta has to write them itself
   * @return the actions that add the files; null if they are not rows of the driver, or the table asks for more
   * @throws IOException if a file cannot be written
   */
  public static Seq<FileAction> write(
      SparkSession spark, OptimisticTransaction transaction, Dataset<Row> rows, boolean withStatistics)
      throws IOException {
    Metadata metadata = transaction.metadata();
    LocalRelation local = local(rows);
    Set<String> further = withStatistics ? Set.of(STATISTICS) : Set.of();
    if (local == null
        || !isPlain(transaction.protocol(), metadata, spark, further)
        || !fits(local, metadata)) {
      return null;
    }
    StructType columns = metadata.schema();
    List<String> partitioned = CollectionConverters.asJava(metadata.partitionColumns());
    if (withStatistics && !partitioned.isEmpty()) {
      return null;
    }
    Map<List<String>, List<InternalRow>> parts = new LinkedHashMap<>();
    List<InternalRow> all = CollectionConverters.asJava(local.data());
    for (InternalRow row : all) {
      List<String> values = new ArrayList<>();
      for (String column : partitioned) {
        int ordinal = columns.fieldIndex(column);
        if (row.isNullAt(ordinal) || row.getString(ordinal).isEmpty()) {
          return null;
        }
        values.add(row.getString(ordinal));
      }
      parts.computeIfAbsent(values, key -> new ArrayList<>()).add(row);
    }
    Statistics statistics = withStatistics ? new Statistics(transaction, local, rows) : null;
    Writer writer = new Writer(spark, transaction, statistics);
    List<AddFile> added = new ArrayList<>();
    for (Map.Entry<List<String>, List<InternalRow>> part : parts.entrySet()) {
      added.add(writer.write(part.getKey(), part.getValue()));
    }
    Map<String, SQLMetric> metrics =
        Map.of(
            "numFiles", metric(spark, added.size()),
            "numOutputRows", metric(spark, all.size()),
            "numOutputBytes", metric(spark, added.stream().mapToLong(AddFile::size).sum()));
    transaction.registerSQLMetrics(spark, Map$.MODULE$.from(CollectionConverters.asScala(metrics)));
    return List$.MODULE$.from(CollectionConverters.<FileAction>asScala(new ArrayList<FileAction>(added)));
  }

  /** Close what was written to, after a failure: it is the one to tell of, whatever comes of closing. */
  public static void closeAfter(Throwable failed, Runnable close) {
    try {
      close.run();
    } catch (Throwable second) {
      failed.addSuppressed(second);
    }
  }

  private static SQLMetric metric(SparkSession spark, long value) {
    SQLMetric metric = SQLMetrics.createMetric(spark.sparkContext(), "");
    metric.set(value);
    return metric;
  }

  private static LocalRelation local(Dataset<Row> rows) {
    LogicalPlan plan = rows.queryExecution().optimizedPlan();
    while (plan instanceof Repartition) {
      plan = ((Repartition) plan).child();
    }
    if (!(plan instanceof LocalRelation)) {
      return null;
    }
    LocalRelation local = (LocalRelation) plan;
    return CollectionConverters.asJava(local.data()).size() <= MOST ? local : null;
  }

  private static boolean isPlain(
      Protocol protocol, Metadata metadata, SparkSession spark, Set<String> further) {
    boolean knows =
        protocol.writerFeatures().isDefined()
            ? FEATURES.containsAll(CollectionConverters.asJava(protocol.writerFeatures().get()))
            : protocol.minWriterVersion() <= 2;
    boolean isUsual =
        CollectionConverters.asJava(metadata.configuration().keySet()).stream()
            .allMatch(
                name ->
                    PROPERTIES.contains(name) || further.contains(name) || name.startsWith(OWN_PROPERTIES));
    return knows && isUsual && CollectionConverters.asJava(Constraints.getAll(metadata, spark)).isEmpty();
  }

  private static boolean fits(LocalRelation local, Metadata metadata) {
    StructType columns = metadata.schema();
    boolean isSame = described(local.schema()).equals(described(columns));
    return isSame
        && CollectionConverters.asJava(metadata.partitionColumns()).stream()
            .allMatch(name -> columns.apply(name).dataType().equals(DataTypes.StringType));
  }

  /** A schema without what people say of its columns, and whether they may be null. */
  private static JsonNode described(StructType schema) {
    try {
      JsonNode json = JSON.readTree(SchemaUtils.typeAsNullable(schema).json());
      for (JsonNode metadata : json.findValues("metadata")) {
        if (metadata instanceof ObjectNode) {
          ((ObjectNode) metadata).remove("comment");
        }
      }
      return json;
    } catch (JsonProcessingException error) {
      throw new IllegalStateException(error);
    }
  }

  /** Writes files of a table. */
  private static final class Writer {
    private final Path table;
    private final List<String> partitioned;
    private final StructType written;
    private final int[] ordinals;
    private final OutputWriterFactory factory;
    private final TaskAttemptContext context;
    private final Statistics statistics;

    Writer(SparkSession spark, OptimisticTransaction transaction, Statistics statistics) throws IOException {
      DeltaLog log = transaction.deltaLog();
      Metadata metadata = transaction.metadata();
      this.statistics = statistics;
      StructType columns = (StructType) SchemaUtils.typeAsNullable(metadata.schema());
      table = log.dataPath();
      partitioned = CollectionConverters.asJava(metadata.partitionColumns());
      // As Delta does by default: partition columns are written as well, behind all others.
      List<StructField> fields = new ArrayList<>(List.of(columns.fields()));
      fields.sort((one, other) -> Boolean.compare(partitioned.contains(one.name()), partitioned.contains(other.name())));
      written = new StructType(fields.toArray(new StructField[0]));
      ordinals = fields.stream().mapToInt(field -> columns.fieldIndex(field.name())).toArray();
      Job job = Job.getInstance(log.newDeltaHadoopConf());
      CaseInsensitiveMap<String> options =
          new CaseInsensitiveMap<>(Map$.MODULE$.<String, String>empty());
      factory = log.fileFormat(transaction.protocol(), metadata).prepareWrite(spark, job, options, written);
      context = new TaskAttemptContextImpl(job.getConfiguration(), new TaskAttemptID());
    }

    AddFile write(List<String> values, List<InternalRow> rows) throws IOException {
      Path folder = table;
      for (int number = 0; number < partitioned.size(); number++) {
        String name = ExternalCatalogUtils.escapePathName(partitioned.get(number));
        folder = new Path(folder, name + "=" + ExternalCatalogUtils.escapePathName(values.get(number)));
      }
      Path file = new Path(folder, "part-00000-" + UUID.randomUUID() + factory.getFileExtension(context));
      OutputWriter out = factory.newInstance(file.toString(), written, context);
      try {
        for (InternalRow row : rows) {
          out.write(reordered(row));
        }
      } catch (Throwable failed) {
        closeAfter(failed, out::close);
        throw failed;
      }
      out.close();
      return added(file, values, rows);
    }

    private InternalRow reordered(InternalRow row) {
      Object[] values = new Object[ordinals.length];
      for (int number = 0; number < values.length; number++) {
        values[number] = row.get(ordinals[number], written.fields()[number].dataType());
      }
      return new GenericInternalRow(values);
    }

    private AddFile added(Path file, List<String> values, List<InternalRow> rows) throws IOException {
      FileStatus status = file.getFileSystem(context.getConfiguration()).getFileStatus(file);
      ObjectNode add = JSON.createObjectNode();
      add.put("path", table.toUri().relativize(file.toUri()).toString());
      ObjectNode of = add.putObject("partitionValues");
      for (int number = 0; number < partitioned.size(); number++) {
        of.put(partitioned.get(number), values.get(number));
      }
      add.put("size", status.getLen());
      add.put("modificationTime", status.getModificationTime());
      add.put("dataChange", true);
      String stats = statistics == null ? null : statistics.of(file, rows);
      if (stats == null) {
        stats = JSON.createObjectNode().put("numRecords", rows.size()).toString();
      }
      add.put("stats", stats);
      return (AddFile) Action.fromJson(JSON.createObjectNode().set("add", add).toString());
    }
  }

  /** Delta's own statistics of a file. */
  private static final class Statistics {
    private final DeltaJobStatisticsTracker tracker;

    Statistics(OptimisticTransaction transaction, LocalRelation local, Dataset<Row> rows) {
      Seq<Attribute> columns = List$.MODULE$.from(local.output());
      tracker =
          transaction
              .getOptionalStatsTrackerAndStatsCollection(
                  columns, transaction.deltaLog().dataPath(), new StructType(), rows)
              ._1()
              .getOrElse(() -> null);
    }

    /** The statistics as Delta keeps them; null if it is told to have none. */
    String of(Path file, List<InternalRow> rows) {
      if (tracker == null) {
        return null;
      }
      WriteTaskStatsTracker task = tracker.newTaskInstance();
      task.newFile(file.toString());
      for (InternalRow row : rows) {
        task.newRow(file.toString(), row);
      }
      List<WriteTaskStats> found = List.of(task.getFinalStats(0));
      tracker.processStats(List$.MODULE$.from(CollectionConverters.asScala(found)), 0);
      return CollectionConverters.asJava(tracker.recordedStats()).get(file.getName());
    }
  }
}
