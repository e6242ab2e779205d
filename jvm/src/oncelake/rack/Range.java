package oncelake.rack;

import java.util.Set;

/**
 * What one task reads: a range of offsets of one partition.
 *
 * @param name the partition, and which part of it where it is divided; the same from batch to batch
 * @param records how many offsets it spans, which stands for bytes: those are not known
 * @param racks the racks that hold an in-sync replica; empty if none is known
 */
public record Range(String name, long records, Set<String> racks) {
  public Range {
    records = Math.max(records, 1);
  }
}
