package oncelake.decode;

import com.fasterxml.jackson.core.util.BufferRecycler;
import com.fasterxml.jackson.core.util.RecyclerPool;

/**
 * The buffers of parsers, kept for the next document of a thread.
 *
 * <p>Jackson's own pool keeps them by soft references, whose look-up takes a twentieth of a decode.
 */
final class Buffers implements RecyclerPool<BufferRecycler> {
  private static final long serialVersionUID = 1L;

  private static final ThreadLocal<BufferRecycler[]> KEPT =
      ThreadLocal.withInitial(() -> new BufferRecycler[1]);

  @Override
  public BufferRecycler acquirePooled() {
    BufferRecycler[] kept = KEPT.get();
    BufferRecycler buffers = kept[0];
    // A value that is copied while another one is read has buffers of its own.
    kept[0] = null;
    return buffers == null ? new BufferRecycler() : buffers;
  }

  @Override
  public void releasePooled(BufferRecycler buffers) {
    KEPT.get()[0] = buffers;
  }
}
