package oncelake.decode;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;

/** How much of a value quarantine shows. */
enum Shown {
  WHOLE,
  HASH,
  NOTHING;

  private static final int LENGTH = 200;
  private static final int FINGERPRINT_BYTES = 8;

  /** What is shown of a text: its first characters, its fingerprint, or nothing. */
  String of(String text) {
    if (text == null || this == NOTHING) {
      return null;
    }
    return this == HASH ? "sha256:" + fingerprint(text) : cut(text);
  }

  private static String cut(String text) {
    if (text.codePointCount(0, text.length()) <= LENGTH) {
      return text;
    }
    return text.substring(0, text.offsetByCodePoints(0, LENGTH));
  }

  private static String fingerprint(String text) {
    try {
      MessageDigest digest = MessageDigest.getInstance("SHA-256");
      byte[] hash = digest.digest(text.getBytes(StandardCharsets.UTF_8));
      return HexFormat.of().formatHex(hash, 0, FINGERPRINT_BYTES);
    } catch (NoSuchAlgorithmException error) {
      throw new IllegalStateException("each Java has SHA-256", error);
    }
  }
}
