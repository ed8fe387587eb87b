"""Emoji in five drawing styles, as a folder of folders for `fewshot train --data folder:OUT`.

pip install pillow resvg-py
npm pack @iconify-json/noto@1.2.9 @iconify-json/noto-v1@1.2.5 @iconify-json/twemoji@1.2.5 \\
    @iconify-json/openmoji@1.2.29 @iconify-json/fluent-emoji-flat@1.2.6
for FILE in *.tgz; do mkdir ${FILE%.tgz}; tar xzf $FILE -C ${FILE%.tgz}; done
python benches/emoji.py OUT FOLDER... [--size PIXELS]

A class is an emoji that all styles draw, its examples are the styles, on white. The emoji of a group of Unicode are in one split:
animals, nature and food are to test on, activities and symbols to validate, all others to train on. Those of another colour of skin and
the flags are left out. A picture is drawn at four times its size and averaged.

Licences: Noto of both versions Apache 2.0, Twemoji CC BY 4.0, OpenMoji CC BY-SA 4.0, Fluent Emoji MIT.
"""

import argparse
import io
import json
from pathlib import Path

import resvg_py
from PIL import Image

SPLITS = {
    "test": ["Animals & Nature", "Food & Drink"],
    "validation": ["Activities", "Symbols"],
    "train": ["Smileys & Emotion", "People & Body", "Travel & Places", "Objects"],
}
# Pixels that a side is drawn with for each that is kept.
FINER = 4


class Style:
    """The drawings of a package, by the names of emoji."""

    def __init__(self, folder):
        package = folder if (folder / "icons.json").exists() else folder / "package"
        icons = json.loads((package / "icons.json").read_text())
        self.name = icons["prefix"]
        self.icons, self.side = icons["icons"], (icons.get("width", 16), icons.get("height", 16))
        self.groups = json.loads((package / "metadata.json").read_text())["categories"]

    def picture(self, name, size):
        icon = self.icons[name]
        width, height = icon.get("width", self.side[0]), icon.get("height", self.side[1])
        box = f"{icon.get('left', 0)} {icon.get('top', 0)} {width} {height}"
        svg = f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{box}">{icon["body"]}</svg>'
        drawn = resvg_py.svg_to_bytes(svg_string=svg, width=FINER * size, height=FINER * size, background="#ffffff")
        picture = Image.open(io.BytesIO(bytes(drawn))).convert("RGB")
        return picture.resize((size, size), Image.Resampling.BOX)


def classes(styles):
    """The names of each split that all styles draw."""
    common = set.intersection(*(set(style.icons) for style in styles))
    common = {name for name in common if not name.endswith("skin-tone") and "skin-tone-" not in name}
    groups = styles[0].groups
    return {split: sorted(common & {name for group in of for name in groups[group]}) for split, of in SPLITS.items()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("packages", type=Path, nargs="+")
    parser.add_argument("--size", type=int, default=84)
    given = parser.parse_args()
    styles = [Style(folder) for folder in given.packages]
    for split, names in classes(styles).items():
        for name in names:
            folder = given.out / split / name
            folder.mkdir(parents=True, exist_ok=True)
            for style in styles:
                style.picture(name, given.size).save(folder / f"{style.name}.png")
        print(f"{split}: {len(names)} emoji")


if __name__ == "__main__":
    main()
