"""What Python and NumPy write of arrays, lists and dictionaries, in hexadecimal, by the protocol.

numpy==2.4.6
"""

import json
import pickle
from pathlib import Path

import numpy as np

shared = [np.int64(3), -5, 70000, 2**40, np.uint8(255)]
value = {
    "images": np.arange(24, dtype=np.uint8).reshape(2, 2, 2, 3),
    "labels": shared,
    "again": shared,
    "narrow": np.array([-1, 2], dtype=np.int8),
    "big": np.array([-2, 258], dtype=">i4"),
    "encoded": [b"\x89PNG\xff", bytearray(b"\x00\n"), np.array([1, 200], dtype=np.uint8), b""],
    "name": "é",
    "rest": (None, True, 1.5, np.float32(2)),
    "columns": {"a": (1, 2)},
}
written = {str(p): pickle.dumps(value, protocol=p).hex() for p in (2, 3, 4, 5)}
written["by columns"] = pickle.dumps(np.zeros((2, 3), np.uint8, order="F"), protocol=4).hex()
Path(__file__).with_suffix(".json").write_text(json.dumps(written, indent=1) + "\n")
