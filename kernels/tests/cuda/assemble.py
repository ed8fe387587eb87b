"""Assembles PTX for an H100 and tells how many registers its kernels take, on a machine without a card.

    SOFTWARE_CUDA_KEEP=FOLDER kernels/tests/cuda/card/with-card COMMAND    # leaves the PTX of COMMAND in FOLDER
    python kernels/tests/cuda/assemble.py FOLDER

A line for each name, which all types and settings of a kernel share, says how many programs it has, the most
registers of a thread, and the most bytes spilled from registers to memory. The last line has the seconds that
ptxas takes for all, one after the other. Needs `pip install nvidia-cuda-nvcc-cu12`.

Exits with 1 if a program does not assemble, or if there are none.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import time


def assembler():
    for path in sys.path:
        file = pathlib.Path(path) / "nvidia" / "cuda_nvcc" / "bin" / "ptxas"
        if file.is_file():
            return file
    sys.exit(f"no package nvidia-cuda-nvcc-cu12: see the top of {__file__}")


def assemble(ptxas, ptx, folder):
    """Registers of a thread and bytes that it spills, or `None` and the assembler's messages."""
    path = folder / "program.ptx"
    path.write_text(ptx)
    command = [ptxas, "-v", "-arch=sm_90a", path, "-o", folder / "program.cubin"]
    outcome = subprocess.run(command, capture_output=True, text=True)
    if outcome.returncode != 0:
        return None, outcome.stderr
    registers = re.search(r"Used (\d+) registers", outcome.stderr)
    spills = re.findall(r"(\d+) bytes spill stores", outcome.stderr)
    return (int(registers[1]), max(map(int, spills), default=0)), ""


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    programs = {path.read_text() for path in pathlib.Path(sys.argv[1]).glob("*.ptx")}
    ptxas, kernels, failures, start = assembler(), {}, 0, time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        for ptx in sorted(programs):
            name = re.search(r"\.entry (\w+)", ptx)[1]
            kernel = re.sub(r"(_[a-z]+)?_(bf|tf|f|i|u)\d+.*|_n_\d+$", "", name)
            numbers, messages = assemble(ptxas, ptx, pathlib.Path(folder))
            if numbers is None:
                failures += 1
                print(f"{name} does not assemble:\n{messages}")
                continue
            count, registers, spills = kernels.get(kernel, (0, 0, 0))
            kernels[kernel] = (count + 1, max(registers, numbers[0]), max(spills, numbers[1]))
    for kernel, (count, registers, spills) in sorted(kernels.items()):
        print(f"{kernel}: {count} programs, {registers} registers, {spills} bytes spilled")
    seconds = time.perf_counter() - start
    print(f"{len(programs)} programs, {failures} of which do not assemble; ptxas {seconds:.1f} s")
    sys.exit(failures > 0 or not programs)


if __name__ == "__main__":
    main()
