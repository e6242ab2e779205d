package oncelake.store;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options.CreateFileOptionKeys;
import org.apache.hadoop.fs.Path;

/**
 * Commits of Delta that S3 itself puts only if they are absent, whichever JVM they come from.
 *
 * <p>Needs {@code hadoop-aws} 3.4.2 or later, and a store that heeds {@code If-None-Match}.
 */
public final class S3ConditionalLogStore extends S3SingleDriverLogStore {
  private static final String PERFORMANCE = "fs.s3a.create.performance";

  public S3ConditionalLogStore(Configuration hadoopConf) {
    super(hadoopConf);
  }

  @Override
  public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration hadoopConf)
      throws IOException {
    if (overwrite) {
      super.write(path, actions, true, hadoopConf);
      return;
    }
    FileSystem fs = path.getFileSystem(hadoopConf);
    byte[] content = bytes(actions);
    try {
      putIfAbsent(fs, path, content);
    } catch (IllegalArgumentException e) {
      throw new UnsupportedOperationException(
          fs.getScheme() + " cannot put a file only if it is absent: " + e.getMessage(), e);
    } catch (IOException e) {
      // One of many errors says that the file is there: which, differs by store, by the size of the file and by
      // whether the request was sent again. Whose the file is tells it in each case.
      if (!isThere(fs, path, content, e)) {
        throw new FileAlreadyExistsException(path.toString());
      }
    }
  }

  /** Whole, before anything is sent: a stream that fails half way would still put what it has got. */
  private static byte[] bytes(Iterator<String> actions) throws IOException {
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    while (actions.hasNext()) {
      content.write((actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
    }
    return content.toByteArray();
  }

  /** Asks nothing beforehand, so that a store that does not heed the condition is found out by its first trial. */
  private static void putIfAbsent(FileSystem fs, Path path, byte[] content) throws IOException {
    FSDataOutputStreamBuilder<?, ?> builder = fs.createFile(path);
    builder.recursive();
    builder.overwrite(true);
    builder.opt(PERFORMANCE, true);
    builder.must(CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE, true);
    FSDataOutputStream stream = builder.build();
    try {
      stream.write(content);
    } catch (IOException | RuntimeException | Error e) {
      // To close it would put what it has got, for instance when the local disk is full.
      stream.abort();
      throw e;
    }
    stream.close();
  }

  /**
   * Whether a file is there with this very content: then an earlier attempt of the same request has put it.
   * Delta's commits are never alike, for each has an id of its own; of an empty file nobody can tell.
   *
   * @throws IOException the given one, if no file is there at all
   */
  private static boolean isThere(FileSystem fs, Path path, byte[] content, IOException otherwise)
      throws IOException {
    try (InputStream found = fs.open(path)) {
      return content.length > 0 && Arrays.equals(found.readAllBytes(), content);
    } catch (FileNotFoundException e) {
      otherwise.addSuppressed(e);
      throw otherwise;
    }
  }
}
