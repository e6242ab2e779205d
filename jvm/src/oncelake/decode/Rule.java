package oncelake.decode;

import com.fasterxml.jackson.databind.JsonNode;
import java.math.BigDecimal;
import java.util.HashSet;
import java.util.Set;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A rule of the contract on one value of a record.
 *
 * @param node the column, or the part of one
 * @param positions where it is, from the record down
 * @param verdict what it says of a value
 */
record Rule(Node node, int[] positions, Function<Object, Verdict> verdict) {
  /** What a rule says of a value, and the reason for the quarantine that it stands for. */
  enum Verdict {
    KEPT(null),
    BROKEN("rule_failed"),
    /** To find out takes more than a value is given. */
    UNDECIDED("rule_undecided");

    final String reason;

    Verdict(String reason) {
      this.reason = reason;
    }

    static Verdict of(boolean isBroken) {
      return isBroken ? BROKEN : KEPT;
    }
  }

  /** The value in a record; null if it, or what it lies in, is null. */
  Object valueIn(GenericInternalRow record) {
    Object value = record;
    for (int depth = 0; depth < positions.length && value != null; depth++) {
      value = ((GenericInternalRow) value).genericGet(positions[depth]);
    }
    return value;
  }

  /** What a rule of a kind, such as {@code minimum}, says of values. */
  static Function<Object, Verdict> verdicts(String kind, JsonNode limit) {
    if (kind.equals("pattern")) {
      Pattern pattern = Pattern.compile(limit.textValue());
      return value -> looked(value.toString(), pattern);
    }
    Predicate<Object> isBroken = broken(kind, limit);
    return value -> Verdict.of(isBroken.test(value));
  }

  private static Predicate<Object> broken(String kind, JsonNode limit) {
    return switch (kind) {
      case "minimum" -> value -> compare(value, limit) < 0;
      case "maximum" -> value -> compare(value, limit) > 0;
      case "min_length" -> value -> ((UTF8String) value).numChars() < limit.intValue();
      case "max_length" -> value -> ((UTF8String) value).numChars() > limit.intValue();
      case "values" -> amongNone(limit);
      default -> throw new IllegalArgumentException("no rule is called " + kind);
    };
  }

  /** Whether a text has the pattern, as far as a task can tell: matching has a bound in time and in stack. */
  private static Verdict looked(String text, Pattern pattern) {
    return DeepStack.compute(
        () -> {
          try {
            return Verdict.of(!pattern.matcher(new BoundedText(text)).find());
          } catch (BoundedText.UsedUp endless) {
            return Verdict.UNDECIDED;
          }
        },
        Verdict.UNDECIDED);
  }

  private static Predicate<Object> amongNone(JsonNode allowed) {
    if (allowed.get(0).isNumber()) {
      return value -> {
        for (JsonNode one : allowed) {
          if (compare(value, one) == 0) {
            return false;
          }
        }
        return true;
      };
    }
    Set<Object> values = new HashSet<>();
    for (JsonNode one : allowed) {
      values.add(one.isBoolean() ? one.booleanValue() : UTF8String.fromString(one.textValue()));
    }
    return value -> !values.contains(value);
  }

  /** As Spark compares: with a fraction as doubles, whole numbers with all their digits. */
  private static int compare(Object value, JsonNode limit) {
    if (value instanceof Double || value instanceof Float || limit.isFloatingPointNumber()) {
      double number = value instanceof Decimal exact ? exact.toDouble() : ((Number) value).doubleValue();
      // Unlike Double.compare this takes both zeros for one number.
      return number < limit.doubleValue() ? -1 : number > limit.doubleValue() ? 1 : 0;
    }
    if (value instanceof Decimal exact) {
      return exact.toJavaBigDecimal().compareTo(BigDecimal.valueOf(limit.longValue()));
    }
    return Long.compare(((Number) value).longValue(), limit.longValue());
  }

  /** A value as Spark casts it to text. */
  static String text(Object value) {
    return value instanceof Decimal exact ? exact.toJavaBigDecimal().toPlainString() : value.toString();
  }
}
