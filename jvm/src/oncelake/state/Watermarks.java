package oncelake.state;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;

/**
 * The watermarks by which the micro-batches of a query evict state. Spark writes each into the checkpoint
 * before the micro-batch begins, and never changes it: a micro-batch that is done again has the same.
 */
final class Watermarks {
  private static final String WATERMARK = "batchWatermarkMs";
  private static final String RUN = "sql.streaming.runId";
  private static final int KNOWN = 256;
  private static final ObjectMapper JSON = new ObjectMapper();
  // All partitions of a JVM ask for the same two.
  private static final Map<String, Long> READ =
      Collections.synchronizedMap(
          new LinkedHashMap<>() {
            private static final long serialVersionUID = 1;

            @Override
            protected boolean removeEldestEntry(Map.Entry<String, Long> eldest) {
              return size() > KNOWN;
            }
          });

  private final Path offsets;
  private final Configuration hadoop;

  /**
   * Reads nothing yet.
   *
   * @param id the state, which says where the checkpoint is
   * @param hadoop the settings of its file system
   */
  Watermarks(StateStoreId id, Configuration hadoop) {
    offsets = new Path(new Path(id.checkpointRootLocation()).getParent(), "offsets");
    this.hadoop = hadoop;
  }

  /**
   * The watermark of a micro-batch, in milliseconds since 1970.
   *
   * @throws IllegalStateException if the checkpoint does not say
   */
  long of(long batch) {
    Path file = new Path(offsets, Long.toString(batch));
    // Another run may have another checkpoint in the same place.
    String known = hadoop.get(RUN, "") + " " + file;
    Long found = READ.get(known);
    if (found == null) {
      found = read(file);
      READ.put(known, found);
    }
    return found;
  }

  private long read(Path file) {
    try (BufferedReader text =
        new BufferedReader(
            new InputStreamReader(file.getFileSystem(hadoop).open(file), StandardCharsets.UTF_8))) {
      String version = text.readLine();
      String metadata = text.readLine();
      JsonNode watermark = metadata == null ? null : JSON.readTree(metadata).get(WATERMARK);
      if (watermark == null || !watermark.isIntegralNumber()) {
        throw new IOException("expected " + WATERMARK + " in the second line, got " + version + ", " + metadata);
      }
      return watermark.longValue();
    } catch (IOException unreadable) {
      throw new IllegalStateException(
          file + ": cannot tell the watermark of the micro-batch: " + unreadable.getMessage()
              + "; restore the file, or use Spark's own state store, see docs/runbook.md, 'The state store'",
          unreadable);
    }
  }
}
