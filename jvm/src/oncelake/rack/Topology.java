package oncelake.rack;

import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Supplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;

/**
 * The racks in which partitions can be read, asked for again and again in the background: a batch
 * takes what is known and does not wait, but for the first answer, and for that not long.
 *
 * <p>These are the racks of in-sync replicas; of the leader alone where it has no
 * `replica.selector.class`, since it then sends no consumer to a follower.
 */
final class Topology implements AutoCloseable {
  private static final int ANSWER_WITHIN_MS = 10_000;
  private static final long FIRST_ANSWER_WITHIN_MS = 3_000;

  private final Supplier<Admin> connect;
  private final long everySeconds;
  private final Set<String> topics = ConcurrentHashMap.newKeySet();
  private final ScheduledExecutorService asking;
  private final Selectors selectors = new Selectors();
  private final CountDownLatch asked = new CountDownLatch(1);
  private Admin admin;
  private boolean hasStarted;
  private boolean isClosed;
  private volatile Map<TopicPartition, Set<String>> racks = Map.of();
  private volatile String failure = "the cluster has not answered yet";

  /**
   * Asks nothing yet.
   *
   * @param connect makes a client of the cluster
   * @param topics those that are known to be read
   * @param everySeconds how often to ask
   */
  Topology(Supplier<Admin> connect, Set<String> topics, long everySeconds) {
    this.connect = connect;
    this.everySeconds = everySeconds;
    this.topics.addAll(topics);
    ScheduledThreadPoolExecutor one =
        new ScheduledThreadPoolExecutor(
            1,
            work -> {
              Thread thread = new Thread(work, "rack-aware-kafka-topology");
              thread.setDaemon(true);
              return thread;
            });
    one.setRemoveOnCancelPolicy(true);
    asking = one;
  }

  /** Begins to ask, if it has not begun. */
  synchronized void start() {
    if (!hasStarted && !isClosed) {
      hasStarted = true;
      asking.scheduleWithFixedDelay(this::ask, 0, everySeconds, TimeUnit.SECONDS);
    }
  }

  /**
   * What is known of partitions.
   *
   * @param read the partitions of a batch; topics that are new are asked for from now on
   * @return the racks of those that are known
   */
  Map<TopicPartition, Set<String>> of(Set<TopicPartition> read) {
    start();
    Set<String> named = new HashSet<>();
    read.forEach(partition -> named.add(partition.topic()));
    if (topics.addAll(named) && !asking.isShutdown()) {
      asking.execute(this::ask);
    }
    try {
      asked.await(FIRST_ANSWER_WITHIN_MS, TimeUnit.MILLISECONDS);
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    }
    return racks;
  }

  /** Why nothing newer is known; empty if the last question was answered. */
  String failure() {
    return failure;
  }

  @Override
  public void close() {
    asking.shutdownNow();
    synchronized (this) {
      isClosed = true;
      disconnect();
    }
  }

  /** The client; a new one after the last one has failed. */
  private synchronized Admin admin() {
    if (isClosed) {
      throw new IllegalStateException("closed");
    }
    if (admin == null) {
      admin = connect.get();
    }
    return admin;
  }

  private synchronized void disconnect() {
    if (admin != null) {
      admin.close(Duration.ZERO);
      admin = null;
    }
  }

  private void ask() {
    if (topics.isEmpty()) {
      return;
    }
    try {
      Admin cluster = admin();
      Map<String, KafkaFuture<TopicDescription>> answers =
          cluster.describeTopics(Set.copyOf(topics), new DescribeTopicsOptions().timeoutMs(ANSWER_WITHIN_MS))
              .topicNameValues();
      askForSelectors(cluster);
      Map<TopicPartition, Set<String>> found = new HashMap<>();
      for (Map.Entry<String, KafkaFuture<TopicDescription>> each : answers.entrySet()) {
        try {
          note(each.getValue().get(ANSWER_WITHIN_MS, TimeUnit.MILLISECONDS), found);
        } catch (ExecutionException refused) {
          if (!(refused.getCause() instanceof UnknownTopicOrPartitionException)) {
            throw refused;
          }
          // Deleted; should it come back, a batch names it again.
          topics.remove(each.getKey());
        }
      }
      racks = found;
      failure = "";
    } catch (InterruptedException stopped) {
      Thread.currentThread().interrupt();
    } catch (Exception | LinkageError problem) {
      Throwable cause = problem.getCause() == null ? problem : problem.getCause();
      failure = cause.getClass().getSimpleName() + ": " + cause.getMessage();
      disconnect();
    } finally {
      asked.countDown();
    }
  }

  /** Asks brokers whether they have a `replica.selector.class`; those that do not answer are as before. */
  private void askForSelectors(Admin cluster) throws InterruptedException {
    try {
      Map<ConfigResource, Integer> brokers = new HashMap<>();
      for (Node node : cluster.describeCluster().nodes().get(ANSWER_WITHIN_MS, TimeUnit.MILLISECONDS)) {
        brokers.put(new ConfigResource(ConfigResource.Type.BROKER, node.idString()), node.id());
      }
      Map<Integer, KafkaFuture<Config>> answers = new HashMap<>();
      cluster
          .describeConfigs(brokers.keySet(), new DescribeConfigsOptions().timeoutMs(ANSWER_WITHIN_MS))
          .values()
          .forEach((broker, answer) -> answers.put(brokers.get(broker), answer));
      selectors.take(answers, ANSWER_WITHIN_MS);
    } catch (ExecutionException | TimeoutException unknown) {
      // The next question may be answered.
    }
  }

  private void note(TopicDescription topic, Map<TopicPartition, Set<String>> found) {
    for (TopicPartitionInfo partition : topic.partitions()) {
      Set<String> named = new TreeSet<>();
      Node leader = partition.leader();
      boolean leaderOnly = leader != null && selectors.isDeaf(leader.id());
      List<Node> readable = leaderOnly ? List.of(leader) : partition.isr();
      for (Node replica : readable) {
        if (replica.hasRack()) {
          named.add(replica.rack());
        }
      }
      found.put(new TopicPartition(topic.name(), partition.partition()), named);
    }
  }
}
