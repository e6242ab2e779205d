package oncelake.dedup;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Queue;
import org.apache.spark.sql.catalyst.InternalRow;

/** The rows of sorted copies that are kept, key by key. Of a key it holds one copy for each day. */
final class KeptRows implements Iterator<InternalRow> {
  private final Iterator<InternalRow> rows;
  private final Choice choice;
  private final List<InternalRow> copies = new ArrayList<>();
  private final Queue<InternalRow> kept = new ArrayDeque<>();

  KeptRows(Iterator<InternalRow> rows, Choice choice) {
    this.rows = rows;
    this.choice = choice;
  }

  @Override
  public boolean hasNext() {
    while (kept.isEmpty() && rows.hasNext()) {
      take(rows.next());
    }
    if (kept.isEmpty()) {
      choose();
    }
    return !kept.isEmpty();
  }

  @Override
  public InternalRow next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    return kept.remove();
  }

  private void take(InternalRow row) {
    if (!copies.isEmpty()) {
      InternalRow last = copies.get(copies.size() - 1);
      if (!choice.isSameKey(last, row)) {
        choose();
      } else if (choice.isSameDay(last, row)) {
        // The best copy of a day comes first.
        return;
      }
    }
    // Spark gives the same object for each row, with other bytes.
    copies.add(row.copy());
  }

  private void choose() {
    kept.addAll(choice.of(copies));
    copies.clear();
  }
}
