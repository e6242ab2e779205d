package oncelake.decode;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import scala.jdk.javaapi.CollectionConverters;

/**
 * An argument that is looked at before its function is computed, and computed once for both.
 *
 * <p>Else each function within another one would double the work, and what it takes of the budget.
 */
final class Held extends Wrapper {
  private static final long serialVersionUID = 1L;
  private transient Object value;
  private transient boolean isTaken;

  private Held(Expression argument) {
    super(argument);
  }

  /** The expression, each argument of which can be taken. Constants stay: Spark prepares patterns by them. */
  static Expression arguments(Expression expression) {
    List<Expression> held = new ArrayList<>();
    for (Expression argument : CollectionConverters.asJava(expression.children())) {
      held.add(argument.foldable() ? argument : new Held(argument));
    }
    return expression.withNewChildren(seq(held));
  }

  /** Compute an argument, which its function then takes as it is, until it is released. */
  static Object take(Expression argument, InternalRow input) {
    if (!(argument instanceof Held held)) {
      return argument.eval(input);
    }
    held.value = held.child.eval(input);
    held.isTaken = true;
    return held.value;
  }

  /** Let the arguments of an expression be computed anew. */
  static void release(Expression expression) {
    for (Expression argument : CollectionConverters.asJava(expression.children())) {
      if (argument instanceof Held held) {
        held.value = null;
        held.isTaken = false;
      }
    }
  }

  @Override
  Held around(Expression other) {
    return new Held(other);
  }

  @Override
  public Object eval(InternalRow input) {
    return isTaken ? value : child.eval(input);
  }
}
