package oncelake.rack;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.lang.reflect.Proxy;
import java.nio.channels.ClosedByInterruptException;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.Set;
import java.util.concurrent.ExecutionException;

/**
 * Stands for an object of Spark's Kafka source by all its public interfaces, so that whatever Spark asks of
 * it by way of an interface still reaches it; some answers are changed on their way back.
 */
final class Delegate implements InvocationHandler {
  /** Changes an answer. */
  interface Change {
    /**
     * What is given in place of an answer.
     *
     * @param method the name of the method
     * @param arguments what it was called with
     * @param answer what the object itself has answered
     */
    Object of(String method, Object[] arguments, Object answer);
  }

  private final Object target;
  private final Change change;

  private Delegate(Object target, Change change) {
    this.target = target;
    this.change = change;
  }

  /** An object that does what the target does, but for changed answers. */
  static Object of(Object target, Change change) {
    Set<Class<?>> interfaces = new LinkedHashSet<>();
    for (Class<?> type = target.getClass(); type != null; type = type.getSuperclass()) {
      collect(type, interfaces);
    }
    return Proxy.newProxyInstance(
        Delegate.class.getClassLoader(), interfaces.toArray(Class<?>[]::new), new Delegate(target, change));
  }

  private static void collect(Class<?> type, Set<Class<?>> interfaces) {
    for (Class<?> each : type.getInterfaces()) {
      if (Modifier.isPublic(each.getModifiers()) && interfaces.add(each)) {
        collect(each, interfaces);
      }
    }
  }

  @Override
  public Object invoke(Object proxy, Method method, Object[] arguments) throws Throwable {
    if (method.getDeclaringClass() == Object.class) {
      return switch (method.getName()) {
        case "equals" -> proxy == arguments[0];
        case "hashCode" -> System.identityHashCode(proxy);
        default -> target.toString();
      };
    }
    Object answer;
    try {
      answer = method.invoke(target, arguments);
    } catch (InvocationTargetException thrown) {
      throw throwable(method, thrown.getCause());
    }
    return change.of(method.getName(), arguments, answer);
  }

  /**
   * What may be thrown in place of a cause. Scala declares nothing, and a proxy would hide what is not
   * declared; a query that is stopped has to be seen as stopped.
   */
  private static Throwable throwable(Method method, Throwable cause) {
    boolean isDeclared = Arrays.stream(method.getExceptionTypes()).anyMatch(type -> type.isInstance(cause));
    if (isDeclared || cause instanceof RuntimeException || cause instanceof Error) {
      return cause;
    }
    // These Spark takes for an interruption, if they come unchecked.
    if (cause instanceof InterruptedIOException || cause instanceof ClosedByInterruptException) {
      return new UncheckedIOException((IOException) cause);
    }
    if (cause instanceof InterruptedException) {
      InterruptedIOException interrupted = new InterruptedIOException(cause.getMessage());
      interrupted.initCause(cause);
      return new UncheckedIOException(interrupted);
    }
    if (cause instanceof ExecutionException && cause.getCause() != null) {
      return throwable(method, cause.getCause());
    }
    return new IllegalStateException(cause.toString(), cause);
  }
}
