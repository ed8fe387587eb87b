"""Features in files of NumPy, the same as those of `features.py`.

    python tests/golden/numpy_features.py

writes features_*.npy and features_*.npz beside this file. Feature `j` of row `i` is `i + j / 4`.
"""
# numpy==2.4.6

from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent
CLASSES = np.array(["dog", "cat", "dog", "ant", "cat", "dog"])
ROWS = np.arange(len(CLASSES))[:, None] + np.arange(3)[None] / 4

np.savez(FOLDER / "features_rows.npz", embeddings=ROWS.astype(np.float32), labels=CLASSES, files=np.arange(6))
np.savez_compressed(FOLDER / "features_classes.npz", **{name: ROWS[name == CLASSES].astype(np.float16) for name in CLASSES})
np.save(FOLDER / "features_fortran.npy", np.asfortranarray(ROWS.astype(">f8")))
np.save(FOLDER / "features_pickled.npy", ROWS.astype(object))
