package oncelake.decode;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.io.StringWriter;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.regex.Pattern;
import org.apache.spark.unsafe.types.UTF8String;

/** JSON as text: whether bytes can be one, and what stands at a token. */
final class JsonText {
  private static final int BYTES_LOOKED_AT = 4;

  /** Escapes, except for those of halves of a character that have no other half. */
  private static final Pattern WHOLE =
      Pattern.compile(
          "\\\\[^u]|\\\\u[dD][89abAB][0-9a-fA-F]{2}\\\\u[dD][c-fC-F][0-9a-fA-F]{2}");

  private static final Pattern HALF = Pattern.compile("\\\\u[dD][89a-fA-F]");

  private static final VarHandle WORDS =
      MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.nativeOrder());
  private static final long ONES = 0x0101010101010101L;
  private static final long HIGHEST = ONES << 7;
  private static final long BACKSLASHES = ONES * '\\';

  private JsonText() {}

  /** Whether bytes are UTF-8 that a parser takes for UTF-8, without an escape of half a character. */
  static boolean isSound(byte[] bytes) {
    for (int at = 0; at < Math.min(BYTES_LOOKED_AT, bytes.length); at++) {
      // A parser would take such bytes for a mark, or for UTF-16 or UTF-32.
      if (bytes[at] == 0 || at == 0 && bytes[at] < 0) {
        return false;
      }
    }
    // Most documents are ASCII without a backslash, and need no further check.
    if (isPlain(bytes)) {
      return true;
    }
    if (!UTF8String.fromBytes(bytes).isValid()) {
      return false;
    }
    if (!hasEscapes(bytes)) {
      return true;
    }
    String escaped = new String(bytes, StandardCharsets.UTF_8);
    return !HALF.matcher(WHOLE.matcher(escaped).replaceAll(" ")).find();
  }

  private static boolean hasEscapes(byte[] bytes) {
    for (int at = 0; at < bytes.length - 1; at++) {
      if (bytes[at] == '\\' && bytes[at + 1] == 'u') {
        return true;
      }
    }
    return false;
  }

  /** Whether bytes are ASCII without a backslash. */
  private static boolean isPlain(byte[] bytes) {
    // Eight bytes at a time; a highest bit that is set marks a byte that was looked for. In `word` it is set for a
    // byte that is not ASCII. XOR makes a backslash 0, and (x - ONES) & ~x sets the highest bit if a byte is 0.
    int words = bytes.length & -Long.BYTES;
    long found = 0;
    for (int at = 0; at < words; at += Long.BYTES) {
      long word = (long) WORDS.get(bytes, at);
      long zeroIfBackslash = word ^ BACKSLASHES;
      found |= word | ((zeroIfBackslash - ONES) & ~zeroIfBackslash);
    }
    boolean isPlain = (found & HIGHEST) == 0;
    for (int at = words; at < bytes.length; at++) {
      isPlain &= bytes[at] >= 0 && bytes[at] != '\\';
    }
    return isPlain;
  }

  /**
   * The value at which a parser stands, and over which it passes: a string without quotes, a number as it was
   * sent, objects and arrays without white space.
   */
  static String of(JsonParser parser) throws IOException {
    if (!parser.currentToken().isStructStart()) {
      return parser.getText();
    }
    StringWriter text = new StringWriter();
    try (JsonGenerator generator = Decoder.FACTORY.createGenerator(text)) {
      int depth = 0;
      do {
        depth += parser.currentToken().isStructStart() ? 1 : parser.currentToken().isStructEnd() ? -1 : 0;
        copy(parser, generator);
      } while (depth > 0 && parser.nextToken() != null);
    }
    return text.toString();
  }

  private static void copy(JsonParser parser, JsonGenerator generator) throws IOException {
    JsonToken token = parser.currentToken();
    if (token.isNumeric()) {
      // A number that is copied as one would be written in another way.
      generator.writeNumber(parser.getText());
    } else {
      generator.copyCurrentEvent(parser);
    }
  }
}
