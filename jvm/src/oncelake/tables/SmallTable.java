package oncelake.tables;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.paths.SparkPath$;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.types.DataTypeUtils$;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.DeltaHistoryManager$;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.VersionChecksum;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.CommitInfo;
import org.apache.spark.sql.delta.actions.Metadata;
import org.apache.spark.sql.delta.util.FileNames$;
import org.apache.spark.sql.execution.datasources.FileFormat$;
import org.apache.spark.sql.execution.datasources.PartitionedFile;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function1;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Reads a Delta table of a few rows here and now, by Delta's and Spark's own readers, without a plan and a
 * job. Which files it has is said by the checksum that Delta writes beside each commit; it is believed only
 * if it names the transaction of that commit.
 *
 * <p>Source: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#version-checksum-file
 */
public final class SmallTable {
  private static final int MOST_FILES = 64;
  private static final long MOST_BYTES = 4L << 20;
  private static final long MOST_ROWS = 50_000;

  private SmallTable() {}

  /**
   * Reads the files whose partition column has a value, or all files of a table without partitions.
   *
   * @param column the column, a string
   * @param at the version; the newest if it is negative
   * @return a frame of rows that are in memory; null where Spark has to read the table, since it is not
   *     small, not at that version, without a checksum that fits, or not to be read: Spark says why
   */
  public static Dataset<Row> read(
      org.apache.spark.sql.SparkSession session, String path, String column, String value, long at) {
    SparkSession spark = (SparkSession) session;
    try {
      DeltaLog log = DeltaLog.forTable(spark, path);
      Snapshot snapshot =
          log.update(log.update$default$1(), log.update$default$2(), log.update$default$3());
      if (at >= 0 && snapshot.version() != at) {
        return null;
      }
      List<AddFile> files = files(log, snapshot, column, value);
      return files == null ? null : rows(spark, log, snapshot, files);
    } catch (IOException | RuntimeException error) {
      return null;
    }
  }

  private static List<AddFile> files(DeltaLog log, Snapshot snapshot, String column, String value)
      throws IOException {
    boolean isPartitioned = !snapshot.metadata().getPartitionColumns().isEmpty();
    Option<VersionChecksum> checksum = snapshot.checksumOpt();
    if (isPartitioned && !isPartitionedBy(column, snapshot)
        || checksum.isEmpty()
        || checksum.get().allFiles().isEmpty()
        || !isOf(checksum.get(), log, snapshot.version())) {
      return null;
    }
    List<AddFile> files = new ArrayList<>();
    for (AddFile file : CollectionConverters.asJava(checksum.get().allFiles().get())) {
      if (!isPartitioned || value.equals(file.partitionValues().apply(column))) {
        files.add(file);
      }
    }
    return isLittle(files) ? files : null;
  }

  private static boolean isLittle(List<AddFile> files) {
    long bytes = 0;
    long rows = 0;
    for (AddFile file : files) {
      if (file.deletionVector() != null || file.numPhysicalRecords().isEmpty()) {
        return false;
      }
      bytes += file.size();
      rows += (Long) file.numPhysicalRecords().get();
    }
    return files.size() <= MOST_FILES && bytes <= MOST_BYTES && rows <= MOST_ROWS;
  }

  private static boolean isPartitionedBy(String column, Snapshot snapshot) {
    StructType partitions = snapshot.metadata().partitionSchema();
    return partitions.length() == 1
        && partitions.apply(0).name().equals(column)
        && partitions.apply(0).dataType().equals(DataTypes.StringType);
  }

  /** Whether a checksum was made with the commit of a version. Files of a log may have been put back. */
  private static boolean isOf(VersionChecksum checksum, DeltaLog log, long version) throws IOException {
    Option<CommitInfo> commit =
        DeltaHistoryManager$.MODULE$.getCommitInfoOpt(
            log.store(),
            FileNames$.MODULE$.unsafeDeltaFile(log.logPath(), version),
            log.newDeltaHadoopConf());
    return commit.isDefined()
        && commit.get().txnId().isDefined()
        && commit.get().txnId().equals(checksum.txnId());
  }

  private static Dataset<Row> rows(
      SparkSession spark, DeltaLog log, Snapshot snapshot, List<AddFile> files) {
    Metadata metadata = snapshot.metadata();
    StructType data = metadata.dataSchema();
    StructType partitions = metadata.partitionSchema();
    Configuration hadoop = log.newDeltaHadoopConf();
    Function1<PartitionedFile, Iterator<InternalRow>> reader =
        log.fileFormat(snapshot.protocol(), metadata)
            .buildReaderWithPartitionValues(
                spark, data, partitions, data, none(), noBatches(), hadoop);
    List<InternalRow> rows = new ArrayList<>();
    for (AddFile file : files) {
      Iterator<InternalRow> read = reader.apply(whole(file, snapshot, partitions));
      while (read.hasNext()) {
        rows.add(read.next().copy());
      }
    }
    StructType read = new StructType();
    for (StructType part : List.of(data, partitions)) {
      for (int i = 0; i < part.length(); i++) {
        read = read.add(part.apply(i));
      }
    }
    LocalRelation relation = new LocalRelation(attributes(read), seq(rows), false, Option.empty());
    return Dataset$.MODULE$.ofRows(spark, relation).selectExpr(quoted(metadata.schema()));
  }

  private static PartitionedFile whole(AddFile file, Snapshot snapshot, StructType partitions) {
    Object[] values = new Object[partitions.length()];
    for (int i = 0; i < values.length; i++) {
      values[i] = UTF8String.fromString(file.partitionValues().apply(partitions.apply(i).name()));
    }
    return new PartitionedFile(
        new GenericInternalRow(values),
        SparkPath$.MODULE$.fromPath(file.absolutePath(snapshot)),
        0,
        file.size(),
        new String[0],
        file.modificationTime(),
        file.size(),
        scala.collection.immutable.Map$.MODULE$.empty());
  }

  private static String[] quoted(StructType schema) {
    String[] names = schema.fieldNames();
    for (int i = 0; i < names.length; i++) {
      names[i] = "`" + names[i].replace("`", "``") + "`";
    }
    return names;
  }

  private static scala.collection.immutable.Map<String, String> noBatches() {
    return scala.collection.immutable.Map.from(
        CollectionConverters.asScala(Map.of(FileFormat$.MODULE$.OPTION_RETURNING_BATCH(), "false")));
  }

  @SuppressWarnings("unchecked")
  private static Seq<Attribute> attributes(StructType schema) {
    return (Seq<Attribute>) (Seq<?>) DataTypeUtils$.MODULE$.toAttributes(schema);
  }

  private static <T> Seq<T> none() {
    return seq(List.of());
  }

  private static <T> Seq<T> seq(List<T> items) {
    return CollectionConverters.asScala(items).toSeq();
  }
}
