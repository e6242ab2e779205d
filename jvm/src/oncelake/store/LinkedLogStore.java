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
      // Also in the place of one that a commit of this number has left, which somebody has moved away.
      if (checksum(written).exists()) {
        Files.move(checksum(written).toPath(), checksum(path).toPath(), StandardCopyOption.REPLACE_EXISTING);
      }
    } finally {
      Files.deleteIfExists(file(written).toPath());
      Files.deleteIfExists(checksum(written).toPath());
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
    try {
      Files.createLink(file(path).toPath(), file(written).toPath());
    } catch (FileAlreadyExistsException e) {
      throw new FileAlreadyExistsException(path.toString());
    } catch (FileSystemException | UnsupportedOperationException e) {
      throw new IOException(
          path + " cannot be committed, as no hard link can be made there (" + e.getMessage()
              + "); a lake needs a file system that has hard links",
          e);
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
