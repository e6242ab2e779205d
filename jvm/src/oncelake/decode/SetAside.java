package oncelake.decode;

import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.CollectionAccumulator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Takes the broken records out of a micro-batch while its events are written, so that it is computed once.
 *
 * <p>They go to the driver with the results of the tasks: of each task that counts, once. A task sends as many
 * as its bounds allow, and only counts the others.
 */
public final class SetAside {
  private final CollectionAccumulator<Row> rows;
  private final ReasonCounts counts = new ReasonCounts();
  private final int mostRows;
  private final long mostBytes;

  /**
   * @param mostRows how many records a task sends at most
   * @param mostBytes how many bytes of keys, values and headers a task sends at most
   */
  public SetAside(SparkContext spark, int mostRows, long mostBytes) {
    this.rows = spark.collectionAccumulator();
    spark.register(counts);
    this.mostRows = mostRows;
    this.mostBytes = mostBytes;
  }

  /**
   * A condition that holds for events; it takes out each record for which it does not.
   *
   * @param isEvent whether a row is one; never null
   * @param row the whole row, as a struct
   * @param reason why the record is broken; never null where the row is no event
   */
  public Column takeOutUnless(Column isEvent, Column row, Column reason) {
    Column taken = functions.struct(row.as("row"), reason.as("reason"));
    return isEvent.or(
        functions
            .udf(new Taker(rows, counts, mostRows, mostBytes), DataTypes.BooleanType)
            .asNondeterministic()
            .apply(taken));
  }

  /** How many were taken out. */
  public long count() {
    return counts.value().values().stream().mapToLong(Long::longValue).sum();
  }

  /** How many were taken out, by reason; only reasons that occurred. */
  public Map<String, Long> counts() {
    return counts.value();
  }

  /** Whether the driver has all of them. */
  public boolean isComplete() {
    return rows.value().size() == count();
  }

  /** Those that the driver has. */
  public Dataset<Row> rows(SparkSession spark, StructType shape) {
    return spark.createDataFrame(List.copyOf(rows.value()), shape);
  }

  private static final class Taker implements UDF1<Row, Boolean> {
    private static final long serialVersionUID = 1L;
    private final CollectionAccumulator<Row> rows;
    private final ReasonCounts counts;
    private final int mostRows;
    private final long mostBytes;
    // Of one task, which has a copy of its own.
    private transient int sentRows;
    private transient long sentBytes;

    Taker(CollectionAccumulator<Row> rows, ReasonCounts counts, int mostRows, long mostBytes) {
      this.rows = rows;
      this.counts = counts;
      this.mostRows = mostRows;
      this.mostBytes = mostBytes;
    }

    @Override
    public Boolean call(Row taken) {
      counts.add(taken.getString(1));
      Row row = taken.getStruct(0);
      sentBytes += size(row);
      if (sentRows < mostRows && sentBytes <= mostBytes) {
        sentRows++;
        rows.add(row);
      }
      return false;
    }

    /** The bytes and characters of a value, and of all within it: what else a row has is small. */
    private static long size(Object value) {
      if (value instanceof byte[] bytes) {
        return bytes.length;
      }
      if (value instanceof String text) {
        return text.length();
      }
      if (value instanceof Row row) {
        return IntStream.range(0, row.length()).mapToLong(at -> size(row.get(at))).sum();
      }
      if (value instanceof scala.collection.Iterable<?> many) {
        long sum = 0;
        for (Object each : CollectionConverters.asJava(many)) {
          sum += size(each);
        }
        return sum;
      }
      return 0;
    }
  }
}
