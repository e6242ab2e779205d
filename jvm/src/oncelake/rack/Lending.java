package oncelake.rack;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.function.Predicate;
import java.util.stream.Collectors;

/**
 * Ranges that are read away from their racks, so that no executor has twice its share to read while others
 * have less than theirs: a batch takes as long as its fullest executor.
 *
 * <p>A share is what a core would read if everything were spread over all. What is lent stays lent as long
 * as the emptiest executor near it has something to read, and would have more than its share with it.
 */
final class Lending {
  private static final double TOO_MUCH = 2;

  private static final Comparator<Range> LARGEST_FIRST =
      Comparator.comparingLong(Range::records).reversed().thenComparing(Range::name);

  private final Map<String, Executor> executors = new LinkedHashMap<>();
  private final Map<String, Executor> lent = new HashMap<>();
  private final List<Range> ranges;
  private final Set<String> racks;
  private final double share;

  /**
   * Takes what was lent in the batch before for lent.
   *
   * @param ranges what is to be read
   * @param running the executors
   * @param before who read which range in the batch before
   */
  Lending(Collection<Range> ranges, Collection<Executor> running, Map<String, String> before) {
    this.ranges = new ArrayList<>(ranges);
    this.ranges.sort(LARGEST_FIRST);
    running.stream().sorted(Comparator.comparing(Executor::id)).forEach(each -> executors.put(each.id(), each));
    racks = executors.values().stream().map(Executor::rack).collect(Collectors.toSet());
    double cores = executors.values().stream().mapToInt(Executor::cores).sum();
    share = ranges.stream().mapToLong(Range::records).sum() / cores;
    for (Range range : this.ranges) {
      Executor last = executors.get(before.getOrDefault(range.name(), ""));
      if (last != null && isAway(range, last)) {
        lent.put(range.name(), last);
      }
    }
  }

  /** What is lent to whom, by the names of ranges. */
  Map<String, Executor> lent() {
    return lent;
  }

  /** What each executor reads of what is lent, by its id. */
  Map<String, Long> loads() {
    Map<String, Long> found = new HashMap<>();
    for (Range range : ranges) {
      if (lent.containsKey(range.name())) {
        found.merge(lent.get(range.name()).id(), range.records(), Long::sum);
      }
    }
    return found;
  }

  /** What is read near its replicas, or is near to nobody. */
  List<Range> others() {
    return ranges.stream().filter(range -> !lent.containsKey(range.name())).toList();
  }

  /**
   * Takes back what need not be lent any more, and lends what an executor has too much of.
   *
   * @param near where all others are read
   * @return whether anything has changed
   */
  boolean change(Map<String, Executor> near) {
    Map<String, Executor> where = new HashMap<>(near);
    where.putAll(lent);
    Map<String, Double> loads = new HashMap<>();
    executors.keySet().forEach(id -> loads.put(id, 0.0));
    ranges.forEach(range -> loads.merge(where.get(range.name()).id(), (double) range.records(), Double::sum));
    boolean takenBack = takeBack(loads);
    return lend(where, loads) || takenBack;
  }

  private boolean takeBack(Map<String, Double> loads) {
    boolean changed = false;
    for (Range range : ranges) {
      Executor away = lent.get(range.name());
      if (away == null) {
        continue;
      }
      Set<String> home = Assignment.near(range, racks);
      Executor emptiest = emptiest(range, loads, each -> home.contains(each.rack()));
      if (hasRoom(emptiest, loads, range)) {
        lent.remove(range.name());
        loads.merge(away.id(), (double) -range.records(), Double::sum);
        loads.merge(emptiest.id(), (double) range.records(), Double::sum);
        changed = true;
      }
    }
    return changed;
  }

  private boolean lend(Map<String, Executor> where, Map<String, Double> loads) {
    boolean changed = false;
    for (Range range : ranges) {
      Executor from = where.get(range.name());
      boolean isTooMuch = level(from, loads, 0) >= TOO_MUCH * share && loads.get(from.id()) > range.records();
      if (!isTooMuch || lent.containsKey(range.name())) {
        continue;
      }
      Executor to = emptiest(range, loads, each -> true);
      boolean isBetter = level(to, loads, range.records()) < level(from, loads, 0);
      if (isAway(range, to) && hasRoom(to, loads, range) && isBetter) {
        lent.put(range.name(), to);
        loads.merge(from.id(), (double) -range.records(), Double::sum);
        loads.merge(to.id(), (double) range.records(), Double::sum);
        changed = true;
      }
    }
    return changed;
  }

  private boolean hasRoom(Executor executor, Map<String, Double> loads, Range range) {
    return level(executor, loads, 0) == 0 || level(executor, loads, range.records()) <= share;
  }

  private boolean isAway(Range range, Executor executor) {
    Set<String> near = Assignment.near(range, racks);
    return !near.isEmpty() && !near.contains(executor.rack());
  }

  /** The executor that has the least to read for each core, with the range. */
  private Executor emptiest(Range range, Map<String, Double> loads, Predicate<Executor> may) {
    Comparator<Executor> byLevel = Comparator.comparingDouble(each -> level(each, loads, range.records()));
    return executors.values().stream().filter(may).min(byLevel.thenComparing(Executor::id)).orElseThrow();
  }

  private static double level(Executor executor, Map<String, Double> loads, long more) {
    return (Objects.requireNonNull(loads.get(executor.id())) + more) / executor.cores();
  }
}
