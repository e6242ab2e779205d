package oncelake.state;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
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
      // Made for another interface, our methods would be there, and nobody would call them.
      for (Method ours : DeduplicationStateProvider.class.getDeclaredMethods()) {
        if (Modifier.isPublic(ours.getModifiers()) && !isConcrete(RocksDBStateStoreProvider.class, ours)) {
          return "its RocksDBStateStoreProvider has no method " + ours.getName() + " as expected";
        }
      }
      for (Method spark : StateStore.class.getMethods()) {
        if (!isConcrete(DeduplicationStore.class, spark)) {
          return "its StateStore has a method that is not known: " + spark.getName();
        }
      }
      return "";
    } catch (LinkageError missing) {
      return missing.toString();
    }
  }

  private static boolean isConcrete(Class<?> type, Method method) {
    if (Modifier.isStatic(method.getModifiers())) {
      return true;
    }
    try {
      Method found = type.getMethod(method.getName(), method.getParameterTypes());
      return !Modifier.isAbstract(found.getModifiers());
    } catch (NoSuchMethodException missing) {
      return false;
    }
  }
}
