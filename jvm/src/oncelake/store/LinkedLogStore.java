package oncelake.store;

import io.delta.storage.HDFSLogStore;
import java.io.File;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.util.EnumSet;
import java.util.Iterator;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.Path;

/**
 * Commits of Delta on a local file system, which itself puts one only if it is absent, whichever JVM it comes from.
 *
 * <p>Hadoop looks whether a file is there, and then renames another one to its name: of two writers that look at
 * once, the second replaces the commit of the first. A hard link is made in one step, or not at all.
 */
public final class LinkedLogStore extends HDFSLogStore {
  public LinkedLogStore(Configuration hadoopConf) {
    super(hadoopConf);
  }

  @Override
  public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration hadoopConf)
      throws IOException {
    if (overwrite) {
      super.write(path, actions, true, hadoopConf);
      return;
    }
    Path written = createTempPath(path);
    try {
      writeWhole(written, actions, hadoopConf);
      link(path, written);
      // From here on the commit is made, and nothing may say that it is not.
      passOn(checksum(written).toPath(), checksum(path).toPath());
    } finally {
      deleteIfPossible(file(written).toPath());
      deleteIfPossible(checksum(written).toPath());
    }
  }

  private static void writeWhole(Path path, Iterator<String> actions, Configuration hadoopConf)
      throws IOException {
    FileContext context = FileContext.getFileContext(path.toUri(), hadoopConf);
    try (FSDataOutputStream stream = context.create(path, EnumSet.of(CreateFlag.CREATE))) {
      while (actions.hasNext()) {
        stream.write((actions.next() + "\n").getBytes(StandardCharsets.UTF_8));
      }
    }
  }

  private static void link(Path path, Path written) throws IOException {
    java.nio.file.Path commit = file(path).toPath();
    java.nio.file.Path whole = file(written).toPath();
    try {
      Files.createLink(commit, whole);
    } catch (FileAlreadyExistsException e) {
      // A server whose answer was lost has made the link, and is asked once more.
      if (!Files.isSameFile(commit, whole)) {
        throw new FileAlreadyExistsException(path.toString());
      }
    } catch (UnsupportedOperationException e) {
      throw without(path, e);
    } catch (FileSystemException e) {
      throw String.valueOf(e.getReason()).matches("Operation not (permitted|supported)") ? without(path, e) : e;
    }
  }

  private static IOException without(Path path, Exception e) {
    return new IOException(
        path + ": no hard link can be made there (" + e.getMessage()
            + "); a lake on a local file system needs one that has hard links", e);
  }

  /** Also to the place of a checksum that an earlier commit of the number has left, when it was moved away. */
  private static void passOn(java.nio.file.Path from, java.nio.file.Path to) {
    try {
      Files.move(from, to, StandardCopyOption.REPLACE_EXISTING);
    } catch (IOException e) {
      // Without one, Hadoop compares with none.
      deleteIfPossible(to);
    }
  }

  private static void deleteIfPossible(java.nio.file.Path file) {
    try {
      Files.deleteIfExists(file);
    } catch (IOException e) {
      // It is beside the log, and no reader looks at it.
    }
  }

  private static File file(Path path) {
    return new File(path.toUri().getPath());
  }

  /** Where Hadoop keeps the checksum of a local file. */
  private static File checksum(Path path) {
    return file(new Path(path.getParent(), "." + path.getName() + ".crc"));
  }
}
