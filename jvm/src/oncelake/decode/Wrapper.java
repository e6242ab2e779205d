package oncelake.decode;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.types.DataType;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.List$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** An expression that computes another one in its own way, of which Spark makes no code. */
abstract class Wrapper extends Expression implements CodegenFallback, Serializable {
  private static final long serialVersionUID = 1L;
  final Expression child;

  Wrapper(Expression child) {
    this.child = child;
  }

  /** The same around another expression. */
  abstract Wrapper around(Expression other);

  static Seq<Expression> seq(List<Expression> expressions) {
    return List$.MODULE$.from(CollectionConverters.asScala(expressions));
  }

  @Override
  public final ExprCode doGenCode(CodegenContext context, ExprCode code) {
    return CodegenFallback.super.doGenCode(context, code);
  }

  @Override
  public final Seq<Expression> children() {
    return seq(List.of(child));
  }

  @Override
  public final Expression withNewChildrenInternal(IndexedSeq<Expression> newChildren) {
    return around(CollectionConverters.asJava(newChildren).get(0));
  }

  @Override
  public final DataType dataType() {
    return child.dataType();
  }

  @Override
  public final boolean nullable() {
    return true;
  }

  @Override
  public final int productArity() {
    return 1;
  }

  @Override
  public final Object productElement(int position) {
    return child;
  }

  @Override
  public final boolean canEqual(Object other) {
    return other != null && other.getClass() == getClass();
  }

  @Override
  public final boolean equals(Object other) {
    return canEqual(other) && ((Wrapper) other).child.equals(child);
  }

  @Override
  public final int hashCode() {
    return child.hashCode();
  }
}
