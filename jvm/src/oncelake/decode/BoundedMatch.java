package oncelake.decode;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
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
import org.apache.spark.sql.catalyst.expressions.StringToMap;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenFallback;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.util.StringUtils;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.types.UTF8String;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.List$;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * An expression of Spark that looks for a regular expression, computed where Java's matcher is done within the
 * budget of {@link BoundedText}; else {@link BoundedText.UsedUp} ends what it is a part of.
 *
 * <p>Spark makes texts of its own for its matcher. So the matcher looks at a text that is counted first, by the
 * same steps.
 */
final class BoundedMatch extends Expression implements CodegenFallback, Serializable {
  private static final long serialVersionUID = 1L;
  private final Expression match;
  private transient String lastPattern;
  private transient Pattern pattern;

  private BoundedMatch(Expression match) {
    this.match = match;
  }

  /** Return an expression in which all that look for regular expressions are bounded. */
  static Expression in(Expression expression) {
    List<Expression> children = new ArrayList<>();
    for (Expression child : CollectionConverters.asJava(expression.children())) {
      children.add(in(child));
    }
    Expression bounded = expression.withNewChildren(seq(children));
    return looksForPattern(bounded) ? new BoundedMatch(bounded) : bounded;
  }

  /** All expressions of Spark 4 that give a pattern to Java's matcher; the others are made of these. */
  private static boolean looksForPattern(Expression expression) {
    return expression instanceof RLike
        || expression instanceof Like
        || expression instanceof MultiLikeBase
        || expression instanceof RegExpReplace
        || expression instanceof RegExpExtract
        || expression instanceof RegExpExtractAll
        || expression instanceof RegExpInStr
        || expression instanceof StringSplit
        || expression instanceof StringToMap;
  }

  @Override
  public Object eval(InternalRow input) {
    Object text = child(0).eval(input);
    if (text != null) {
      try {
        look(text.toString(), input);
      } catch (PatternSyntaxException wrong) {
        // Spark says so itself.
        return match.eval(input);
      }
    }
    return match.eval(input);
  }

  private void look(String text, InternalRow input) {
    if (match instanceof MultiLikeBase likes) {
      for (UTF8String like : CollectionConverters.asJava(likes.patterns())) {
        if (like != null) {
          Pattern.compile(StringUtils.escapeLikeRegex(like.toString(), '\\'))
              .matcher(new BoundedText(text))
              .matches();
        }
      }
      return;
    }
    Object given = child(1).eval(input);
    if (given == null) {
      return;
    }
    if (match instanceof Like like) {
      matcher(StringUtils.escapeLikeRegex(given.toString(), like.escapeChar()), text).matches();
    } else if (match instanceof RLike || match instanceof RegExpExtract || match instanceof RegExpInStr) {
      matcher(given.toString(), text).find();
    } else {
      Matcher all = matcher(given.toString(), text);
      int piece = 0;
      while (all.find()) {
        lookAtPiece(text.substring(piece, Math.max(piece, all.start())), input);
        piece = all.end();
      }
      lookAtPiece(text.substring(piece), input);
    }
  }

  /** What is between two delimiters of entries of a map is divided once more. */
  private void lookAtPiece(String piece, InternalRow input) {
    Object delimiter = match instanceof StringToMap ? child(2).eval(input) : null;
    if (delimiter != null) {
      Matcher all = Pattern.compile(delimiter.toString()).matcher(new BoundedText(piece));
      while (all.find()) {}
    }
  }

  private Matcher matcher(String given, String text) {
    if (!given.equals(lastPattern)) {
      pattern = Pattern.compile(given);
      lastPattern = given;
    }
    return pattern.matcher(new BoundedText(text));
  }

  private Expression child(int place) {
    return CollectionConverters.asJava(match.children()).get(place);
  }

  private static Seq<Expression> seq(List<Expression> expressions) {
    return List$.MODULE$.from(CollectionConverters.asScala(expressions));
  }

  @Override
  public ExprCode doGenCode(CodegenContext context, ExprCode code) {
    return CodegenFallback.super.doGenCode(context, code);
  }

  @Override
  public Seq<Expression> children() {
    return seq(List.of(match));
  }

  @Override
  public Expression withNewChildrenInternal(IndexedSeq<Expression> newChildren) {
    return new BoundedMatch(CollectionConverters.asJava(newChildren).iterator().next());
  }

  @Override
  public DataType dataType() {
    return match.dataType();
  }

  @Override
  public boolean nullable() {
    return match.nullable();
  }

  @Override
  public int productArity() {
    return 1;
  }

  @Override
  public Object productElement(int position) {
    return match;
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof BoundedMatch;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof BoundedMatch same && same.match.equals(match);
  }

  @Override
  public int hashCode() {
    return match.hashCode();
  }
}
