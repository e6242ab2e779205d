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
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.TimestampType;

/**
 * A part of a JSON text as it was sent, if its type holds exactly it; Spark's own functions would round it, and
 * of a name sent twice they take the first.
 *
 * <p>It is read in a broken record too: also from a string, and from a text that is no JSON further on.
 */
public final class SentValue implements UDF1<String, String> {
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

  private SentValue(String path, DataType type, boolean sendsShortest) {
    this.path = path.split("\\.");
    this.type = type;
    this.sendsShortest = sendsShortest;
  }

  /**
   * The part as text; null where there is none, or another value than its type would hold.
   *
   * @param document a text
   * @param path where the part is, fields with dots
   * @param type the type of a part of a key, as Spark's JSON of it
   * @param sendsShortest see {@link Leaves.FloatingNode}
   */
  public static Column of(Column document, String path, String type, boolean sendsShortest) {
    SentValue value = new SentValue(path, DataType.fromJson(type), sendsShortest);
    return functions.udf(value, DataTypes.StringType).apply(document);
  }

  @Override
  public String call(String document) {
    if (document == null) {
      return null;
    }
    Last last = new Last();
    try (JsonParser parser = FACTORY.createParser(document)) {
      if (parser.nextToken() != null) {
        last.look(parser, 0);
      }
    } catch (IOException noJson) {
      // What came before is as it was sent.
    }
    return last.text != null && isHeld(last.text) ? last.text : null;
  }

  /** The value of the last field of a name, as far as a text can be read: it is the one that counts. */
  private final class Last {
    private String text;

    void look(JsonParser parser, int depth) throws IOException {
      JsonToken token = parser.currentToken();
      if (depth == path.length) {
        text = token == JsonToken.VALUE_NULL ? null : JsonText.of(parser);
        return;
      }
      boolean isFound = false;
      if (token == JsonToken.START_OBJECT) {
        while (parser.nextToken() == JsonToken.FIELD_NAME) {
          boolean isIt = parser.currentName().equals(path[depth]);
          parser.nextToken();
          if (isIt) {
            look(parser, depth + 1);
            isFound = true;
          } else {
            parser.skipChildren();
          }
        }
      } else {
        parser.skipChildren();
      }
      if (!isFound) {
        text = null;
      }
    }
  }

  private boolean isHeld(String text) {
    if (type instanceof TimestampType) {
      return Moments.timestamp(text) != Moments.NO_TIMESTAMP && !Moments.isFiner(text);
    }
    if (type instanceof DateType) {
      return Moments.date(text) != Moments.NO_DATE;
    }
    if (type instanceof BooleanType) {
      return text.equals("true") || text.equals("false");
    }
    boolean isExact = type instanceof DecimalType || type instanceof DoubleType || type instanceof FloatType;
    return !isExact || isNumberHeld(text);
  }

  private boolean isNumberHeld(String text) {
    BigDecimal sent = Numbers.decimal(text);
    if (sent == null) {
      return false;
    }
    if (type instanceof DecimalType decimal) {
      BigDecimal held = Numbers.rounded(sent, decimal.precision(), decimal.scale());
      return held != null && held.compareTo(sent) == 0;
    }
    boolean isFloat = type instanceof FloatType;
    double value = isFloat ? sent.floatValue() : sent.doubleValue();
    return !Double.isInfinite(value) && Numbers.isHeldExactly(text, value, isFloat, sendsShortest);
  }
}
