package oncelake.files;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;

/** Files of a table that have been there for some time, listed without a job. */
public final class OldFiles {
  private static final String LOG = "_delta_log";

  private OldFiles() {}

  /**
   * Lists the files below the folder of a table, but for its log.
   *
   * @param system the file system
   * @param folder the folder
   * @param before the time, in milliseconds since 1970, before which a file was last changed
   * @param most how many files and folders are listed at most
   * @return their paths, relative to the folder; null if there are more, or one cannot be read
   */
  public static List<String> below(FileSystem system, Path folder, long before, int most) {
    try {
      return listed(system, folder, before, most);
    } catch (IOException error) {
      // Others may delete what is listed meanwhile, and a store may refuse for a while.
      return null;
    }
  }

  private static List<String> listed(FileSystem system, Path folder, long before, int most)
      throws IOException {
    List<String> found = new ArrayList<>();
    Path root = system.makeQualified(folder);
    int prefix = root.toUri().getPath().length() + 1;
    Deque<Path> folders = new ArrayDeque<>(List.of(root));
    int looked = 0;
    while (!folders.isEmpty()) {
      RemoteIterator<FileStatus> entries = system.listStatusIterator(folders.pop());
      while (entries.hasNext()) {
        FileStatus entry = entries.next();
        if (++looked > most) {
          return null;
        }
        if (entry.isDirectory()) {
          boolean isLog = entry.getPath().equals(new Path(root, LOG));
          if (!isLog) {
            folders.add(entry.getPath());
          }
        } else if (entry.getModificationTime() < before) {
          found.add(entry.getPath().toUri().getPath().substring(prefix));
        }
      }
    }
    return found;
  }
}
