package oncelake.decode;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeArrayData;
import org.apache.spark.sql.catalyst.expressions.UnsafeMapData;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.MapData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.unsafe.types.VariantVal;

/** How much a value of Spark is: the bytes of its texts, and one for each value in it. */
final class Sizes {
  private Sizes() {}

  static long of(Object value, DataType type) {
    if (value instanceof UTF8String text) {
      return 1L + text.numBytes();
    }
    if (value instanceof byte[] bytes) {
      return 1L + bytes.length;
    }
    if (value instanceof VariantVal variant) {
      return 1L + variant.getValue().length + variant.getMetadata().length;
    }
    if (value instanceof UnsafeRow row) {
      return row.getSizeInBytes();
    }
    if (value instanceof UnsafeArrayData array) {
      return array.getSizeInBytes();
    }
    if (value instanceof UnsafeMapData map) {
      return map.getSizeInBytes();
    }
    return ofParts(value, type);
  }

  private static long ofParts(Object value, DataType type) {
    long size = 1;
    if (value instanceof ArrayData array) {
      DataType element = ((ArrayType) type).elementType();
      for (int place = 0; place < array.numElements(); place++) {
        size += array.isNullAt(place) ? 1 : of(array.get(place, element), element);
      }
    } else if (value instanceof MapData map) {
      MapType entries = (MapType) type;
      size += ofParts(map.keyArray(), new ArrayType(entries.keyType(), false));
      size += ofParts(map.valueArray(), new ArrayType(entries.valueType(), true));
    } else if (value instanceof InternalRow row) {
      StructField[] fields = ((StructType) type).fields();
      for (int place = 0; place < fields.length; place++) {
        size += row.isNullAt(place) ? 1 : of(row.get(place, fields[place].dataType()), fields[place].dataType());
      }
    }
    return size;
  }
}
