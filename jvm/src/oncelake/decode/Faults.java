package oncelake.decode;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.unsafe.types.UTF8String;

/** What is wrong with one record: of all faults the one that comes first in {@link Phase} and in the contract. */
final class Faults {
  /** The order in which faults are looked for. */
  enum Phase {
    TOKEN,
    TYPE,
    KEY,
    REQUIRED,
    MISSING,
    FUTURE,
    PAST,
    RULE
  }

  private static final long NONE = Long.MAX_VALUE;

  private long rank = NONE;
  private String reason;
  private Node at;
  private String found;

  /** Whether a fault of this phase and place would come before what was found so far. */
  boolean comesFirst(Phase phase, int place) {
    return rankOf(phase, place) < rank;
  }

  /**
   * Take a fault, unless an earlier one is known.
   *
   * @param node says which path is named, and what may be shown of it
   * @param text the value; null if none is shown
   */
  void add(Phase phase, int place, String reason, Node node, String text) {
    if (comesFirst(phase, place)) {
      this.rank = rankOf(phase, place);
      this.reason = reason;
      this.at = node;
      this.found = text;
    }
  }

  /** The fault as {@code struct<reason, column, found>}; null without one. */
  InternalRow row() {
    if (rank == NONE) {
      return null;
    }
    return row(reason, at.path, at.shown.of(found));
  }

  /** A fault of the record as a whole. */
  static InternalRow ofRecord(String reason) {
    return row(reason, null, null);
  }

  private static InternalRow row(String reason, String column, String found) {
    return new GenericInternalRow(
        new Object[] {
          UTF8String.fromString(reason), UTF8String.fromString(column), UTF8String.fromString(found)
        });
  }

  private static long rankOf(Phase phase, int place) {
    return ((long) phase.ordinal() << Integer.SIZE) | place;
  }
}
