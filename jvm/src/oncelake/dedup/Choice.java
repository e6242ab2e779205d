package oncelake.dedup;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Ascending$;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.NullsFirst$;
import org.apache.spark.sql.catalyst.expressions.RowOrdering;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.List$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.math.Ordering;

/**
 * Chooses the copies of a key that are kept: the best one, then the best of those beyond the horizon of all that
 * are kept, and so on. The same rule as {@code kept_copies_sql} in {@code pipelines/records/dedup.py}.
 */
final class Choice {
  private final Ordering<InternalRow> byKey;
  private final Ordering<InternalRow> byOrder;
  private final boolean leastWins;
  private final int day;
  private final int horizon;
  private final Set<Integer> knownDays;

  Choice(StructType columns, Terms terms) {
    this.byKey = ordering(columns, terms.key());
    this.byOrder = ordering(columns, terms.order());
    this.leastWins = terms.leastWins();
    this.day = columns.fieldIndex(terms.day());
    this.horizon = terms.horizon();
    this.knownDays = new HashSet<>(terms.knownDays());
  }

  boolean isSameKey(InternalRow one, InternalRow other) {
    return byKey.compare(one, other) == 0;
  }

  boolean isSameDay(InternalRow one, InternalRow other) {
    return one.getInt(day) == other.getInt(day);
  }

  /**
   * Returns the copies that are kept, or may be.
   *
   * @param copies the best copies of a key on each of its days, by day
   * @return some of them, in the same order
   */
  List<InternalRow> of(List<InternalRow> copies) {
    if (copies.size() < 2) {
      return copies;
    }
    List<InternalRow> bestFirst = new ArrayList<>(copies);
    bestFirst.sort(leastWins ? byOrder : byOrder.reverse());
    Set<Integer> kept = new HashSet<>();
    Set<Integer> undecided = new HashSet<>();
    for (InternalRow copy : bestFirst) {
      int at = copy.getInt(day);
      if (isNear(at, kept)) {
        continue;
      }
      // Undecided: a better copy may lie on a day that is not known, or a better one nearby is itself undecided.
      (isOnEdge(at) || isNear(at, undecided) ? undecided : kept).add(at);
    }
    kept.addAll(undecided);
    return copies.stream().filter(copy -> kept.contains(copy.getInt(day))).toList();
  }

  private boolean isNear(int at, Set<Integer> days) {
    return days.stream().anyMatch(other -> Math.abs(other - at) <= horizon);
  }

  private boolean isOnEdge(int at) {
    for (int near = at - horizon; near <= at + horizon; near++) {
      if (!knownDays.contains(near)) {
        return true;
      }
    }
    return false;
  }

  private static Ordering<InternalRow> ordering(StructType columns, List<String> names) {
    List<SortOrder> orders = new ArrayList<>();
    for (String name : names) {
      int ordinal = columns.fieldIndex(name);
      BoundReference value = new BoundReference(ordinal, columns.apply(ordinal).dataType(), true);
      orders.add(
          new SortOrder(value, Ascending$.MODULE$, NullsFirst$.MODULE$, List$.MODULE$.empty()));
    }
    Seq<SortOrder> inOrder = List$.MODULE$.from(CollectionConverters.asScala(orders));
    return RowOrdering.create(inOrder, List$.MODULE$.<Attribute>empty());
  }
}
