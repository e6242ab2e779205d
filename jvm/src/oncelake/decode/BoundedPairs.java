package oncelake.decode;

import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.ArrayDistinct;
import org.apache.spark.sql.catalyst.expressions.ArrayExcept;
import org.apache.spark.sql.catalyst.expressions.ArrayIntersect;
import org.apache.spark.sql.catalyst.expressions.ArrayUnion;
import org.apache.spark.sql.catalyst.expressions.ArraysOverlap;
import org.apache.spark.sql.catalyst.expressions.Contains;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Levenshtein;
import org.apache.spark.sql.catalyst.expressions.StringInstr;
import org.apache.spark.sql.catalyst.expressions.StringLocate;
import org.apache.spark.sql.catalyst.util.ArrayData;
import scala.jdk.javaapi.CollectionConverters;

/**
 * An expression of Spark that may compare each part of its arguments with each other part, computed if that is
 * within the budget. Also those that look parts up by a hash: a producer can make texts that share one.
 */
final class BoundedPairs extends Wrapper {
  private static final long serialVersionUID = 1L;

  /** How many comparisons take as long as reading a character. */
  private static final long AT_ONCE = 16;

  private static final Set<Class<?>> OF_TEXTS =
      Set.of(Contains.class, StringInstr.class, StringLocate.class, Levenshtein.class);
  private static final Set<Class<?>> OF_ARRAYS =
      Set.of(
          ArrayDistinct.class,
          ArrayExcept.class,
          ArrayIntersect.class,
          ArrayUnion.class,
          ArraysOverlap.class);

  private final transient Budget budget;
  private final boolean isRepeated;

  private BoundedPairs(Expression compared, Budget budget, boolean isRepeated) {
    super(compared);
    this.budget = budget;
    this.isRepeated = isRepeated;
  }

  /** The expression, bounded if it compares pairs. */
  static Expression in(Expression expression, Budget budget, boolean isRepeated) {
    boolean isNeeded =
        OF_ARRAYS.contains(expression.getClass())
            || OF_TEXTS.contains(expression.getClass())
                && parts(expression).stream().limit(2).noneMatch(Expression::foldable);
    return isNeeded ? new BoundedPairs(Held.arguments(expression), budget, isRepeated) : expression;
  }

  @Override
  BoundedPairs around(Expression other) {
    return new BoundedPairs(other, budget, isRepeated);
  }

  @Override
  public Object eval(InternalRow input) {
    try {
      count(input);
      return child.eval(input);
    } finally {
      Held.release(child);
    }
  }

  private void count(InternalRow input) {
    long pairs = 1;
    long elements = 0;
    long all = 0;
    for (Expression part : parts(child).subList(0, Math.min(2, parts(child).size()))) {
      Object value = Held.take(part, input);
      long size = Sizes.of(value, part.dataType());
      pairs *= size;
      elements += value instanceof ArrayData array ? array.numElements() : 0;
      all += size;
    }
    if (!isRepeated) {
      budget.allow(all);
    }
    budget.spend((OF_TEXTS.contains(child.getClass()) ? pairs : elements * all) / AT_ONCE);
  }

  private static List<Expression> parts(Expression expression) {
    return CollectionConverters.asJava(expression.children());
  }
}
