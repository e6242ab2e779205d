package oncelake.decode;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.ArrayTransform;
import org.apache.spark.sql.catalyst.expressions.ElementAt;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetArrayItem;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.HigherOrderFunction;
import org.apache.spark.sql.catalyst.expressions.LambdaFunction;
import org.apache.spark.sql.catalyst.expressions.Size;
import org.apache.spark.sql.catalyst.expressions.TransformKeys;
import org.apache.spark.sql.catalyst.expressions.TransformValues;
import org.apache.spark.sql.catalyst.expressions.ZipWith;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataTypes;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A condition in which all that could take more time or memory than its record is worth has one budget.
 *
 * <p>It holds functions alone whose result and work are in proportion to their arguments
 * ({@code pipelines.spark.condition_bounds}). So only what is done again and again needs to be counted: what a
 * function does for each element, what Java's matcher does, and what compares all with all.
 */
final class Bounded {
  /** What keeps the results for all elements. */
  private static final Set<Class<?>> COLLECTING =
      Set.of(ArrayTransform.class, TransformKeys.class, TransformValues.class, ZipWith.class);

  /** What takes a part of a value, and does not look at all of it. */
  private static final Set<Class<?>> ACCESSING =
      Set.of(GetStructField.class, GetArrayItem.class, Size.class);

  private final Budget budget;

  private Bounded(Budget budget) {
    this.budget = budget;
  }

  /** An expression that asks a budget for all that it does. */
  static Expression in(Expression expression, Budget budget) {
    return new Bounded(budget).in(expression, false);
  }

  private Expression in(Expression expression, boolean isRepeated) {
    List<Expression> children = new ArrayList<>();
    for (Expression child : CollectionConverters.asJava(expression.children())) {
      children.add(
          child instanceof LambdaFunction lambda
              ? repeated(lambda, COLLECTING.contains(expression.getClass()))
              : argument(in(child, isRepeated), expression, isRepeated));
    }
    Expression same = expression.withNewChildren(Wrapper.seq(children));
    Expression bounded =
        BoundedPairs.in(BoundedMatch.in(same, budget, isRepeated), budget, isRepeated);
    boolean isCounted = isRepeated && !expression.foldable();
    return isCounted ? new Counted(bounded, budget, Counted.For.WORK) : bounded;
  }

  private Expression argument(Expression child, Expression of, boolean isRepeated) {
    if (of instanceof HigherOrderFunction && !isRepeated) {
      return new Counted(child, budget, Counted.For.ALLOWANCE);
    }
    return child instanceof Counted counted && takesPart(of) ? counted.child : child;
  }

  private static boolean takesPart(Expression expression) {
    // Of a map, all keys are looked at.
    return ACCESSING.contains(expression.getClass())
        || expression instanceof ElementAt element && element.left().dataType() instanceof ArrayType;
  }

  /** Its arguments stay as they are: what calls it sets them. */
  private Expression repeated(LambdaFunction lambda, boolean isCollected) {
    List<Expression> children = new ArrayList<>(CollectionConverters.asJava(lambda.children()));
    Expression body = in(children.get(0), true);
    // Predicates make nothing that is kept.
    boolean isKept = isCollected && !body.dataType().equals(DataTypes.BooleanType);
    children.set(0, isKept ? new Counted(body, budget, Counted.For.MEMORY) : body);
    return lambda.withNewChildren(Wrapper.seq(children));
  }
}
