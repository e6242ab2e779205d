package oncelake.decode;

import java.math.BigDecimal;
import java.math.RoundingMode;

/** Numbers as they were sent, and as a type holds them. */
final class Numbers {
  private static final int LONGEST = 1_000;
  private static final double DOUBLE_WHOLE_BELOW = 0x1p53;
  private static final double FLOAT_WHOLE_BELOW = 0x1p24;

  private Numbers() {}

  /**
   * The number that a text is, with all its digits; null for no number, or one that is too long to be computed.
   * Digits are those of ASCII, as in JSON; Java's own parser takes those of any script.
   */
  static BigDecimal decimal(String text) {
    if (text.length() > LONGEST || !text.chars().allMatch(sign -> sign < 128)) {
      return null;
    }
    try {
      return new BigDecimal(text);
    } catch (NumberFormatException noNumber) {
      return null;
    }
  }

  /** A number with the digits that a decimal has; null if it is too large for it. */
  static BigDecimal rounded(BigDecimal sent, int precision, int scale) {
    // Not by its digits, of which 1e-99999999 has too many.
    long wholeDigits = (long) sent.precision() - sent.scale();
    if (sent.signum() == 0 || wholeDigits < -scale) {
      return BigDecimal.ZERO;
    }
    if (wholeDigits > precision - scale) {
      return null;
    }
    BigDecimal rounded = sent.setScale(scale, RoundingMode.HALF_UP);
    return rounded.precision() > precision ? null : rounded;
  }

  /**
   * Whether a floating-point number stands for exactly the number that was sent, so that no other number of a
   * key is held as the same one.
   *
   * <p>A fraction has no end in binary: it is held exactly if it is what the double is written as, since no
   * other number is. A large whole number must be the very number that the double is.
   */
  static boolean isHeldExactly(String text, double value, boolean isFloat, boolean sendsShortest) {
    BigDecimal sent = decimal(text);
    if (sent == null) {
      return false;
    }
    boolean isWritten =
        Math.abs(value) < (isFloat ? FLOAT_WHOLE_BELOW : DOUBLE_WHOLE_BELOW)
            || sendsShortest && text.indexOf('E') >= 0;
    BigDecimal held;
    if (isWritten) {
      held = new BigDecimal(isFloat ? Float.toString((float) value) : Double.toString(value));
    } else {
      held = new BigDecimal(value);
    }
    return held.compareTo(sent) == 0;
  }
}
