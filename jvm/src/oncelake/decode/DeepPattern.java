package oncelake.decode;

import java.util.concurrent.atomic.AtomicBoolean;
import java.util.regex.Pattern;

/**
 * Finds a regular expression in a text, however long that is.
 *
 * <p>Java's matcher calls itself for each repetition of a group, so some kilobytes of text can use up the stack
 * of a task's thread; and an error of that kind ends the executor, and with it the stream.
 */
final class DeepPattern {
  private static final long STACK_BYTES = 64L << 20;

  private DeepPattern() {}

  /** Whether the text has the pattern; false if to find out takes more stack than any thread is given. */
  static boolean isIn(String text, Pattern pattern) {
    try {
      return pattern.matcher(text).find();
    } catch (StackOverflowError tooDeep) {
      return isInApart(text, pattern);
    }
  }

  private static boolean isInApart(String text, Pattern pattern) {
    AtomicBoolean isFound = new AtomicBoolean();
    Runnable look =
        () -> {
          try {
            isFound.set(pattern.matcher(text).find());
          } catch (StackOverflowError tooDeep) {
            isFound.set(false);
          }
        };
    Thread apart = new Thread(null, look, "oncelake-pattern", STACK_BYTES);
    apart.setDaemon(true);
    apart.start();
    try {
      apart.join();
    } catch (InterruptedException ended) {
      // The task was ended; its rows count for nothing.
      Thread.currentThread().interrupt();
      throw new IllegalStateException("the task was ended while a pattern was looked for", ended);
    }
    return isFound.get();
  }
}
