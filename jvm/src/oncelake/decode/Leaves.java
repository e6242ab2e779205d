package oncelake.decode;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.exc.InputCoercionException;
import java.io.IOException;
import java.math.BigDecimal;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/** Single values. */
final class Leaves {
  /**
   * The longest text of a number that the fast parser reads, in characters. Once an exponent is 1024 or more it
   * drops the digits that follow. In a text of up to 300 characters that changes nothing: the number is 0 or too
   * large for a double with either exponent. In a longer one, more zeros could make up for the exponent.
   */
  private static final int LONGEST_FAST = 300;

  private Leaves() {}

  /** A text; any other value is taken as its JSON. */
  static final class StringNode extends Node {
    StringNode(Place at) {
      super(at);
    }

    @Override
    Object read(JsonParser parser, Faults faults) throws IOException {
      boolean isNested = parser.currentToken().isStructStart();
      String text = JsonText.of(parser);
      if (isNested && isKey()) {
        inexactKey(faults, text);
      }
      return UTF8String.fromString(text);
    }
  }

  /** An instant, see {@link Moments#timestamp}. */
  static final class TimestampNode extends Node {
    TimestampNode(Place at) {
      super(at);
    }

    @Override
    Object read(JsonParser parser, Faults faults) throws IOException {
      String text = JsonText.of(parser);
      long micros = Moments.timestamp(text);
      if (micros == Moments.NO_TIMESTAMP) {
        wrongType(faults, Faults.Phase.TYPE, text);
        return null;
      }
      if (isKey() && Moments.isFiner(text)) {
        return inexactKey(faults, text);
      }
      return micros;
    }
  }

  /** A date, see {@link Moments#date}. */
  static final class DateNode extends Node {
    DateNode(Place at) {
      super(at);
    }

    @Override
    Object read(JsonParser parser, Faults faults) throws IOException {
      String text = JsonText.of(parser);
      int days = Moments.date(text);
      if (days == Moments.NO_DATE) {
        wrongType(faults, Faults.Phase.TYPE, text);
        return null;
      }
      return days;
    }
  }

  /** True or false. */
  static final class BooleanNode extends Node {
    BooleanNode(Place at) {
      super(at);
    }

    @Override
    Object read(JsonParser parser, Faults faults) throws IOException {
      return parser.currentToken().isBoolean() ? parser.getBooleanValue() : wrongToken(parser, faults);
    }
  }

  /** A whole number of 32 or 64 bits. */
  static final class WholeNode extends Node {
    private final boolean isInt;

    WholeNode(Place at, boolean isInt) {
      super(at);
      this.isInt = isInt;
    }

    @Override
    Object read(JsonParser parser, Faults faults) throws IOException {
      if (parser.currentToken() != JsonToken.VALUE_NUMBER_INT) {
        return wrongToken(parser, faults);
      }
      try {
        if (isInt) {
          return parser.getIntValue();
        }
        return parser.getLongValue();
      } catch (InputCoercionException tooLarge) {
        return wrongToken(parser, faults);
      }
    }
  }

  /** A floating-point number of 32 or 64 bits. */
  static final class FloatingNode extends Node {
    private final boolean isFloat;
    private final boolean sendsShortest;

    /**
     * @param sendsShortest whether a number is sent as the shortest one that is read as itself, so that an
     *     exponent in it means nothing
     */
    FloatingNode(Place at, boolean isFloat, boolean sendsShortest) {
      super(at);
      this.isFloat = isFloat;
      this.sendsShortest = sendsShortest;
    }

    @Override
    Object read(JsonParser parser, Faults faults) throws IOException {
      if (!parser.currentToken().isNumeric()) {
        return wrongToken(parser, faults);
      }
      double value = number(parser);
      if (Double.isInfinite(value)) {
        // No value: all that are too large would be one.
        wrongType(faults, Faults.Phase.TYPE, parser.getText());
        return null;
      }
      if (isKey()) {
        String text = parser.getText();
        if (!Numbers.isHeldExactly(text, value, isFloat, sendsShortest)) {
          return inexactKey(faults, text);
        }
        // Both zeros are one number, which Spark compares as equal and writes as two.
        value = value == 0 ? 0.0 : value;
      }
      if (isFloat) {
        return (float) value;
      }
      return value;
    }

    private double number(JsonParser parser) throws IOException {
      if (parser.getTextLength() > LONGEST_FAST) {
        String text = parser.getText();
        return isFloat ? Float.parseFloat(text) : Double.parseDouble(text);
      }
      return isFloat ? parser.getFloatValue() : parser.getDoubleValue();
    }
  }

  /** A decimal number, which may be sent as a text. */
  static final class DecimalNode extends Node {
    private final int precision;
    private final int scale;

    DecimalNode(Place at, int precision, int scale) {
      super(at);
      this.precision = precision;
      this.scale = scale;
    }

    @Override
    Object read(JsonParser parser, Faults faults) throws IOException {
      JsonToken token = parser.currentToken();
      if (!token.isNumeric() && token != JsonToken.VALUE_STRING) {
        return wrongToken(parser, faults);
      }
      String text = parser.getText();
      BigDecimal sent = Numbers.decimal(text);
      BigDecimal held = sent == null ? null : Numbers.rounded(sent, precision, scale);
      if (held == null) {
        return wrongToken(parser, faults);
      }
      if (isKey() && held.compareTo(sent) != 0) {
        return inexactKey(faults, text);
      }
      return Decimal.apply(held, precision, scale);
    }
  }
}
