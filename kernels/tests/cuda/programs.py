"""Compiles for an H100 every CUDA program that tests would run, on a machine without a card.

    pip install nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12 nvidia-cuda-nvcc-cu12
    cargo test -p fewshot-kernels --features cuda --no-run   # prints the paths of the binaries
    python kernels/tests/cuda/programs.py target/debug/deps/kernels-0123456789abcdef

The tests run on a driver that launches nothing (`no_card.c`), so most of them fail; before that they ask for
their programs. Those are compiled by NVRTC and assembled by ptxas. A line for each name, which all types and
settings of a kernel share, says how many programs it has, the most registers of a thread, and the most bytes
spilled from registers to memory.

In place of a binary, a folder is one where a program that ran on that driver left its own (`CUDA_PROGRAMS`).
The last line has the seconds that NVRTC and ptxas take for all, one after the other.

Exits with 1 if a program does not compile, or if there are none.
"""

import argparse
import ctypes
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ARCHITECTURE = "sm_90a"


def package(name):
    """Folder of one of NVIDIA's packages."""
    for path in sys.path:
        found = pathlib.Path(path) / "nvidia" / name
        if found.is_dir():
            return found
    sys.exit(f"no package nvidia/{name}: see the top of {__file__}")


def ask_for_programs(binary, tests, folder):
    """Runs the tests, which leave their programs in `folder`."""
    library = folder / "libcuda.so"
    source = pathlib.Path(__file__).with_name("no_card.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", library, source], check=True)
    (folder / "libnvrtc.so").symlink_to(library)
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(folder),
        "CUDA_PATH": str(folder),
        "CUDA_PROGRAMS": str(folder),
    }
    command = [binary, "--include-ignored", "--test-threads", "1", *tests]
    found = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    if "test result:" not in found.stdout:
        sys.exit(f"{binary} ended before its tests did, with status {found.returncode}")
    return programs_in(folder)


def programs_in(folder):
    return {path.read_bytes() for path in folder.glob("*.cu")}


class Compiler:
    def __init__(self):
        library = next((package("cuda_nvrtc") / "lib").glob("libnvrtc.so*"))
        self.nvrtc = ctypes.CDLL(str(library))
        headers = [package(name) / "include" for name in ("cuda_runtime", "cuda_nvcc")]
        options = [f"--gpu-architecture={ARCHITECTURE}", "-lineinfo"]
        options = [option.encode() for option in options + [f"--include-path={path}" for path in headers]]
        self.options = (ctypes.c_char_p * len(options))(*options)
        self.ptxas = package("cuda_nvcc") / "bin" / "ptxas"

    def text(self, program, of):
        length = ctypes.c_size_t()
        getattr(self.nvrtc, f"nvrtcGet{of}Size")(program, ctypes.byref(length))
        text = ctypes.create_string_buffer(length.value)
        getattr(self.nvrtc, f"nvrtcGet{of}")(program, text)
        return text.value

    def compile(self, source):
        """PTX, or `None` and the compiler's messages."""
        program = ctypes.c_void_p()
        self.nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, None, 0, None, None)
        failed = self.nvrtc.nvrtcCompileProgram(program, len(self.options), self.options)
        result = (None, self.text(program, "ProgramLog")) if failed else (self.text(program, "PTX"), b"")
        self.nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
        return result

    def assemble(self, ptx, folder):
        """Registers of a thread and bytes that it spills, or `None` and the assembler's messages."""
        path = folder / "program.ptx"
        path.write_bytes(ptx)
        command = [self.ptxas, "-v", f"-arch={ARCHITECTURE}", path, "-o", folder / "program.cubin"]
        found = subprocess.run(command, capture_output=True, text=True)
        if found.returncode != 0:
            return None, found.stderr.encode()
        registers = re.search(r"Used (\d+) registers", found.stderr)
        spills = re.findall(r"(\d+) bytes spill stores", found.stderr)
        return (int(registers[1]), max(map(int, spills), default=0)), b""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=pathlib.Path, help="of tests, with the feature cuda; or a folder")
    parser.add_argument("tests", nargs="*", default=["cuda::"], help="parts of their names")
    arguments = parser.parse_args()
    compiler = Compiler()
    kernels, failures, seconds = {}, 0, [0.0, 0.0]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if arguments.binary.is_dir():
            sources = programs_in(arguments.binary)
        else:
            sources = ask_for_programs(arguments.binary.resolve(), arguments.tests, folder)
        for source in sorted(sources):
            name = re.search(rb"__global__ void\s*(?:__launch_bounds__\([^)]*\))?\s*(\w+)", source)
            name = name[1].decode() if name else "?"
            kernel = re.sub(r"(_[a-z]+)?_(bf|tf|f|i|u)\d+.*|_n_\d+$", "", name)
            start = time.perf_counter()
            result, messages = compiler.compile(source)
            seconds[0] += time.perf_counter() - start
            if result is not None:
                start = time.perf_counter()
                result, messages = compiler.assemble(result, folder)
                seconds[1] += time.perf_counter() - start
            if result is None:
                failures += 1
                print(f"{name} does not compile:\n{messages.decode(errors='replace')}")
                continue
            count, registers, spills = kernels.get(kernel, (0, 0, 0))
            kernels[kernel] = (count + 1, max(registers, result[0]), max(spills, result[1]))
    for kernel, (count, registers, spills) in sorted(kernels.items()):
        print(f"{kernel}: {count} programs, {registers} registers, {spills} bytes spilled")
    spent = f"NVRTC {seconds[0]:.1f} s, ptxas {seconds[1]:.1f} s"
    print(f"{len(sources)} programs, {failures} of which do not compile; {spent}")
    sys.exit(failures > 0 or not sources)


if __name__ == "__main__":
    main()
