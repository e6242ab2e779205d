package oncelake.state;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import org.apache.spark.sql.execution.streaming.state.StateStore;

/** Whether this Spark has what {@link DeduplicationStateProvider} is made for. */
public final class Capability {
  private Capability() {}

  /**
   * What is missing.
   *
   * @return it in words; empty if nothing is
   */
  public static String missing() {
    try {
      new DeduplicationStateProvider().supportedCustomMetrics();
      for (Method method : StateStore.class.getMethods()) {
        if (Modifier.isAbstract(method.getModifiers()) && !isImplemented(method)) {
          return "its StateStore has a method that is not known: " + method.getName();
        }
      }
      return "";
    } catch (LinkageError | RuntimeException missing) {
      return missing.toString();
    }
  }

  private static boolean isImplemented(Method method) {
    try {
      Method ours = DeduplicationStore.class.getMethod(method.getName(), method.getParameterTypes());
      return !Modifier.isAbstract(ours.getModifiers());
    } catch (NoSuchMethodException missing) {
      return false;
    }
  }
}
