package oncelake.decode;

import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.classic.ExpressionUtils;

/**
 * A condition, computed on a larger stack where that of the task is too small; false if no stack is large
 * enough, or if Java's matcher of regular expressions would not come to an end: a record that cannot be judged
 * does not pass.
 *
 * <p>Spark makes no code of it, since code could not be run again.
 */
public final class DeepTry extends Wrapper {
  private static final long serialVersionUID = 1L;
  private transient Budget budget;
  private transient Expression bounded;

  private DeepTry(Expression child) {
    super(child);
  }

  /** A column that is computed so. */
  public static Column of(Column column) {
    return ExpressionUtils.column(new DeepTry(ExpressionUtils.expression(column)));
  }

  @Override
  DeepTry around(Expression other) {
    return new DeepTry(other);
  }

  @Override
  public Object eval(InternalRow input) {
    if (bounded == null) {
      budget = new Budget();
      bounded = Bounded.in(child, budget);
    }
    try {
      return DeepStack.compute(() -> computed(input), false);
    } catch (BoundedText.UsedUp endless) {
      return false;
    }
  }

  private Object computed(InternalRow input) {
    budget.renew();
    return bounded.eval(input);
  }
}
