package oncelake.decode;

import com.fasterxml.jackson.core.util.BufferRecycler;
import com.fasterxml.jackson.core.util.RecyclerPool;

/**
 * The buffers of parsers and generators, kept for the next document of a thread.
 *
 * <p>Jackson's own pool keeps them by soft references, whose look-up takes a twentieth of a decode.
 */
final class Buffers extends RecyclerPool.ThreadLocalPoolBase<BufferRecycler> {
  private static final long serialVersionUID = 1L;

  private static final ThreadLocal<BufferRecycler> KEPT = ThreadLocal.withInitial(BufferRecycler::new);

  @Override
  public BufferRecycler acquirePooled() {
    return KEPT.get();
  }
}
