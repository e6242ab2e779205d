package oncelake.decode;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.json.JsonReadFeature;
import java.io.IOException;
import java.math.BigDecimal;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.api.java.UDF1;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DecimalType;

/**
 * A number in a JSON text as it was sent, if its type holds exactly it; Spark's own functions would round it.
 *
 * <p>It is read in a broken record too: also from a string, and from a text that is no JSON further on.
 */
public final class SentNumber implements UDF1<String, String> {
  private static final long serialVersionUID = 1L;
  // As lenient as Spark's get_json_object.
  private static final JsonFactory FACTORY =
      JsonFactory.builder()
          .enable(JsonReadFeature.ALLOW_SINGLE_QUOTES)
          .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
          .disable(JsonFactory.Feature.FAIL_ON_SYMBOL_HASH_OVERFLOW)
          .build();

  private final String[] path;
  private final DataType type;
  private final boolean sendsShortest;

  private SentNumber(String path, DataType type, boolean sendsShortest) {
    this.path = path.split("\\.");
    this.type = type;
    this.sendsShortest = sendsShortest;
  }

  /**
   * The number as text; null where there is none, or another one than its type would hold.
   *
   * @param document a text
   * @param path where the number is, fields with dots
   * @param type a decimal, double or float, as Spark's JSON of it
   * @param sendsShortest see {@link Leaves.FloatingNode}
   */
  public static Column of(Column document, String path, String type, boolean sendsShortest) {
    SentNumber number = new SentNumber(path, DataType.fromJson(type), sendsShortest);
    return functions.udf(number, DataTypes.StringType).apply(document);
  }

  @Override
  public String call(String document) {
    if (document == null) {
      return null;
    }
    try (JsonParser parser = FACTORY.createParser(document)) {
      parser.nextToken();
      String text = find(parser);
      BigDecimal sent = text == null ? null : Numbers.decimal(text);
      return sent != null && isHeld(text, sent) ? text : null;
    } catch (IOException noJson) {
      return null;
    }
  }

  private String find(JsonParser parser) throws IOException {
    for (String field : path) {
      if (!goTo(parser, field)) {
        return null;
      }
    }
    JsonToken token = parser.currentToken();
    return token.isNumeric() || token == JsonToken.VALUE_STRING ? parser.getText() : null;
  }

  private static boolean goTo(JsonParser parser, String field) throws IOException {
    if (parser.currentToken() != JsonToken.START_OBJECT) {
      return false;
    }
    while (parser.nextToken() == JsonToken.FIELD_NAME) {
      boolean isIt = parser.currentName().equals(field);
      parser.nextToken();
      if (isIt) {
        return parser.currentToken() != null;
      }
      parser.skipChildren();
    }
    return false;
  }

  private boolean isHeld(String text, BigDecimal sent) {
    if (type instanceof DecimalType decimal) {
      BigDecimal held = Numbers.rounded(sent, decimal.precision(), decimal.scale());
      return held != null && held.compareTo(sent) == 0;
    }
    boolean isFloat = type.equals(DataTypes.FloatType);
    double value = isFloat ? sent.floatValue() : sent.doubleValue();
    return !Double.isInfinite(value) && Numbers.isHeldExactly(text, value, isFloat, sendsShortest);
  }
}
