package oncelake.decode;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;

/** A column of the contract, or a part of one: reads its value where the parser stands. */
abstract class Node {
  static final String WRONG_TYPE = "wrong_type";
  static final String MISSING_FIELD = "missing_field";

  /** The path that faults name: fields with dots, {@code []} for elements, <code>{}</code> for values of a map. */
  final String path;

  /** Its place in the order of the contract, parts before what they are parts of. */
  final int place;

  /** Whether it may not be null. */
  final boolean required;

  /** Its place among the parts of the dedup key; -1 if it is none. */
  final int keyPlace;

  final Shown shown;

  private final boolean inCollection;

  Node(Place at) {
    path = at.path();
    place = at.number();
    required = at.required();
    keyPlace = at.keyPlace();
    shown = at.shown();
    inCollection = at.inCollection();
  }

  /**
   * Where a node stands.
   *
   * @param inCollection whether it is within an array or a map, where no single value is shown
   */
  record Place(
      String path, int number, boolean required, int keyPlace, Shown shown, boolean inCollection) {}

  /** The value as Spark keeps it; null for JSON's null, and for a value of another type, which is a fault. */
  final Object value(JsonParser parser, Faults faults) throws IOException {
    return parser.currentToken() == JsonToken.VALUE_NULL ? null : read(parser, faults);
  }

  /** As {@link #value}, of a token that is not null. */
  abstract Object read(JsonParser parser, Faults faults) throws IOException;

  final boolean isKey() {
    return keyPlace >= 0;
  }

  /** Take note of a token that is no value of this type, and pass over it. */
  final Object wrongToken(JsonParser parser, Faults faults) throws IOException {
    if (faults.comesFirst(Faults.Phase.TOKEN, place)) {
      wrongType(faults, Faults.Phase.TOKEN, JsonText.of(parser));
    } else {
      parser.skipChildren();
    }
    return null;
  }

  /** Take note of a value that its type does not hold. */
  final void wrongType(Faults faults, Faults.Phase phase, String text) {
    faults.add(phase, place, WRONG_TYPE, this, inCollection ? null : text);
  }

  /**
   * Take note of a part of the key that would not be held as it was sent. It has no value: what it would be
   * rounded to is the key of another event.
   */
  final Object inexactKey(Faults faults, String text) {
    faults.add(Faults.Phase.KEY, keyPlace, WRONG_TYPE, this, text);
    return null;
  }
}
