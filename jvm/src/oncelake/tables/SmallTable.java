package oncelake.tables;

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
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.plans.logical.LocalRelation;
import org.apache.spark.sql.catalyst.types.DataTypeUtils$;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.Metadata;
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
 * Reads a Delta table of a few rows here and now, by Delta's and Spark's own readers. Which files it has is
 * what Delta makes of the log, and not the list in the checksum beside a commit: that is made from the one
 * before, so a file that a restored backup left there would be believed for ever.
 */
public final class SmallTable {
  private static final long MOST_LISTED = 1_000;
  private static final int MOST_FILES = 64;
  private static final long MOST_BYTES = 4L << 20;
  // They become one task, whose message Spark limits to 128 MiB.
  private static final long MOST_BYTES_OF_ROWS = 16L << 20;

  private SmallTable() {}

  /**
   * Reads the files whose partition column has a value, or all files of a table without partitions.
   *
   * @param column the column, a string
   * @param at the version; the newest if it is negative
   * @return a frame of rows that are in memory; null where Spark has to read the table, since it is not
   *     small, not at that version, or not to be read: Spark says why
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
      List<AddFile> files = files(snapshot, column, value);
      return files == null ? null : rows(spark, log, snapshot, files);
    } catch (Exception | LinkageError error) {
      // Scala's methods throw more than they declare, an interruption among it.
      if (error instanceof InterruptedException) {
        Thread.currentThread().interrupt();
      }
      return null;
    }
  }

  /** The files of a partition, by Delta's own replay of the log; null if they are not few. */
  private static List<AddFile> files(Snapshot snapshot, String column, String value) {
    boolean isPartitioned = !snapshot.metadata().getPartitionColumns().isEmpty();
    if (isPartitioned && !isPartitionedBy(column, snapshot) || snapshot.numOfFiles() > MOST_LISTED) {
      return null;
    }
    List<AddFile> files = new ArrayList<>();
    for (AddFile file : snapshot.allFiles().collectAsList()) {
      if (!isPartitioned || value.equals(file.partitionValues().apply(column))) {
        files.add(file);
      }
    }
    return isLittle(files) ? files : null;
  }

  private static boolean isPartitionedBy(String column, Snapshot snapshot) {
    StructType partitions = snapshot.metadata().partitionSchema();
    return partitions.length() == 1
        && partitions.apply(0).name().equals(column)
        && partitions.apply(0).dataType().equals(DataTypes.StringType);
  }

  private static boolean isLittle(List<AddFile> files) {
    long bytes = 0;
    for (AddFile file : files) {
      if (file.deletionVector() != null || file.numPhysicalRecords().isEmpty()) {
        return false;
      }
      bytes += file.size();
    }
    return files.size() <= MOST_FILES && bytes <= MOST_BYTES;
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
    long bytes = 0;
    for (AddFile file : files) {
      Iterator<InternalRow> read = reader.apply(whole(file, snapshot, partitions));
      int before = rows.size();
      while (read.hasNext()) {
        UnsafeRow row = (UnsafeRow) read.next();
        bytes += row.getSizeInBytes();
        if (bytes > MOST_BYTES_OF_ROWS) {
          return null;
        }
        rows.add(row.copy());
      }
      if (rows.size() - before != (Long) file.numPhysicalRecords().get()) {
        return null;
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
