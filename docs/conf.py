"""The configuration of the documentation. ``sphinx-build -W docs docs/_build`` builds it; it needs no network."""

from importlib.metadata import version as version_of

project = "Turnkeeper"
copyright = "the Turnkeeper contributors"
release = version = version_of("turnkeeper")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinxcontrib.mermaid"]
exclude_patterns = ["_build"]
default_role = "py:obj"
"""So that `Submit` in a docstring links to the page of that class."""

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"

myst_heading_anchors = 3
myst_fence_as_directive = ["mermaid"]

html_theme = "furo"
html_title = "Turnkeeper"
