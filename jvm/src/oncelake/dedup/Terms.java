package oncelake.dedup;

import java.io.Serializable;
import java.util.List;

/**
 * By what copies of a key are kept.
 *
 * @param key the columns that are the key
 * @param day the column with the event day of a copy
 * @param order the columns by which copies are compared, the most significant first
 * @param leastWins whether the best copy is the least by these columns; else it is the greatest
 * @param horizon over how many neighbouring days, each way, copies of a key are one event
 * @param knownDays the days of which all records are there, as days since 1970
 */
public record Terms(
    List<String> key,
    String day,
    List<String> order,
    boolean leastWins,
    int horizon,
    List<Integer> knownDays)
    implements Serializable {}
