package oncelake.decode;

import java.time.DateTimeException;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.time.format.DateTimeFormatterBuilder;
import java.time.temporal.ChronoField;

/** Strict timestamps and dates: {@code 2013-01-01T10:15:00.123456Z} and {@code 2013-01-01}. */
final class Moments {
  /** What no text of a timestamp is: it has no place among microseconds since 1970 from year 0 to 9999. */
  static final long NO_TIMESTAMP = Long.MIN_VALUE;

  /** What no text of a date is. */
  static final int NO_DATE = Integer.MIN_VALUE;

  private static final int MICROS = 6;
  private static final int LONGEST_FRACTION = 9;
  private static final int MOST_OFFSET_HOURS = 18;
  private static final long MICROS_PER_SECOND = 1_000_000L;
  private static final DateTimeFormatter SHOWN =
      new DateTimeFormatterBuilder()
          .appendPattern("uuuu-MM-dd HH:mm:ss")
          .appendFraction(ChronoField.NANO_OF_SECOND, 0, MICROS, true)
          .toFormatter();

  private final String text;
  private int at;

  private Moments(String text) {
    this.text = text;
  }

  /** Days since 1970 of {@code yyyy-MM-dd}, or {@link #NO_DATE}. */
  static int date(String text) {
    Moments reader = new Moments(text);
    LocalDate day = reader.day();
    return day == null || reader.at != text.length() ? NO_DATE : (int) day.toEpochDay();
  }

  /**
   * Microseconds since 1970 of {@code yyyy-MM-dd[T ]HH:mm[:ss[.f]][Z|+hh[:]mm]}, or {@link #NO_TIMESTAMP}. A text
   * without an offset is in UTC. Of a fraction, which may have nine digits, microseconds are kept.
   */
  static long timestamp(String text) {
    Moments reader = new Moments(text);
    LocalDate day = reader.day();
    if (day == null || !(reader.take('T') || reader.take(' '))) {
      return NO_TIMESTAMP;
    }
    int hour = reader.number(2, 23);
    int minute = hour >= 0 && reader.take(':') ? reader.number(2, 59) : -1;
    if (minute < 0) {
      return NO_TIMESTAMP;
    }
    int second = 0;
    long micros = 0;
    if (reader.take(':')) {
      second = reader.number(2, 59);
      micros = second >= 0 && reader.take('.') ? reader.fraction() : 0;
    }
    int offset = reader.offsetSeconds();
    if (second < 0 || micros < 0 || offset == Integer.MIN_VALUE || reader.at != text.length()) {
      return NO_TIMESTAMP;
    }
    long seconds = day.toEpochDay() * 86_400 + hour * 3_600L + minute * 60L + second - offset;
    return seconds * MICROS_PER_SECOND + micros;
  }

  /** Whether a text that is a timestamp has digits below a microsecond that are not 0. */
  static boolean isFiner(String text) {
    int start = text.indexOf('.') + 1;
    for (int at = start; start > 0 && at < text.length() && isDigit(text.charAt(at)); at++) {
      if (at - start >= MICROS && text.charAt(at) != '0') {
        return true;
      }
    }
    return false;
  }

  /** A timestamp as Spark casts it to text in UTC. */
  static String shown(long micros) {
    long seconds = Math.floorDiv(micros, MICROS_PER_SECOND);
    int nanos = (int) Math.floorMod(micros, MICROS_PER_SECOND) * 1_000;
    return SHOWN.format(LocalDateTime.ofEpochSecond(seconds, nanos, ZoneOffset.UTC));
  }

  private LocalDate day() {
    int year = number(4, 9_999);
    int month = year >= 0 && take('-') ? number(2, 12) : -1;
    int day = month >= 0 && take('-') ? number(2, 31) : -1;
    try {
      return day < 0 ? null : LocalDate.of(year, month, day);
    } catch (DateTimeException noSuchDay) {
      return null;
    }
  }

  private long fraction() {
    int digits = 0;
    long micros = 0;
    while (at < text.length() && isDigit(text.charAt(at))) {
      if (digits < MICROS) {
        micros = micros * 10 + (text.charAt(at) - '0');
      }
      digits++;
      at++;
    }
    if (digits == 0 || digits > LONGEST_FRACTION) {
      return -1;
    }
    for (int left = digits; left < MICROS; left++) {
      micros *= 10;
    }
    return micros;
  }

  private int offsetSeconds() {
    if (at == text.length() || take('Z')) {
      return 0;
    }
    int sign = take('-') ? -1 : take('+') ? 1 : 0;
    int hours = sign == 0 ? -1 : number(2, MOST_OFFSET_HOURS);
    take(':');
    int minutes = hours < 0 ? -1 : number(2, hours == MOST_OFFSET_HOURS ? 0 : 59);
    return minutes < 0 ? Integer.MIN_VALUE : sign * (hours * 3_600 + minutes * 60);
  }

  /** A number of so many digits; -1 if there is none, or a larger one than allowed. */
  private int number(int digits, int most) {
    if (at + digits > text.length()) {
      return -1;
    }
    int value = 0;
    for (int end = at + digits; at < end; at++) {
      if (!isDigit(text.charAt(at))) {
        return -1;
      }
      value = value * 10 + (text.charAt(at) - '0');
    }
    return value <= most ? value : -1;
  }

  private boolean take(char expected) {
    boolean is = at < text.length() && text.charAt(at) == expected;
    at += is ? 1 : 0;
    return is;
  }

  private static boolean isDigit(char sign) {
    return sign >= '0' && sign <= '9';
  }
}
