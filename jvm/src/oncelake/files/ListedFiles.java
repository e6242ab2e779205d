package oncelake.files;

import java.util.List;
import java.util.Optional;
import org.apache.hadoop.fs.FileStatus;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.InterpretedPredicate;
import org.apache.spark.sql.catalyst.expressions.Predicate;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.files.TahoeBatchFileIndex;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation$;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.List$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * Files of a version of a table, chosen by partition without a query.
 *
 * <p>Delta chooses them by a query of its own, which takes longer to be planned than a small table to be read.
 */
public final class ListedFiles extends TahoeBatchFileIndex {
  private ListedFiles(SparkSession spark, DeltaLog log, Snapshot snapshot, Seq<AddFile> files) {
    super(spark, "batch", files, log, log.dataPath(), snapshot, false);
  }

  /**
   * Reads files of a version of a table, as {@link DeltaLog#createDataFrame} does.
   *
   * @param spark the session
   * @param log the log of the table
   * @param snapshot the version
   * @param files some of its files
   * @return their rows
   */
  public static Dataset<Row> read(
      SparkSession spark, DeltaLog log, Snapshot snapshot, List<AddFile> files) {
    HadoopFsRelation relation =
        log.buildHadoopFsRelationWithFileIndex(
            snapshot,
            new ListedFiles(spark, log, snapshot, sequence(files)),
            Option.empty(),
            log.buildHadoopFsRelationWithFileIndex$default$4());
    return Dataset.ofRows(spark, LogicalRelation$.MODULE$.apply(relation, false));
  }

  /**
   * Tells whether each commit of a part of a log has a byte.
   *
   * @param commits the commits
   * @return false if one is empty, which somebody may repair later
   */
  public static boolean haveBytes(Seq<FileStatus> commits) {
    return CollectionConverters.asJava(commits).stream().allMatch(commit -> commit.getLen() > 0);
  }

  @Override
  public Seq<AddFile> matchingFiles(Seq<Expression> partitionFilters, Seq<Expression> dataFilters) {
    StructType columns = partitionSchema();
    Optional<Expression> condition =
        CollectionConverters.asJava(partitionFilters).stream()
            .map(filter -> filter.transform(new PartitionOrdinals(columns)))
            .reduce(And::new);
    if (condition.isEmpty()) {
      return addFiles();
    }
    InterpretedPredicate predicate = Predicate.createInterpreted(condition.get());
    predicate.initialize(0);
    List<AddFile> matching =
        CollectionConverters.asJava(addFiles()).stream()
            .filter(file -> predicate.eval(getPartitionValuesRow(file.partitionValues())))
            .toList();
    return sequence(matching);
  }

  private static Seq<AddFile> sequence(List<AddFile> files) {
    return List$.MODULE$.from(CollectionConverters.asScala(files));
  }

  /** Replaces each partition column by a reference to its ordinal, as Spark does for its own tables. */
  private static final class PartitionOrdinals extends AbstractPartialFunction<Expression, Expression> {
    private final StructType columns;

    PartitionOrdinals(StructType columns) {
      this.columns = columns;
    }

    @Override
    public boolean isDefinedAt(Expression expression) {
      return expression instanceof Attribute;
    }

    @Override
    public Expression apply(Expression expression) {
      String name = ((Attribute) expression).name();
      int ordinal = 0;
      for (StructField column : columns.fields()) {
        if (column.name().equalsIgnoreCase(name)) {
          return new BoundReference(ordinal, column.dataType(), true);
        }
        ordinal++;
      }
      throw new IllegalArgumentException(name + ": no partition column; expected one of " + columns.simpleString());
    }
  }
}
