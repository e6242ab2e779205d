package oncelake.decode;

/** What is left to all parts of a condition for one record, however many pieces they divide it into. */
final class Budget {
  /** What the pieces of a record may take, in bytes, and a single value that is made of them. */
  static final long MOST_MADE = 64L << 20;

  /** What a piece takes besides its text, in bytes: an object for the text, and one for its bytes. */
  static final int PIECE = 64;

  private long left;
  private long made;

  /** Begin with another record. */
  void renew() {
    left = BoundedText.LEAST;
    made = 0;
  }

  /** Allow what a value of the record is given, by its size. */
  void allow(long size) {
    left += BoundedText.FOR_EACH * size;
  }

  /** Take note of work: so many bytes or values are looked at. */
  void spend(long size) {
    left -= size;
    if (left < 0) {
      throw new BoundedText.UsedUp();
    }
  }

  /** Take note of memory: so many bytes are made, and kept. */
  void make(long bytes) {
    made += bytes;
    if (made > MOST_MADE) {
      throw new BoundedText.UsedUp();
    }
  }

  /** A text that may be read as often as is left. */
  BoundedText text(String text) {
    return new BoundedText(text, left);
  }

  /** Take note of how often a text was read. */
  void wasRead(BoundedText text) {
    left = text.left();
  }
}
