"""Parquet files of features as easyfsl has them: columns `embedding` and `class_name`, a row an example.

    python tests/golden/features.py

writes features_*.parquet beside this file. Feature `j` of row `i` is `i + j / 4`.
"""
# pyarrow==26.0.1

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

LENGTH = 3
CLASSES = ["dog", "cat", "dog", "ant", "cat", "dog"]
ROWS = [[i + j / 4 for j in range(LENGTH)] for i in range(len(CLASSES))]


def write(name, embeddings, number, compression, classes=CLASSES):
    table = pa.table(
        {
            "image_name": [f"{i}.png" for i in range(len(CLASSES))],
            "embedding": pa.array(embeddings, pa.list_(number)),
            "class_name": pa.array(classes),
        }
    )
    path = Path(__file__).with_name(f"features_{name}.parquet")
    pq.write_table(table, path, row_group_size=4, compression=compression)


write("f32", ROWS, pa.float32(), "snappy")
write("f64", ROWS, pa.float64(), "zstd")
write("ragged", ROWS[:5] + [[1.0]], pa.float32(), "none")
write("null", ROWS[:5] + [None], pa.float32(), "none")
write("text", [["a"]] * len(CLASSES), pa.string(), "none")
