package oncelake.rack;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * Gives each range to an executor in a rack that holds a replica of it, so that no executor has more to
 * read than its cores are worth, as far as the racks allow.
 *
 * <p>Racks come first: ranges are moved between them along paths of several racks, since the one with too
 * much may be able to give only to one that is full, which can give on. Within a rack all executors are
 * equally near, so there the ranges are only balanced. What an executor had before it keeps, for its
 * connections and fetched bytes, until the loads lie too far apart. Where racks leave an executor with twice
 * its share, others read for it, see {@link Lending}.
 */
public final class Assignment {
  /** How far a load may lie above the one it could be balanced with before anything that is settled moves. */
  private static final double SETTLED = 1.25;

  /** How many records too many do not move anything that is settled: connections cost more. */
  private static final long NOT_WORTH_A_MOVE = 5_000;

  /** How long balancing may take: a batch that is read a little unevenly is better than one that waits. */
  private static final long WITHIN_NS = 300_000_000L;

  /** What balancing aims at once it has begun. */
  private static final double BALANCED = 1.05;

  /** How often ranges are balanced anew after some were lent. */
  private static final int ROUNDS = 3;

  private static final Comparator<Range> LARGEST_FIRST =
      Comparator.comparingLong(Range::records).reversed().thenComparing(Range::name);

  private final Map<String, Bin> racks = new TreeMap<>();
  private final Map<String, Executor> executors = new LinkedHashMap<>();
  private final Map<String, Long> taken;
  private final Map<String, Set<String>> allowed = new HashMap<>();
  private final long until = System.nanoTime() + WITHIN_NS;

  private Assignment(Collection<Executor> running, Map<String, Long> taken) {
    this.taken = taken;
    running.stream().sorted(Comparator.comparing(Executor::id)).forEach(each -> executors.put(each.id(), each));
    for (Executor each : executors.values()) {
      Bin rack = racks.computeIfAbsent(each.rack(), Bin::new);
      rack.capacity += each.cores();
      rack.load += taken.getOrDefault(each.id(), 0L);
    }
  }

  /**
   * Assigns ranges.
   *
   * @param ranges what is to be read
   * @param running the executors; at least one
   * @param before who read which range in the batch before, by the names of ranges and the ids of executors
   * @return the executor of each range, by their names
   */
  public static Map<String, Executor> assign(
      List<Range> ranges, Collection<Executor> running, Map<String, String> before) {
    Lending lending = new Lending(ranges, running, before);
    Map<String, String> settled = new HashMap<>(before);
    Map<String, Executor> found = nearby(lending, running, settled);
    for (int time = 0; time < ROUNDS && lending.change(found); time++) {
      found.forEach((name, executor) -> settled.put(name, executor.id()));
      found = nearby(lending, running, settled);
    }
    found.putAll(lending.lent());
    return found;
  }

  private static Map<String, Executor> nearby(
      Lending lending, Collection<Executor> running, Map<String, String> before) {
    Assignment made = new Assignment(running, lending.loads());
    made.toRacks(lending.others(), before);
    Map<String, Executor> found = new HashMap<>();
    made.racks.values().forEach(rack -> made.toExecutors(rack, before, found));
    return found;
  }

  /**
   * The racks in which a range would be read locally.
   *
   * @return those that have executors; none if the range is remote to all
   */
  static Set<String> near(Range range, Set<String> withExecutors) {
    Set<String> near = new TreeSet<>(range.racks());
    near.retainAll(withExecutors);
    near.remove("");
    return near;
  }

  private Set<String> allowed(Range range) {
    return allowed.computeIfAbsent(
        range.name(),
        name -> {
          Set<String> near = near(range, racks.keySet());
          return near.isEmpty() ? racks.keySet() : near;
        });
  }

  private void toRacks(List<Range> ranges, Map<String, String> before) {
    List<Range> fresh = new ArrayList<>();
    for (Range range : ranges) {
      Executor last = executors.get(before.getOrDefault(range.name(), ""));
      if (last != null && allowed(range).contains(last.rack())) {
        racks.get(last.rack()).add(range);
      } else {
        fresh.add(range);
      }
    }
    fresh.sort(LARGEST_FIRST);
    for (Range range : fresh) {
      leastWith(allowed(range).stream().map(racks::get).toList(), range).add(range);
    }
    balance(racks.values(), ranges.size(), before.isEmpty(), (range, to) -> allowed(range).contains(to.name));
  }

  private void toExecutors(Bin rack, Map<String, String> before, Map<String, Executor> found) {
    Map<String, Bin> bins = new LinkedHashMap<>();
    Map<String, Bin> hosts = new HashMap<>();
    for (Executor each : executors.values()) {
      if (each.rack().equals(rack.name)) {
        Bin bin = new Bin(each.id(), each.cores(), hosts.computeIfAbsent(each.host(), Bin::new));
        bin.load += taken.getOrDefault(each.id(), 0L);
        bins.put(each.id(), bin);
      }
    }
    List<Range> fresh = new ArrayList<>();
    for (Range range : rack.ranges) {
      Bin last = bins.get(before.getOrDefault(range.name(), ""));
      if (last == null) {
        fresh.add(range);
      } else {
        last.add(range);
      }
    }
    fresh.sort(LARGEST_FIRST);
    fresh.forEach(range -> leastWith(bins.values(), range).add(range));
    int count = rack.ranges.size();
    balance(bins.values(), count, fresh.size() == count, (range, to) -> true);
    bins.forEach((id, bin) -> bin.ranges.forEach(range -> found.put(range.name(), executors.get(id))));
  }

  /** Moves ranges one by one until no bin lies too far above those it could share with. */
  private void balance(Collection<Bin> bins, int ranges, boolean isFresh, May may) {
    double limit = isFresh ? BALANCED : SETTLED;
    long surplus = isFresh ? 0 : NOT_WORTH_A_MOVE;
    for (int step = 0; step < 2 * ranges && System.nanoTime() < until; step++) {
      if (!relieve(bins, limit, surplus, may)) {
        return;
      }
      limit = BALANCED;
      surplus = 0;
    }
  }

  private static Bin leastWith(Collection<Bin> bins, Range range) {
    Comparator<Bin> byLoad = Comparator.comparingDouble(bin -> (bin.load + range.records()) / bin.capacity);
    return bins.stream()
        // Of equals not always the first, which other streams would choose as well.
        .min(
            byLoad
                .thenComparingDouble(Bin::ofHost)
                .thenComparingInt(bin -> Objects.hash(range.name(), bin.name) * 0x9E3779B9)
                .thenComparing(bin -> bin.name))
        .orElseThrow();
  }

  private interface May {
    boolean go(Range range, Bin to);
  }

  /**
   * Takes a range from the fullest bin that can be relieved, along the path to the emptiest it leads to.
   *
   * @param limit by which factor a bin must lie above what it would have if it shared with the path's end
   * @param surplus and by how many records at least
   * @return whether anything was moved
   */
  private static boolean relieve(Collection<Bin> bins, double limit, long surplus, May may) {
    double lowest = bins.stream().mapToDouble(Bin::level).min().orElse(0);
    List<Bin> fullest = new ArrayList<>(bins);
    fullest.sort(Comparator.comparingDouble(Bin::level).reversed().thenComparing(bin -> bin.name));
    for (Bin from : fullest) {
      if (from.level() <= limit * lowest || from.load <= surplus) {
        return false;
      }
      Map<Bin, Bin> cameFrom = reachable(from, bins, may);
      List<Bin> ends = new ArrayList<>(cameFrom.keySet());
      ends.sort(Comparator.comparingDouble(Bin::level).thenComparing(bin -> bin.name));
      for (Bin end : ends) {
        double shared = (from.load + end.load) / (from.capacity + end.capacity);
        double wanted = from.load - shared * from.capacity;
        if (from.level() <= limit * shared || wanted <= surplus) {
          break;
        }
        if (move(from, end, cameFrom, wanted, may)) {
          return true;
        }
      }
    }
    return false;
  }

  /** The bins to which others lead, each with the one before it on the shortest path. */
  private static Map<Bin, Bin> reachable(Bin from, Collection<Bin> bins, May may) {
    Map<Bin, Bin> cameFrom = new LinkedHashMap<>();
    Deque<Bin> next = new ArrayDeque<>(List.of(from));
    while (!next.isEmpty() && cameFrom.size() < bins.size() - 1) {
      Bin bin = next.remove();
      for (Bin to : bins) {
        if (to != from && !cameFrom.containsKey(to) && bin.ranges.stream().anyMatch(r -> may.go(r, to))) {
          cameFrom.put(to, bin);
          next.add(to);
        }
      }
    }
    return cameFrom;
  }

  /** Moves one range over each hop of a path, of about the wanted size, if the fullest of its bins gains. */
  private static boolean move(Bin from, Bin end, Map<Bin, Bin> cameFrom, double wanted, May may) {
    List<Bin> path = new ArrayList<>();
    for (Bin bin = end; bin != from; bin = cameFrom.get(bin)) {
      path.add(0, bin);
    }
    List<Range> moved = new ArrayList<>();
    Map<Bin, Double> load = new HashMap<>(Map.of(from, (double) from.load));
    Bin giver = from;
    for (Bin taker : path) {
      Range closest = null;
      for (Range range : giver.ranges) {
        boolean isCloser =
            closest == null || Math.abs(range.records() - wanted) < Math.abs(closest.records() - wanted);
        if (isCloser && may.go(range, taker)) {
          closest = range;
        }
      }
      if (closest == null) {
        return false;
      }
      moved.add(closest);
      load.merge(giver, (double) -closest.records(), Double::sum);
      load.merge(taker, (double) taker.load + closest.records(), Double::sum);
      giver = taker;
    }
    double before = from.level();
    if (load.entrySet().stream().anyMatch(each -> each.getValue() / each.getKey().capacity >= before)) {
      return false;
    }
    giver = from;
    for (int hop = 0; hop < path.size(); hop++) {
      giver.remove(moved.get(hop));
      path.get(hop).add(moved.get(hop));
      giver = path.get(hop);
    }
    return true;
  }

  /** A rack, a host or an executor, with what it has to read. */
  private static final class Bin {
    final String name;
    final Set<Range> ranges = new LinkedHashSet<>();
    final Bin host;
    int capacity;
    long load;

    Bin(String name) {
      this(name, 0, null);
    }

    Bin(String name, int capacity, Bin host) {
      this.name = name;
      this.capacity = capacity;
      this.host = host;
      if (host != null) {
        host.capacity += capacity;
      }
    }

    void add(Range range) {
      ranges.add(range);
      load += range.records();
      if (host != null) {
        host.load += range.records();
      }
    }

    void remove(Range range) {
      ranges.remove(range);
      load -= range.records();
      if (host != null) {
        host.load -= range.records();
      }
    }

    double level() {
      return (double) load / capacity;
    }

    /** How full the host is, of which others may have a part. */
    double ofHost() {
      return host == null ? 0 : host.level();
    }
  }
}
