package oncelake.decode;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.DataType;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.List$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A condition, computed on a larger stack where that of the task is too small; false if no stack is large
 * enough, or if Java's matcher of regular expressions would not come to an end: a record that cannot be judged
 * does not pass.
 *
 * <p>Spark makes no code of it, since code could not be run again.
 */
public final class DeepTry extends Expression implements CodegenFallback, Serializable {
  private static final long serialVersionUID = 1L;
  private final Expression child;
  private transient Expression bounded;

  private DeepTry(Expression child) {
    this.child = child;
  }

  /** A column that is computed so. */
  public static Column of(Column column) {
    return ExpressionUtils.column(new DeepTry(ExpressionUtils.expression(column)));
  }

  @Override
  public Object eval(InternalRow input) {
    if (bounded == null) {
      bounded = BoundedMatch.in(child);
    }
    try {
      return DeepStack.compute(() -> bounded.eval(input), false);
    } catch (BoundedText.UsedUp endless) {
      return false;
    }
  }

  @Override
  public ExprCode doGenCode(CodegenContext context, ExprCode code) {
    return CodegenFallback.super.doGenCode(context, code);
  }

  @Override
  public Seq<Expression> children() {
    return List$.MODULE$.from(CollectionConverters.asScala(List.of(child)));
  }

  @Override
  public Expression withNewChildrenInternal(IndexedSeq<Expression> newChildren) {
    return new DeepTry(CollectionConverters.asJava(newChildren).iterator().next());
  }

  @Override
  public DataType dataType() {
    return child.dataType();
  }

  @Override
  public boolean nullable() {
    return true;
  }

  @Override
  public int productArity() {
    return 1;
  }

  @Override
  public Object productElement(int position) {
    return child;
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof DeepTry;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof DeepTry same && same.child.equals(child);
  }

  @Override
  public int hashCode() {
    return child.hashCode();
  }
}
