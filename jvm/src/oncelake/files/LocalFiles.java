package oncelake.files;

import org.apache.hadoop.fs.LocalFileSystem;

/** {@link RawLocalFiles} as Hadoop's {@code FileSystem}; for {@code fs.file.impl}. */
public final class LocalFiles extends LocalFileSystem {
  public LocalFiles() {
    super(new RawLocalFiles());
  }
}
