package oncelake.decode;

import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.function.Supplier;

/**
 * Computes what may call itself too often for the stack of a task's thread, such as Java's matcher of regular
 * expressions, which does so for each repetition of a group.
 *
 * <p>Some kilobytes of text can use up that stack; and an error of that kind ends the executor, and with it the
 * stream.
 */
final class DeepStack {
  private static final long STACK_BYTES = 64L << 20;

  private DeepStack() {}

  /**
   * Compute a value, on a larger stack if this one is too small.
   *
   * @param otherwise the value if it takes more stack than any thread is given
   */
  static <T> T compute(Supplier<T> value, T otherwise) {
    try {
      return value.get();
    } catch (StackOverflowError tooDeep) {
      return computeApart(value, otherwise);
    }
  }

  private static <T> T computeApart(Supplier<T> value, T otherwise) {
    FutureTask<T> computed = new FutureTask<>(value::get);
    Thread apart = new Thread(null, computed, "oncelake-deep", STACK_BYTES);
    apart.setDaemon(true);
    apart.start();
    try {
      return computed.get();
    } catch (ExecutionException failed) {
      if (failed.getCause() instanceof StackOverflowError) {
        return otherwise;
      }
      // No value: the task fails by it, as it would have by the same on its own stack.
      if (failed.getCause() instanceof Error error) {
        throw error;
      }
      throw failed.getCause() instanceof RuntimeException error ? error : new IllegalStateException(failed);
    } catch (InterruptedException ended) {
      // The task was ended; its rows count for nothing.
      Thread.currentThread().interrupt();
      throw new IllegalStateException("the task was ended while a pattern was looked for", ended);
    }
  }
}
