package oncelake.rack;

import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerInterceptor;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.status.api.v1.ExecutorSummary;
import org.apache.spark.util.Utils;
import scala.Option;
import scala.Product;
import scala.jdk.javaapi.CollectionConverters;

/**
 * All that depends on what is not Spark's public interface. Each piece is looked for when a stream starts,
 * and where one is missing the stream is left to Spark's own source.
 */
final class SparkInternals {
  private static final String KAFKA = "org.apache.spark.sql.kafka010.";
  private static final String RACK = "RACK";

  private final Method offsetRange;
  private final Constructor<?> newPartition;
  private final Constructor<?> newRange;
  private final Constructor<?> newPlaced;
  private final int rangeAt;
  private final int settingsAt;
  private final int locationAt;
  private final Method topicPartition;
  private final Method fromOffset;
  private final Method untilOffset;

  private SparkInternals() throws ReflectiveOperationException {
    Class<?> partition = load(KAFKA + "KafkaBatchInputPartition");
    Class<?> range = load(KAFKA + "KafkaOffsetRange");
    offsetRange = partition.getMethod("offsetRange");
    topicPartition = range.getMethod("topicPartition");
    fromOffset = range.getMethod("fromOffset");
    untilOffset = range.getMethod("untilOffset");
    newPartition = partition.getConstructors()[0];
    newRange = range.getConstructors()[0];
    newPlaced = PlacedPartition.class.getConstructors()[0];
    rangeAt = List.of(newPartition.getParameterTypes()).indexOf(range);
    settingsAt = List.of(newPartition.getParameterTypes()).indexOf(Map.class);
    locationAt = List.of(newRange.getParameterTypes()).indexOf(Option.class);
    if (rangeAt < 0 || settingsAt < 0 || locationAt < 0 || !Product.class.isAssignableFrom(partition)) {
      throw new NoSuchMethodException("a range's preferred location, or the settings of its client");
    }
    range.getMethod("preferredLoc");
  }

  /**
   * Looks for everything that is needed.
   *
   * @return what reaches it
   * @throws IllegalStateException if something of it is missing; the message says what
   */
  static SparkInternals find() {
    try {
      SparkInternals found = new SparkInternals();
      executors();
      return found;
    } catch (ReflectiveOperationException | LinkageError | RuntimeException missing) {
      throw new IllegalStateException("this Spark's Kafka source is not as expected: " + missing, missing);
    }
  }

  /** Spark's own source. */
  static TableProvider kafkaSource() {
    try {
      return (TableProvider) load(KAFKA + "KafkaSourceProvider").getConstructor().newInstance();
    } catch (ReflectiveOperationException missing) {
      throw new IllegalStateException(
          "Spark's Kafka source is not on the class path: add spark-sql-kafka-0-10 to --jars", missing);
    }
  }

  /**
   * The settings of the client by which Spark's own source asks the cluster, from an option's map; with the
   * delegation token that it would use now, if there is one.
   */
  static Map<String, Object> driverSettings(Map<String, String> options) {
    Map<String, String> named = new HashMap<>();
    options.forEach(
        (key, value) -> {
          if (key.toLowerCase(Locale.ROOT).startsWith("kafka.")) {
            named.put(key.substring("kafka.".length()), value);
          }
        });
    try {
      Object params = scala.collection.immutable.Map.from(CollectionConverters.asScala(named));
      Object made =
          load(KAFKA + "KafkaSourceProvider")
              .getMethod("kafkaParamsForDriver", scala.collection.immutable.Map.class)
              .invoke(null, params);
      @SuppressWarnings("unchecked")
      Map<String, Object> driver = new HashMap<>((Map<String, Object>) made);
      return authenticated(driver);
    } catch (ReflectiveOperationException | LinkageError missing) {
      return new HashMap<>(named);
    }
  }

  private static Map<String, Object> authenticated(Map<String, Object> driver)
      throws ReflectiveOperationException {
    Class<?> updater = load("org.apache.spark.kafka010.KafkaConfigUpdater");
    Object made =
        updater
            .getConstructor(String.class, scala.collection.immutable.Map.class)
            .newInstance("rack-aware-kafka", scala.collection.immutable.Map.from(CollectionConverters.asScala(driver)));
    Object updated = updater.getMethod("setAuthenticationConfigIfNeeded").invoke(made);
    @SuppressWarnings("unchecked")
    Map<String, Object> settings = (Map<String, Object>) updater.getMethod("build").invoke(updated);
    return new HashMap<>(settings);
  }

  /** The executors that run now, with the racks that they have told. */
  static List<Executor> executors() {
    List<Executor> found = new ArrayList<>();
    var summaries = SparkSession.active().sparkContext().statusStore().executorList(true);
    for (ExecutorSummary each : CollectionConverters.asJava(summaries)) {
      // One that is just starting has no port yet, and takes no tasks.
      int port = each.hostPort().lastIndexOf(':');
      if (!each.id().equals("driver") && !each.isExcluded() && port > 0) {
        String rack = CollectionConverters.asJava(each.attributes()).get(RACK);
        String named = RackProvider.resolved(rack);
        if (named.isEmpty()) {
          // On YARN executors have attributes of YARN alone, whatever their environment says.
          named = RackPlugin.racks().getOrDefault(each.id(), "");
        }
        found.add(new Executor(each.id(), each.hostPort().substring(0, port), named, each.totalCores()));
      }
    }
    return found;
  }

  /** What a partition of the plan reads; nothing if it is not one of Spark's Kafka source. */
  Optional<Read> read(InputPartition partition) {
    if (!newPartition.getDeclaringClass().isInstance(partition)) {
      return Optional.empty();
    }
    try {
      Object range = offsetRange.invoke(partition);
      return Optional.of(
          new Read(
              (TopicPartition) topicPartition.invoke(range),
              (long) fromOffset.invoke(range),
              (long) untilOffset.invoke(range)));
    } catch (ReflectiveOperationException failed) {
      throw new IllegalStateException(failed);
    }
  }

  /** The same partition of the plan, to be read at the first of some locations if it has room in time. */
  InputPartition at(InputPartition partition, List<String> locations) {
    try {
      Object[] ofRange = values((Product) offsetRange.invoke(partition));
      ofRange[locationAt] = Option.apply(locations.get(0));
      Object[] ofPartition = values((Product) partition);
      ofPartition[rangeAt] = newRange.newInstance(ofRange);
      Object[] placed = Arrays.copyOf(ofPartition, ofPartition.length + 1);
      placed[ofPartition.length] = locations;
      return (InputPartition) newPlaced.newInstance(placed);
    } catch (ReflectiveOperationException failed) {
      throw new IllegalStateException(failed);
    }
  }

  /** The same partition of the plan, whose client has an interceptor; as it is if it is not of Spark's Kafka source. */
  InputPartition intercepted(InputPartition partition, Class<? extends ConsumerInterceptor<?, ?>> interceptor) {
    if (!newPartition.getDeclaringClass().isInstance(partition)) {
      return partition;
    }
    try {
      Object[] ofPartition = values((Product) partition);
      Map<Object, Object> settings = new HashMap<>((Map<?, ?>) ofPartition[settingsAt]);
      settings.put(ConsumerConfig.INTERCEPTOR_CLASSES_CONFIG, interceptor.getName());
      ofPartition[settingsAt] = settings;
      return (InputPartition) newPartition.newInstance(ofPartition);
    } catch (ReflectiveOperationException failed) {
      throw new IllegalStateException(failed);
    }
  }

  private static Object[] values(Product of) {
    return CollectionConverters.asJavaCollection(of.productIterator().toList()).toArray();
  }

  private static Class<?> load(String name) throws ClassNotFoundException {
    return Class.forName(name, true, Utils.getContextOrSparkClassLoader());
  }

  /**
   * A range of offsets.
   *
   * @param partition of which partition
   * @param from its first offset
   * @param until the offset after its last
   */
  record Read(TopicPartition partition, long from, long until) {}
}
