package oncelake.decode;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonFactoryBuilder;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadFeature;
import java.io.IOException;
import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;

/** Decodes JSON by a contract, in one pass: typed values, and the first fault if there is one. */
public final class Decoder implements Serializable {
  private static final long serialVersionUID = 1L;

  /** Strict JSON. Names come from producers: they are not kept for ever, and may have any hashes. */
  static final JsonFactory FACTORY =
      new JsonFactoryBuilder()
          .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
          .disable(JsonFactory.Feature.FAIL_ON_SYMBOL_HASH_OVERFLOW)
          // Faster than Java's parser, and as exact for short texts; FloatingNode gives long ones to Java's.
          .enable(StreamReadFeature.USE_FAST_DOUBLE_PARSER)
          .recyclerPool(new Buffers())
          .build();

  private final String text;
  private transient Spec spec;

  /**
   * @param text the contract as {@code pipelines.records.decoder} writes it
   */
  public Decoder(String text) {
    this.text = text;
    this.spec = new Spec(text);
  }

  /**
   * Decode a value.
   *
   * @param document the bytes of a JSON text; null if the record has none
   * @param sent the latest that the record was sent, in microseconds since 1970
   * @return {@code struct<values struct<the contract's columns>, error struct<reason, column, found>>}: no
   *     values for what is no JSON object, no error for a record that keeps its contract
   */
  public InternalRow decode(byte[] document, long sent) {
    if (document == null) {
      return row(null, Faults.ofRecord("null_value"));
    }
    if (!JsonText.isSound(document)) {
      return row(null, Faults.ofRecord("malformed_json"));
    }
    Faults faults = new Faults();
    GenericInternalRow values;
    try (JsonParser parser = FACTORY.createParser(document)) {
      JsonToken first = parser.nextToken();
      boolean isObject = first == JsonToken.START_OBJECT;
      values = isObject ? spec().root.read(parser, faults) : null;
      if (first != null && !isObject) {
        parser.skipChildren();
      }
      if (first == null || parser.nextToken() != null) {
        return row(null, Faults.ofRecord("malformed_json"));
      }
    } catch (IOException noJson) {
      return row(null, Faults.ofRecord("malformed_json"));
    }
    if (values == null) {
      return row(null, Faults.ofRecord("not_an_object"));
    }
    judge(values, sent, faults);
    return row(values, faults.row());
  }

  private void judge(GenericInternalRow values, long sent, Faults faults) {
    Node moment = spec().eventTime;
    Object micros = values.genericGet(spec().eventTimeAt);
    if (micros != null && (long) micros > sent + spec().maxFuture) {
      String shown = Moments.shown((long) micros);
      faults.add(Faults.Phase.FUTURE, 0, "event_time_future", moment, shown);
    }
    if (micros != null && (long) micros < spec().first) {
      faults.add(Faults.Phase.PAST, 0, "event_time_past", moment, Moments.shown((long) micros));
    }
    List<Rule> rules = spec().rules;
    for (int place = 0; place < rules.size() && faults.comesFirst(Faults.Phase.RULE, place); place++) {
      Rule rule = rules.get(place);
      Object value = rule.valueIn(values);
      Rule.Verdict verdict = value == null ? Rule.Verdict.KEPT : rule.verdict().apply(value);
      if (verdict != Rule.Verdict.KEPT) {
        faults.add(Faults.Phase.RULE, place, verdict.reason, rule.node(), Rule.text(value));
      }
    }
  }

  private Spec spec() {
    Spec known = spec;
    if (known == null) {
      // Each executor makes its own; several threads may, and all come to the same.
      known = new Spec(text);
      spec = known;
    }
    return known;
  }

  private static InternalRow row(InternalRow values, InternalRow error) {
    return new GenericInternalRow(new Object[] {values, error});
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof Decoder decoder && decoder.text.equals(text);
  }

  @Override
  public int hashCode() {
    return text.hashCode();
  }

  /** As plans show it, which may be shown and kept anywhere: nothing of the contract's values. */
  @Override
  public String toString() {
    return "contract";
  }
}
