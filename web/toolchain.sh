#!/usr/bin/env bash
# Makes a folder with Debian sid, whose compiler has WebAssembly for a target: toolchain.sh FOLDER. For machines where rustup
# has no such target and web/build.sh finds no compiler. Needs root and debootstrap.
set -euo pipefail

folder=${1:?toolchain.sh FOLDER}
if [ -x "$folder/usr/bin/wasm-opt" ]; then
    echo "$folder is there already"
    exit
fi
debootstrap --variant=minbase --include=rustc,cargo,libstd-rust-dev-wasm32,lld,gcc,libc6-dev,binaryen sid "$folder.partial"
rm -rf "$folder"
mv "$folder.partial" "$folder"
