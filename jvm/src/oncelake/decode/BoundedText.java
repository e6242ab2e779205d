package oncelake.decode;

/**
 * A text that can be read so often and no more, for Java's matcher of regular expressions: it asks for each
 * character that it looks at, and may look at the same ones more often than any machine can count to.
 *
 * <p>What it does between two characters depends on the pattern alone, so that no record decides how long it
 * takes. See docs/decisions/0088-patterns-have-a-budget.md.
 */
final class BoundedText implements CharSequence {
  /** It was read too often: no exception, which Spark would take for a failure of the expression. */
  static final class UsedUp extends Error {
    private static final long serialVersionUID = 1L;

    UsedUp() {
      super(null, null, false, false);
    }
  }

  /** How many characters of a text may be read, however short it is. */
  static final long LEAST = 10_000_000;

  /** How often each character of a long text may be read, on average. */
  static final long FOR_EACH = 100;

  private final String text;
  private long left;

  BoundedText(String text) {
    this(text, Math.max(LEAST, FOR_EACH * text.length()));
  }

  BoundedText(String text, long left) {
    this.text = text;
    this.left = left;
  }

  /** Return how many characters may still be read. */
  long left() {
    return left;
  }

  @Override
  public char charAt(int place) {
    if (--left < 0) {
      throw new UsedUp();
    }
    return text.charAt(place);
  }

  @Override
  public int length() {
    return text.length();
  }

  @Override
  public CharSequence subSequence(int start, int end) {
    return text.subSequence(start, end);
  }

  @Override
  public String toString() {
    return text;
  }
}
