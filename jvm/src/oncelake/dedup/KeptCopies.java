package oncelake.dedup;

import java.util.Iterator;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.types.StructType;

/**
 * The copies of each key that the batch layer keeps, found in one pass over sorted rows.
 *
 * <p>Spark's windows make each key a group of its own, which costs more than to decode its records.
 */
public final class KeptCopies implements FlatMapFunction<Iterator<InternalRow>, InternalRow> {
  private static final long serialVersionUID = 1L;

  private final StructType columns;
  private final Terms terms;

  private KeptCopies(StructType columns, Terms terms) {
    this.columns = columns;
    this.terms = terms;
  }

  /**
   * Returns the copies that are kept, and those of which days that are not known decide whether they are.
   *
   * @param rows all copies of a key in one partition; the rows of a partition sorted by key, then by day, then
   *     by the order of the terms, the best copy first
   * @param terms by what copies are kept
   * @return the rows of these copies, in the order of the rows
   */
  public static Dataset<Row> of(Dataset<Row> rows, Terms terms) {
    SparkSession spark = rows.sparkSession();
    // With adaptive execution this runs the stages before the last one, which need the session's settings.
    RDD<InternalRow> sorted =
        SQLExecution.withSQLConfPropagated(spark, () -> rows.queryExecution().toRdd());
    KeptCopies kept = new KeptCopies(rows.schema(), terms);
    RDD<InternalRow> found = sorted.toJavaRDD().mapPartitions(kept).rdd();
    return spark.internalCreateDataFrame(found, rows.schema(), false);
  }

  @Override
  public Iterator<InternalRow> call(Iterator<InternalRow> rows) {
    return new KeptRows(rows, new Choice(columns, terms));
  }
}
