package oncelake.decode;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Like;
import org.apache.spark.sql.catalyst.expressions.MultiLikeBase;
import org.apache.spark.sql.catalyst.expressions.RLike;
import org.apache.spark.sql.catalyst.expressions.RegExpExtract;
import org.apache.spark.sql.catalyst.expressions.RegExpExtractAll;
import org.apache.spark.sql.catalyst.expressions.RegExpInStr;
import org.apache.spark.sql.catalyst.expressions.RegExpReplace;
import org.apache.spark.sql.catalyst.expressions.StringSplit;
import org.apache.spark.sql.catalyst.expressions.StringSplitSQL;
import org.apache.spark.sql.catalyst.expressions.StringToMap;
import org.apache.spark.sql.catalyst.util.StringUtils;
import org.apache.spark.unsafe.types.UTF8String;
import scala.jdk.javaapi.CollectionConverters;

/**
 * An expression of Spark that looks for a regular expression, computed where Java's matcher is done within a
 * budget; else {@link BoundedText.UsedUp} ends the condition that it is a part of.
 *
 * <p>Spark makes texts of its own for its matcher. So the matcher looks at a text that is counted first, by the
 * same steps.
 */
final class BoundedMatch extends Wrapper {
  private static final long serialVersionUID = 1L;
  private final transient Budget budget;
  private final boolean isRepeated;
  private final transient Map<String, Pattern> patterns = new HashMap<>();

  private BoundedMatch(Expression match, Budget budget, boolean isRepeated) {
    super(match);
    this.budget = budget;
    this.isRepeated = isRepeated;
  }

  /** The expression, bounded if it looks for a regular expression, or divides a text. */
  static Expression in(Expression expression, Budget budget, boolean isRepeated) {
    return looksForPattern(expression)
        ? new BoundedMatch(Held.arguments(expression), budget, isRepeated)
        : expression;
  }

  /** All expressions of Spark 4 that give a pattern to Java's matcher, or divide; the others are made of these. */
  private static boolean looksForPattern(Expression expression) {
    return expression instanceof RLike
        || expression instanceof Like
        || expression instanceof MultiLikeBase
        || expression instanceof RegExpReplace
        || expression instanceof RegExpExtract
        || expression instanceof RegExpExtractAll
        || expression instanceof RegExpInStr
        || expression instanceof StringSplit
        || expression instanceof StringSplitSQL
        || expression instanceof StringToMap;
  }

  @Override
  BoundedMatch around(Expression other) {
    return new BoundedMatch(other, budget, isRepeated);
  }

  @Override
  public Object eval(InternalRow input) {
    try {
      String text = text(0, input);
      if (text != null) {
        look(text, input);
      }
      return child.eval(input);
    } catch (PatternSyntaxException wrong) {
      // Spark says so itself.
      return child.eval(input);
    } finally {
      Held.release(child);
    }
  }

  private void look(String text, InternalRow input) {
    if (child instanceof MultiLikeBase likes) {
      for (UTF8String like : CollectionConverters.asJava(likes.patterns())) {
        if (like != null) {
          look(StringUtils.escapeLikeRegex(like.toString(), '\\'), text, Matcher::matches);
        }
      }
      return;
    }
    String given = text(1, input);
    if (given == null) {
      return;
    }
    if (child instanceof Like like) {
      look(StringUtils.escapeLikeRegex(given, like.escapeChar()), text, Matcher::matches);
    } else if (child instanceof RLike || child instanceof RegExpExtract || child instanceof RegExpInStr) {
      look(given, text, Matcher::find);
    } else if (child instanceof RegExpReplace) {
      look(given, text, all -> findAll(all, 0));
    } else if (child instanceof StringToMap) {
      List<String> entries = new ArrayList<>();
      look(given, text, all -> divide(all, text, entries));
      String delimiter = text(2, input);
      if (delimiter != null) {
        entries.forEach(entry -> look(delimiter, entry, all -> findAll(all, Budget.PIECE)));
      }
    } else {
      String pattern = child instanceof StringSplitSQL ? Pattern.quote(given) : given;
      look(pattern, text, all -> findAll(all, Budget.PIECE));
    }
  }

  /** Let a matcher do its work on a text that is counted. */
  private void look(String given, String text, Consumer<Matcher> work) {
    if (!isRepeated) {
      budget.allow(text.length());
    }
    BoundedText counted = budget.text(text);
    work.accept(patterns.computeIfAbsent(given, Pattern::compile).matcher(counted));
    budget.wasRead(counted);
  }

  /** Find all matches; what is made of each has the texts of the groups in it, and takes so many bytes besides. */
  private void findAll(Matcher all, int bytes) {
    while (all.find()) {
      budget.make(bytes);
      for (int group = 0; group <= all.groupCount(); group++) {
        budget.make(all.end(group) - all.start(group));
      }
    }
  }

  private void divide(Matcher all, String text, List<String> pieces) {
    int piece = 0;
    while (all.find()) {
      budget.make(Budget.PIECE + all.start() - piece);
      pieces.add(text.substring(piece, all.start()));
      piece = all.end();
    }
    pieces.add(text.substring(piece));
  }

  private String text(int place, InternalRow input) {
    Object value = Held.take(CollectionConverters.asJava(child.children()).get(place), input);
    return value == null ? null : value.toString();
  }
}
