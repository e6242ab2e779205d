package oncelake.decode;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** What a contract asks of a record, from the JSON that {@code pipelines.records.decoder} writes. */
final class Spec {
  /** The record. */
  final Nested.StructNode root;

  /** The event time, and its position among the columns. */
  final Node eventTime;

  final int eventTimeAt;

  /** How far an event time may lie after the record was sent, in microseconds. */
  final long maxFuture;

  /** The first instant of the first event day, in microseconds since 1970. */
  final long first;

  final List<Rule> rules = new ArrayList<>();

  private final boolean sendsShortest;
  private final Map<String, Node> known = new HashMap<>();
  private final Map<String, int[]> positions = new HashMap<>();
  private int places;

  private record Parts(List<String> names, List<Node> nodes) {}

  Spec(String text) {
    JsonNode spec = parse(text);
    sendsShortest = spec.get("sends_shortest_doubles").booleanValue();
    Parts columns = parts(spec.get("fields"), new int[0]);
    Node.Place whole = new Node.Place("", 0, true, -1, Shown.NOTHING, false);
    root = new Nested.StructNode(whole, columns.names, columns.nodes, true);
    String moment = spec.get("event_time").textValue();
    eventTime = known.get(moment);
    eventTimeAt = positions.get(moment)[0];
    maxFuture = spec.get("max_future").longValue();
    first = spec.get("first").longValue();
    for (JsonNode rule : spec.get("rules")) {
      String column = rule.get("column").textValue();
      rules.add(
          new Rule(
              known.get(column),
              positions.get(column),
              Rule.verdicts(rule.get("kind").textValue(), rule.get("value"))));
    }
  }

  private static JsonNode parse(String text) {
    try {
      return new ObjectMapper().readTree(text);
    } catch (JsonProcessingException error) {
      throw new IllegalArgumentException("no specification: " + text, error);
    }
  }

  private Parts parts(JsonNode fields, int[] above) {
    List<String> names = new ArrayList<>();
    List<Node> nodes = new ArrayList<>();
    for (JsonNode field : fields) {
      int[] here = Arrays.copyOf(above, above.length + 1);
      here[above.length] = nodes.size();
      names.add(field.get("name").textValue());
      nodes.add(node(field, here));
    }
    return new Parts(names, nodes);
  }

  private Node node(JsonNode spec, int[] here) {
    // Parts come before what they are parts of, so their places are given first.
    Parts parts = spec.has("fields") ? parts(spec.get("fields"), here) : null;
    Node item = spec.has("item") ? node(spec.get("item"), here) : null;
    Node.Place at = place(spec);
    String type = spec.get("type").textValue();
    Node node =
        switch (type) {
          case "struct" -> new Nested.StructNode(at, parts.names, parts.nodes, false);
          case "array" -> new Nested.ArrayNode(at, item);
          case "map" -> new Nested.MapNode(at, item);
          case "string" -> new Leaves.StringNode(at);
          case "timestamp" -> new Leaves.TimestampNode(at);
          case "date" -> new Leaves.DateNode(at);
          case "boolean" -> new Leaves.BooleanNode(at);
          case "integer", "long" -> new Leaves.WholeNode(at, type.equals("integer"));
          case "float", "double" -> new Leaves.FloatingNode(at, type.equals("float"), sendsShortest);
          case "decimal" ->
              new Leaves.DecimalNode(at, spec.get("precision").intValue(), spec.get("scale").intValue());
          default -> throw new IllegalArgumentException("no type of a contract: " + type);
        };
    known.put(node.path, node);
    positions.put(node.path, here);
    return node;
  }

  private Node.Place place(JsonNode spec) {
    return new Node.Place(
        spec.get("path").textValue(),
        ++places,
        spec.get("required").booleanValue(),
        spec.get("key").intValue(),
        Shown.valueOf(spec.get("shown").textValue().toUpperCase(Locale.ROOT)),
        spec.get("in_collection").booleanValue());
  }
}
