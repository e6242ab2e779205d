package oncelake.decode;

import java.util.List;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal$;
import org.apache.spark.sql.catalyst.expressions.objects.Invoke;
import org.apache.spark.sql.classic.ExpressionUtils;
import org.apache.spark.sql.types.AbstractDataType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.ObjectType;
import scala.collection.immutable.List$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/** The column of a plan that decodes. */
public final class DecodedColumn {
  private DecodedColumn() {}

  /**
   * A call of {@link Decoder#decode} on each row.
   *
   * <p>Spark is told that it is not deterministic, though it is: so no filter moves below it, and no part of
   * the plan repeats it.
   *
   * @param contract see {@link Decoder}
   * @param type what the decoder returns, as Spark's JSON of a type
   * @param document {@code binary}
   * @param sent {@code bigint}, never null
   */
  public static Column of(String contract, String type, Column document, Column sent) {
    Expression decoder =
        Literal$.MODULE$.fromObject(new Decoder(contract), new ObjectType(Decoder.class));
    List<Expression> arguments =
        List.of(ExpressionUtils.expression(document), ExpressionUtils.expression(sent));
    DataType decoded = DataType.fromJson(type);
    return ExpressionUtils.column(
        new Invoke(decoder, "decode", decoded, scala(arguments), types(), false, false, false));
  }

  private static Seq<AbstractDataType> types() {
    return scala(
        List.<AbstractDataType>of(DataTypes.BinaryType, DataTypes.LongType));
  }

  private static <T> Seq<T> scala(List<T> items) {
    // toSeq() of a buffer is ambiguous to the compiler that is used where there is no JDK.
    return List$.MODULE$.from(CollectionConverters.asScala(items));
  }
}
