package oncelake.decode;

import com.fasterxml.jackson.core.JsonGenerator;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.io.StringWriter;
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

  private JsonText() {}

  /** Whether bytes are UTF-8 that a parser takes for UTF-8, without an escape of half a character. */
  static boolean isSound(byte[] bytes) {
    for (int at = 0; at < Math.min(BYTES_LOOKED_AT, bytes.length); at++) {
      // A parser would take such bytes for a mark, or for UTF-16 or UTF-32.
      if (bytes[at] == 0 || at == 0 && bytes[at] < 0) {
        return false;
      }
    }
    // Most documents have neither, and one look tells.
    boolean hasEscapes = false;
    boolean isAscii = true;
    for (int at = 0; at < bytes.length; at++) {
      byte each = bytes[at];
      isAscii &= each >= 0;
      hasEscapes |= each == '\\' && at + 1 < bytes.length && bytes[at + 1] == 'u';
    }
    if (!isAscii && !UTF8String.fromBytes(bytes).isValid()) {
      return false;
    }
    if (!hasEscapes) {
      return true;
    }
    String escaped = new String(bytes, StandardCharsets.UTF_8);
    return !HALF.matcher(WHOLE.matcher(escaped).replaceAll(" ")).find();
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
