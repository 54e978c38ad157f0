# SPDX-License-Identifier: Apache-2.0
"""Makes a wheel by configure and make: the backend of pip and `python -m build`, after PEP 517.

The wheel has the Python package, and in it, in _install, what `make install` makes: the program, the library, plugins,
headers. These find each other by where they lie. Libraries that the tag does not promise come from this machine
(auditwheel); one wheel serves every Python from 3.8.

Settings, as in `pip install . -C builddir=build`:
    builddir   a folder in which configure and make have run already
    configure  more arguments for configure
"""

import base64
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile

NAME = "byteps_c"
INSIDE = "_install"
"""In the package, what has its places below the prefix."""
OF_THE_SYSTEM = ["libibverbs.so.1", "librdmacm.so.1"]
"""Libraries that fit the drivers of a machine, and so are taken from there; without them there is no RDMA."""
CONFIGURED = ["--prefix=/byteps", "--sysconfdir=/etc", "--without-python-dir", "--enable-python=yes"]


def _run(*command, cwd="."):
    """What it prints goes where pip keeps such; a failure ends the build with the command."""
    subprocess.run(command, cwd=cwd, check=True, stdout=sys.stderr)


def _read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def _write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _configured(settings, scratch):
    """The folder of the build."""
    settings = settings or {}
    if "builddir" in settings:
        return os.path.abspath(settings["builddir"])
    if not os.path.exists("configure"):
        _run("./autogen.sh")
    build = os.path.join(scratch, "build")
    os.mkdir(build)
    more = shlex.split(settings.get("configure", ""))
    _run(os.path.abspath("configure"), *CONFIGURED, f"PYTHON={sys.executable}", *more, cwd=build)
    return build


def _variable(build, name):
    """Of the Makefile, expanded."""
    text = _read(os.path.join(build, "Makefile"))
    value = re.search(rf"^{name} = (.*)$", text, re.M).group(1)
    return re.sub(r"\$[({](\w+)[)}]", lambda match: _variable(build, match.group(1)), value)


# ---- the tree of the wheel ----


def _move_package(build, stage, tree):
    """The package, and where it finds its plugins and programs."""
    package = os.path.join(tree, "byteps")
    shutil.move(f"{stage}{_variable(build, 'pythondir')}/byteps", package)
    config = os.path.join(package, "_config.py")
    text = re.sub("^FROM_HERE = .*$", f'FROM_HERE = "{INSIDE}/lib/byteps"', _read(config), flags=re.M)
    text = re.sub("^PROGRAMS_FROM_HERE = .*$", f'PROGRAMS_FROM_HERE = "{INSIDE}/bin"', text, flags=re.M)
    _write(config, text)
    return package


def _move_parts(build, stage, package):
    """What is left of the prefix, without links, which a wheel cannot have."""
    lib = f"{stage}{_variable(build, 'libdir')}"
    os.replace(os.path.realpath(f"{lib}/libbyteps.so.0"), f"{lib}/libbyteps.so.0")
    for path, _, names in os.walk(stage):
        for name in names:
            file = os.path.join(path, name)
            if os.path.islink(file) or name.endswith(".la"):
                os.remove(file)
    _write(f"{lib}/libbyteps.so", "INPUT(libbyteps.so.0)\n")  # for the linker
    pkgconfig = f"{lib}/pkgconfig/byteps.pc"
    text = re.sub("^prefix=.*$", "prefix=${pcfiledir}/../..", _read(pkgconfig), flags=re.M)
    _write(pkgconfig, text.replace("Libs: ", "Libs: -Wl,-rpath,${libdir} "))
    inside = os.path.join(package, INSIDE)
    os.mkdir(inside)
    prefix = f"{stage}{_variable(build, 'prefix')}"
    for name in ("bin", "include", "lib", "share"):
        shutil.move(f"{prefix}/{name}", f"{inside}/{name}")
    shutil.rmtree(f"{inside}/share/byteps/python", ignore_errors=True)
    shutil.copy("frameworks/wheel/_program.py", package)


def _add_information(build, package, tree):
    """Metadata, and what `man` and shells look for in the prefix of a virtual environment."""
    version = _variable(build, "PACKAGE_VERSION")
    about = os.path.join(tree, f"{NAME}-{version}.dist-info")
    os.mkdir(about)
    _write(f"{about}/METADATA", _read("frameworks/python/METADATA.in").replace("@VERSION@", version))
    tag = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
    _write(f"{about}/WHEEL", f"Wheel-Version: 1.0\nGenerator: byteps\nRoot-Is-Purelib: false\nTag: {tag}\n")
    programs = "".join(f"{name} = byteps._program:{name}\n" for name in ("byteps", "bpslaunch"))
    _write(f"{about}/entry_points.txt", f"[console_scripts]\n{programs}")
    shutil.copy("LICENSE", about)
    share = os.path.join(tree, f"{NAME}-{version}.data", "data", "share")
    os.makedirs(share)
    for name in ("man", "bash-completion", "zsh"):
        shutil.move(f"{package}/{INSIDE}/share/{name}", f"{share}/{name}")
    return version, tag


def _pack(tree, version, tag, folder):
    """A wheel of the tree, with the digest of each file."""
    path = os.path.join(folder, f"{NAME}-{version}-{tag}.whl")
    record = f"{NAME}-{version}.dist-info/RECORD"
    rows = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for place, _, names in sorted(os.walk(tree)):
            for name in sorted(names):
                file = os.path.join(place, name)
                inside = os.path.relpath(file, tree)
                with open(file, "rb") as data:
                    digest = hashlib.sha256(data.read()).digest()
                code = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
                rows.append(f"{inside},sha256={code},{os.path.getsize(file)}\n")
                wheel.write(file, inside)
        wheel.writestr(record, "".join(rows) + f"{record},,\n")
    return path


# ---- what pip calls ----


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """Write a wheel to the folder, and return its name."""
    with tempfile.TemporaryDirectory() as scratch:
        build = _configured(config_settings, scratch)
        _run("make", "-j", str(os.cpu_count()), cwd=build)
        stage, tree, made = (os.path.join(scratch, name) for name in ("stage", "tree", "made"))
        os.mkdir(tree)
        os.mkdir(made)
        _run("make", "install-strip", f"DESTDIR={stage}", cwd=build)
        package = _move_package(build, stage, tree)
        _move_parts(build, stage, package)
        wheel = _pack(tree, *_add_information(build, package, tree), made)
        excluded = [word for name in OF_THE_SYSTEM for word in ("--exclude", name)]
        _run(sys.executable, "-m", "auditwheel", "repair", *excluded, "-w", os.path.abspath(wheel_directory), wheel)
        name = os.path.basename(wheel).split("-linux_")[0]
        return next(file for file in sorted(os.listdir(wheel_directory)) if file.startswith(f"{name}-"))


def build_sdist(sdist_directory, config_settings=None):
    """Write the tarball of `make dist` under the name that Python's tools want, and return that."""
    with tempfile.TemporaryDirectory() as scratch:
        build = _configured(config_settings, scratch)
        version = _variable(build, "PACKAGE_VERSION")
        _run("make", "distdir", f"distdir={scratch}/{NAME}-{version}", cwd=build)
        _write(f"{scratch}/{NAME}-{version}/PKG-INFO",
              _read("frameworks/python/METADATA.in").replace("@VERSION@", version))
        name = f"{NAME}-{version}.tar.gz"
        with tarfile.open(os.path.join(sdist_directory, name), "w:gz", format=tarfile.PAX_FORMAT) as archive:
            archive.add(f"{scratch}/{NAME}-{version}", f"{NAME}-{version}")
        return name
