#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cpack's packages of a build: what they hold, what they ask for, and that the tarball runs from any folder.

  check_packages.py --build build/release --compiler g++ --c-compiler cc --abi 1

Exit code 77, which ctest takes for skipped, where a tool that makes .deb packages is missing.
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = {"cpack": "cmake", "dpkg-deb": "dpkg", "dpkg-shlibdeps": "dpkg-dev", "file": "file", "ldd": "libc-bin"}
# Every Linux has these; all others lie beside the program.
OF_THE_SYSTEM = re.compile(r"^(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|resolv|stdc\+\+|gcc_s))\.so")
NOT_PORTABLE = re.compile(r"lib(mpi|open-|cuda|cublas|cudnn|nccl|dnnl|gomp)")
DEBS = {
    "isthmus": ["usr/bin/isthmus", "usr/share/bash-completion/completions/isthmus",
                "usr/share/fish/vendor_completions.d/isthmus.fish", "usr/share/doc/isthmus/README.md",
                "usr/share/doc/isthmus/THIRD_PARTY.md", "usr/share/doc/isthmus/copyright",
                "usr/share/doc/isthmus/docs/how-to/sites.md"],
    "libisthmus{abi}": ["usr/lib/libisthmus.so.{abi}", "usr/share/doc/libisthmus{abi}/copyright"],
    "libisthmus-dev": ["usr/include/isthmus/c.h", "usr/include/isthmus/session.h", "usr/lib/libisthmus.so",
                       "usr/lib/libisthmus_session.a", "usr/lib/cmake/isthmus/isthmusConfig.cmake",
                       "usr/share/doc/libisthmus-dev/copyright"],
}
TARBALL = ["bin/isthmus", "lib/libisthmus.so", "lib/libisthmus.so.{abi}", "lib/libisthmus_session.a",
           "lib/cmake/isthmus/isthmusConfig.cmake", "include/isthmus/c.h", "share/doc/isthmus/LICENSE",
           "share/doc/isthmus/THIRD_PARTY.md", "share/doc/isthmus/third-party-licences.txt",
           "share/doc/isthmus/docs/python.md", "share/bash-completion/completions/isthmus"]


def run(*command, **how):
    done = subprocess.run([str(each) for each in command], text=True, capture_output=True, **how)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def expect(condition, text):
    if not condition:
        sys.exit(text)


def clean_environment(folder):
    """Of a user who has unpacked the tarball: nothing names the build."""
    return {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LANG": "C.UTF-8"}


def needed_of(binary):
    """The libraries that the loader takes for a binary: name -> path, or "" where it finds none."""
    found = {}
    for line in run("ldd", binary, env=clean_environment(binary.parent)).splitlines():
        line = re.sub(r" \(0x[0-9a-f]+\)$", "", line.strip())  # a path may have spaces
        name, _, path = line.partition(" => ")
        found[name.split("/")[-1]] = "" if path == "not found" else path
    return found


def check_debs(folder, version, abi):
    made = {path.name.split("_")[0]: path for path in folder.glob("*.deb")}
    wanted = {name.format(abi=abi): [file.format(abi=abi) for file in files] for name, files in DEBS.items()}
    expect(made.keys() == wanted.keys(), f"cpack made {sorted(made)}, not {sorted(wanted)}")
    for name, files in wanted.items():
        listed = run("dpkg-deb", "--contents", made[name])
        held = {line.split()[5].removeprefix("./") for line in listed.splitlines()}
        missing = [file for file in files if file not in held]
        expect(not missing, f"{made[name].name} lacks {missing}")
        owners = {line.split()[1] for line in listed.splitlines()}
        expect(owners == {"root/root"}, f"{made[name].name}: files of {owners}")
        fields = run("dpkg-deb", "--field", made[name])
        expect(f"Version: {version}-1" in fields, f"{made[name].name}: no version {version}-1\n{fields}")
        expect("Depends: " in fields, f"{made[name].name} depends on nothing")
    depends = {name: run("dpkg-deb", "--field", path, "Depends") for name, path in made.items()}
    for name in ("isthmus", f"libisthmus{abi}"):
        for library in ("libc6", "libsodium", "libstdc++6", "libfmt"):
            expect(library in depends[name], f"{name} depends on no {library}: {depends[name]}")
    expect(f"libisthmus{abi} (= {version}-1)" in depends["libisthmus-dev"], depends["libisthmus-dev"])
    with tempfile.TemporaryDirectory(dir=folder) as root:
        run("dpkg-deb", "--extract", made["isthmus"], root)
        copyright_text = pathlib.Path(root, "usr/share/doc/isthmus/copyright").read_text()
        expect("Apache License" in copyright_text and "nlohmann" in copyright_text, "copyright names no nlohmann-json")
        said = run(pathlib.Path(root, "usr/bin/isthmus"), "--version")
        expect(version in said, f"the .deb's program says {said}, not {version}")
        run("bash", "-n", pathlib.Path(root, "usr/share/bash-completion/completions/isthmus"))


def check_tarball(folder, version, abi):
    made = list(folder.glob("*.tar.*"))
    expect(len(made) == 1, f"cpack made {made}, not one tarball")
    place = folder / "some where else"
    with tarfile.open(made[0]) as tar:
        names = tar.getnames()
        tar.extractall(place)
    top = names[0].split("/")[0]
    expect(all(name.split("/")[0] == top for name in names), f"{made[0].name} holds more than one folder")
    twice = {name for name in names if names.count(name) > 1 and not (place / name).is_dir()}
    expect(not twice, f"{made[0].name} holds {sorted(twice)} twice")
    tree = place / top
    missing = [file for file in TARBALL if not (tree / file.format(abi=abi)).exists()]
    expect(not missing, f"{made[0].name} lacks {missing}")

    licences = (tree / "share/doc/isthmus/third-party-licences.txt").read_text()
    for binary in (tree / "bin/isthmus", tree / f"lib/libisthmus.so.{abi}"):
        for name, path in needed_of(binary).items():
            expect(not NOT_PORTABLE.match(name), f"{binary.name} of the tarball needs {name}")
            if OF_THE_SYSTEM.match(name):
                continue
            expect(path.startswith(str(tree / "bin")) or path.startswith(str(tree / "lib")),
                   f"{binary.name} of the tarball takes {name} from '{path}'")
            expect(name in licences, f"third-party-licences.txt does not name {name}")
    # A text that Debian's only names is there whole.
    for words in ("GNU LESSER GENERAL PUBLIC LICENSE", "Redistribution and use in source"):
        expect(words in licences, f"third-party-licences.txt: no '{words}'")
    environment = clean_environment(place)
    program = tree / "bin/isthmus"
    said = run(program, "--version", env=environment, cwd=place)
    expect(version in said, f"the tarball's program says {said}, not {version}")
    found = run(program, "doctor", env=environment, cwd=place)
    expect(re.search(r"MPI +not in this build", found), f"doctor of the tarball's program:\n{found}")
    return tree


def check_consumers(tree, folder, arguments):
    run("cmake", f"-DSOURCE={ROOT}", f"-DPREFIX={tree}", f"-DWORK={folder / 'consumer'}",
        "-DFOLDERS=tests/install/consumer", f"-DCOMPILER={arguments.compiler}", "-P",
        ROOT / "tests/install/install_test.cmake")
    caller = folder / "plain_c"
    run(arguments.c_compiler, "-std=c11", ROOT / "tests/c/plain_c.c", "-I", tree / "include", "-L", tree / "lib",
        "-listhmus", f"-Wl,-rpath,{tree / 'lib'}", "-o", caller)
    run(caller, env=clean_environment(folder))
    needed = run("readelf", "-d", caller)
    expect(f"[libisthmus.so.{arguments.abi}]" in needed, f"a program in C needs another library:\n{needed}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--c-compiler", required=True)
    parser.add_argument("--abi", required=True)
    arguments = parser.parse_args()
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        print(f"skipped: no {', '.join(missing)}: apt install {' '.join(TOOLS[each] for each in missing)}")
        sys.exit(77)
    config = (arguments.build / "CPackConfig.cmake").resolve()
    version = re.search(r'set\(CPACK_PACKAGE_VERSION "(.+)"\)', config.read_text()).group(1)
    with tempfile.TemporaryDirectory(dir=arguments.build) as name:
        folder = pathlib.Path(name).resolve()
        kinds = re.search(r'set\(CPACK_GENERATOR "(.*)"\)', config.read_text()).group(1)
        expect(kinds == "DEB;TXZ", f"cpack makes {kinds}, not .deb and .tar.xz")
        # xz takes 60 s of one core for the same files, so gzip here.
        run("cpack", "--config", config, "-G", "DEB;TGZ", "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip", "-B", folder)
        check_debs(folder, version, arguments.abi)
        tree = check_tarball(folder, version, arguments.abi)
        check_consumers(tree, folder, arguments)
        sizes = [f"{path.name} {path.stat().st_size / 1e6:.1f} MB" for path in sorted(folder.glob("*.*"))
                 if path.suffix in (".deb", ".gz")]
    print("\n".join(sizes))


main()
