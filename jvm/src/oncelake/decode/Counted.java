package oncelake.decode;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;

/** A part of a condition whose values are counted. */
final class Counted extends Wrapper {
  /** What a value counts for. */
  enum For {
    /** What is gone through: the more it is, the more may be done. */
    ALLOWANCE,
    /** What is computed again for each element of something. */
    WORK,
    /** The same, and kept until all are there. */
    MEMORY
  }

  private static final long serialVersionUID = 1L;
  private final transient Budget budget;
  private final For use;

  Counted(Expression part, Budget budget, For use) {
    super(part);
    this.budget = budget;
    this.use = use;
  }

  @Override
  Counted around(Expression other) {
    return new Counted(other, budget, use);
  }

  @Override
  public Object eval(InternalRow input) {
    Object value = child.eval(input);
    long size = Sizes.of(value, child.dataType());
    if (use == For.ALLOWANCE) {
      budget.allow(size);
      return value;
    }
    budget.spend(size);
    if (size > Budget.MOST_MADE) {
      throw new BoundedText.UsedUp();
    }
    if (use == For.MEMORY) {
      budget.make(Budget.PIECE + size);
    }
    return value;
  }
}
