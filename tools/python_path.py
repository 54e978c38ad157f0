# SPDX-License-Identifier: Apache-2.0
"""Tells the Python that runs it where the package byteps is: byteps.pth, in the folder where that Python looks.

find PREFIX: prints that folder if it is below PREFIX, which then needs no byteps.pth.
"""

import argparse
import os
import site
import subprocess
import sys
import sysconfig

FILE = "byteps.pth"


def site_folders():
    """Where packages of this Python are, the usual place first; some do not exist until a package is there."""
    usual = sysconfig.get_path("purelib")
    folders = site.getsitepackages()
    return [usual, *folders] if usual in folders else folders


def find(prefix):
    for lib in ("lib", "lib64"):
        for folder in site_folders():
            if folder.startswith(os.path.join(prefix, lib, "")):
                return folder
    return ""


def write(folder, package):
    os.makedirs(folder, exist_ok=True)
    file = os.path.join(folder, FILE)
    with open(f"{file}.new", "w", encoding="utf-8") as out:
        out.write(f"{package}\n")
    os.replace(f"{file}.new", file)
    return file


def check(package):
    """What comes before this folder in the path wins: the original's package of the same name, say."""
    program = "import importlib.util as u; s = u.find_spec('byteps'); print(s.origin if s else '')"
    found = subprocess.run([sys.executable, "-E", "-c", program], stdout=subprocess.PIPE, check=True).stdout.decode()
    found = os.path.dirname(found.strip())
    own = os.path.join(package, "byteps")
    if not found:
        return f"{sys.executable} still finds no package byteps"
    if os.path.realpath(found) != os.path.realpath(own):
        return (f"{sys.executable} imports byteps from {found}, which comes before {own}; remove that package "
                "(the one that the package index calls byteps is the original: pip uninstall byteps)")
    return None


def add(package, root):
    """Of a Python that cannot be written to, the folder of this user."""
    if not root and check(package) is None:
        print(f"{sys.executable} finds {package} already")
        return
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE and not root else []
    errors = []
    for folder in site_folders()[:1] + user:
        try:
            file = write(root + folder, package)
        except OSError as e:
            errors.append(str(e))
            continue
        wrong = None if root else check(package)
        if wrong:
            sys.exit(wrong)
        print(f"{file}: import byteps finds {package}")
        return
    sys.exit(f"{sys.executable} cannot be told of {package}: {'; '.join(errors)}")


def remove(package, root):
    for folder in [*site_folders(), site.getusersitepackages()]:
        file = os.path.join(root + folder, FILE)
        try:
            with open(file, encoding="utf-8") as lines:
                own = lines.read().strip() == package
            if own:
                os.remove(file)
                print(f"removed {file}")
        except FileNotFoundError:
            pass


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default="", help="what `make DESTDIR=` puts before each path")
    parser.add_argument("what", choices=("find", "add", "remove"))
    parser.add_argument("folder")
    options = parser.parse_args()
    if options.what == "find":
        print(find(options.folder))
    else:
        {"add": add, "remove": remove}[options.what](options.folder, options.root)


if __name__ == "__main__":
    main()
