package oncelake.decode;

import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.ArrayBasedMapData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.unsafe.types.UTF8String;

/** Objects, arrays and maps. */
final class Nested {
  /** How many fields beyond those of the contract a node remembers. */
  private static final int MOST_UNKNOWN_FIELDS = 16;

  private Nested() {}

  /** A JSON object with the fields of the contract; others are passed over, and of a name sent twice the last counts. */
  static final class StructNode extends Node {
    private final Node[] fields;
    private final Map<String, Integer> positions = new HashMap<>();
    private final boolean isRoot;

    /**
     * The fields of the last object, by their place in it. Most objects have the same fields in the same order, so
     * that one comparison takes the place of a look-up by name.
     */
    private final Field[] previous;

    /** A name, and the position of its field; -1 if the contract has none. */
    private record Field(String name, int position) {}

    StructNode(Place at, List<String> names, List<Node> fields, boolean isRoot) {
      super(at);
      this.fields = fields.toArray(Node[]::new);
      this.isRoot = isRoot;
      this.previous = new Field[names.size() + MOST_UNKNOWN_FIELDS];
      for (int position = 0; position < names.size(); position++) {
        positions.put(names.get(position), position);
      }
    }

    @Override
    GenericInternalRow read(JsonParser parser, Faults faults) throws IOException {
      if (parser.currentToken() != JsonToken.START_OBJECT) {
        wrongToken(parser, faults);
        return null;
      }
      Object[] values = new Object[fields.length];
      int placeInObject = 0;
      while (parser.nextToken() != JsonToken.END_OBJECT) {
        int position = position(parser.currentName(), placeInObject++);
        parser.nextToken();
        if (position < 0) {
          parser.skipChildren();
        } else {
          values[position] = fields[position].value(parser, faults);
        }
      }
      Faults.Phase phase = isRoot ? Faults.Phase.REQUIRED : Faults.Phase.MISSING;
      for (int position = 0; position < fields.length; position++) {
        if (values[position] == null && fields[position].required) {
          faults.add(phase, fields[position].place, MISSING_FIELD, fields[position], null);
        }
      }
      return new GenericInternalRow(values);
    }

    /** The position in the contract of the field at a place of the object; -1 if the contract has none. */
    @SuppressWarnings("ReferenceEquality")
    private int position(String name, int placeInObject) {
      if (placeInObject >= previous.length) {
        return positions.getOrDefault(name, -1);
      }
      // Threads share this array without a lock: a Field never changes, so each thread sees a whole one.
      Field field = previous[placeInObject];
      // The parser mostly gives the same String for the same name. If not, the name is looked up.
      if (field == null || field.name != name) {
        field = new Field(name, positions.getOrDefault(name, -1));
        previous[placeInObject] = field;
      }
      return field.position;
    }
  }

  /** A JSON array. */
  static final class ArrayNode extends Node {
    private final Node element;

    ArrayNode(Place at, Node element) {
      super(at);
      this.element = element;
    }

    @Override
    Object read(JsonParser parser, Faults faults) throws IOException {
      if (parser.currentToken() != JsonToken.START_ARRAY) {
        return wrongToken(parser, faults);
      }
      List<Object> values = new ArrayList<>();
      while (parser.nextToken() != JsonToken.END_ARRAY) {
        values.add(element.value(parser, faults));
      }
      return items(values, element, faults);
    }
  }

  /** A JSON object of any names. */
  static final class MapNode extends Node {
    private final Node entry;

    MapNode(Place at, Node entry) {
      super(at);
      this.entry = entry;
    }

    @Override
    Object read(JsonParser parser, Faults faults) throws IOException {
      if (parser.currentToken() != JsonToken.START_OBJECT) {
        return wrongToken(parser, faults);
      }
      List<Object> keys = new ArrayList<>();
      List<Object> values = new ArrayList<>();
      Set<String> names = new HashSet<>();
      while (parser.nextToken() != JsonToken.END_OBJECT) {
        String name = parser.currentName();
        // JSON may have a name twice; a map may not.
        if (!names.add(name)) {
          wrongType(faults, Faults.Phase.TYPE, null);
        }
        keys.add(UTF8String.fromString(name));
        parser.nextToken();
        values.add(entry.value(parser, faults));
      }
      return new ArrayBasedMapData(new GenericArrayData(keys.toArray()), items(values, entry, faults));
    }
  }

  private static GenericArrayData items(List<Object> values, Node item, Faults faults) {
    if (item.required && values.contains(null)) {
      faults.add(Faults.Phase.MISSING, item.place, Node.MISSING_FIELD, item, null);
    }
    return new GenericArrayData(values.toArray());
  }
}
