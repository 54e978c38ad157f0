# SPDX-License-Identifier: Apache-2.0
"""Sphinx makes the site of the documents; `make html` calls it with a copy of them, of the headers and the manuals.

Documents are written for readers of a checkout: a link from them to a source, which the site does not have, becomes
the name of the file.
"""

import os
import re

project = "BytePS"
author = "the BytePS authors"
copyright = author

extensions = ["myst_parser", "sphinx.ext.napoleon", "autoapi.extension"]
myst_heading_anchors = 4  # as GitHub numbers them
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["README.md"]  # index.md has what is in it
suppress_warnings = [
    "autoapi.python_import_resolution",  # of names that a framework has, or that are made while it runs
    "ref.python",
    "myst.header",
]
html_theme = "sphinx_rtd_theme"
html_title = "BytePS"
html_show_copyright = False
html_copy_source = False
highlight_language = "text"

# The reference is read from the sources: no framework has to be there. A module's __all__ is its interface.
autoapi_dirs = ["../python/byteps"]
autoapi_root = "reference/python"
autoapi_options = ["members", "imported-members"]
autoapi_add_toctree_entry = False
autoapi_python_class_content = "both"
autoapi_ignore = ["*/compat/*"]

FENCES = re.compile(r"^(```(?:\w+)) [^\n`]+$", re.MULTILINE)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:]+)(#[^)]*)?\)")


def adapt(app, name, source):
    """What tests want to know of a block is no word for Sphinx; and links to what is not here become plain text."""
    folder = os.path.dirname(app.env.doc2path(name))

    def link(match):
        return match[0] if os.path.isfile(os.path.join(folder, match[2])) else match[1]

    source[0] = LINK.sub(link, FENCES.sub(r"\1", source[0]))


def separate(app, what, name, obj, options, lines):
    """An indented block of a docstring, with empty lines around it, is code; what __init__() adds begins anew."""
    for i in range(len(lines) - 1, 1, -1):
        before = next((line for line in reversed(lines[:i]) if line), "")
        indented = lines[i].startswith("    ")
        if indented and not lines[i - 1] and not before.startswith(" ") and not before.endswith("::"):
            lines[i:i] = [".. code-block:: python", ""]
        elif lines[i] and not indented and lines[i - 1].startswith(" "):
            lines.insert(i, "")


def keep_shared(app, what, name, obj, skip, options):
    """What all modules take from there is to be found, too."""
    return False if name == "byteps._basics" else skip


def setup(app):
    app.connect("autoapi-skip-member", keep_shared)
    app.connect("autodoc-process-docstring", separate, priority=400)  # before napoleon
    app.connect("source-read", adapt)
