#!/usr/bin/env bash
# Builds the page as a folder of static files: build.sh [FOLDER], web/dist if none is named.
#
# The compiler is the one on the path, where it has the target wasm32-unknown-unknown (`rustup target add
# wasm32-unknown-unknown`), or that of the folder WASM_DEBIAN, which web/toolchain.sh makes. `build.sh --check` tells whether
# there is one. wasm-bindgen is installed beside the build, if the path has none of its version; wasm-opt (binaryen) makes the
# program smaller, if it is there.
set -euo pipefail

web=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
target=$(realpath -m "${CARGO_TARGET_DIR:-$web/target}")
out=$(realpath -m -- "${1:-$web/dist}")
[ -z "${WASM_DEBIAN:-}" ] || WASM_DEBIAN=$(realpath "$WASM_DEBIAN")
cd "$web"

triple=wasm32-unknown-unknown
bindgen_version=$(sed -n 's/^wasm-bindgen = "=\(.*\)"/\1/p' Cargo.toml)
export CARGO_TARGET_DIR=$target CARGO_INCREMENTAL=0

has_target() {
    local folder
    folder=$(rustc --print target-libdir --target "$triple" 2>/dev/null) && [ -d "$folder" ]
}

# Runs a command here, or in the Debian of WASM_DEBIAN, which sees the repository, the build and cargo's downloads.
compiler() {
    if [ -z "${WASM_DEBIAN:-}" ]; then
        "$@"
        return
    fi
    unshare --mount --propagation private bash -euo pipefail -c '
        root=$1 repository=$2 target=$3 cargo=$4 here=$5
        shift 5
        for folder in "$repository" "$target" "$cargo"; do
            mkdir -p "$root$folder"
            mount --bind "$folder" "$root$folder"
        done
        mount --rbind /dev "$root/dev"
        mount -t proc proc "$root/proc" 2>/dev/null || mount --rbind /proc "$root/proc"
        export PATH=/usr/sbin:/usr/bin:/sbin:/bin CARGO_HOME=$cargo CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld
        exec chroot "$root" sh -c "cd \"\$0\" && exec \"\$@\"" "$here" "$@"
    ' bash "$WASM_DEBIAN" "$(cd .. && pwd)" "$target" "${CARGO_HOME:-$HOME/.cargo}" "$PWD" "$@"
}

if [ -n "${WASM_DEBIAN:-}" ]; then
    if [ ! -x "$WASM_DEBIAN/usr/bin/rustc" ]; then
        echo "$WASM_DEBIAN has no compiler: web/toolchain.sh makes it"
        exit 1
    fi
elif ! has_target; then
    echo "the compiler has no target $triple: rustup target add $triple, or WASM_DEBIAN of web/toolchain.sh"
    exit 1
fi
mkdir -p "$target"
if [ "${1:-}" = --check ]; then
    compiler rustc --version
    exit
fi

bindgen=$(command -v wasm-bindgen || true)
if [ -z "$bindgen" ] || [ "$("$bindgen" --version)" != "wasm-bindgen $bindgen_version" ]; then
    bindgen=$target/wasm-tools/bin/wasm-bindgen
    if [ "$("$bindgen" --version 2>/dev/null)" != "wasm-bindgen $bindgen_version" ]; then
        cargo install --quiet wasm-bindgen-cli --version "$bindgen_version" --root "$target/wasm-tools" --target-dir "$target/wasm-tools/build"
    fi
fi

cargo fetch --locked --target "$triple"
made=$(mktemp -d "$target/page.XXXXXX")
trap 'rm -rf "$made"' EXIT

# Makes a program of the page: make_program PACKAGE PROFILE.
make_program() {
    local program=${1//-/_}
    # One after the other: together, each would have the features of both.
    compiler cargo build --profile "$2" --locked --offline --package "$1"
    "$bindgen" --target web --no-typescript --out-dir "$made" "$target/$triple/$2/$program.wasm"
    if compiler wasm-opt --version >/dev/null 2>&1; then
        compiler wasm-opt -O3 --enable-simd --enable-bulk-memory --enable-nontrapping-float-to-int --enable-sign-ext \
            --enable-mutable-globals --enable-reference-types --enable-multivalue \
            "$made/${program}_bg.wasm" -o "$made/smaller.wasm"
        mv "$made/smaller.wasm" "$made/${program}_bg.wasm"
    else
        echo "wasm-opt is not there: the program stays as the compiler made it"
    fi
}

make_program fewshot-web release
make_program fewshot-web-gpu gpu
cp page/* ../cli/src/pictures/serve/page/page.css "$made"
chmod 755 "$made"
chmod 644 "$made"/*
rm -rf "$out"
mkdir -p "$(dirname "$out")"
mv "$made" "$out"
for program in "$out"/*.wasm; do
    printf '%s: %d bytes of WebAssembly, %d compressed by gzip\n' "$program" "$(stat -c %s "$program")" "$(gzip -9 -c "$program" | wc -c)"
done
