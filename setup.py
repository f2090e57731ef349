"""
The steps of a build that need code; the metadata are in pyproject.toml.

`NSQTW_COMPILE=1 pip install .` also compiles the hot modules, unchanged, with mypyc; that takes a C compiler
(docs/explanation/performance-python.md). Everybody else gets the same modules as they are.
"""

import os
import sys
import tomllib
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

CONNECTOR = "pyspark_nsq"
IS_COMPILED = os.environ.get("NSQTW_COMPILE") == "1"
OPTIMIZATION = os.environ.get("NSQTW_COMPILE_LEVEL", "3")
"""Of the C compiler; 0 takes half the time, and is for tests."""
MARK = "# mypyc: compiled"
"""The line of a module that is compiled. A module with classes of attrs has none: mypyc does not know them."""


class BuildWithConnector(build_py):
    """
    Puts the connector for Spark beside the broker in a wheel, so that the extra `spark` is all it needs. An editable
    install has it from contrib/spark instead: a second place of packages would turn the path entry of this one into an
    import hook (see package_dir).
    """

    def finalize_options(self) -> None:
        super().finalize_options()
        if not self.editable_mode:
            inside = [f"{CONNECTOR}.{name}" for name in find_packages(f"contrib/spark/{CONNECTOR}")]
            self.packages = [*self.packages, CONNECTOR, *inside]
            self.package_dir[CONNECTOR] = f"contrib/spark/{CONNECTOR}"


def needed_to_compile() -> list[str]:
    """mypyc, and all that the modules import: it looks at that."""
    project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
    return [*project["optional-dependencies"]["mypy"], *project["dependencies"]]


def extensions():
    """The compiled modules. None while pip only asks what a build needs: mypyc is not there yet."""
    if not IS_COMPILED or not {"bdist_wheel", "build_ext"} & set(sys.argv):
        return []
    from mypyc.build import mypycify

    modules = [str(path) for path in Path("nsqtw").rglob("*.py") if MARK in path.read_text("utf-8").splitlines()]
    # One group: within it calls are C calls.
    return mypycify(sorted(modules), opt_level=OPTIMIZATION, group_name="nsqtw")


setup(
    # twisted.plugins is Twisted's own package: we put one file beside its plugins. An __init__.py in
    # twisted/ or twisted/plugins/ here would shadow all of Twisted.
    packages=[*find_packages(include=["nsqtw", "nsqtw.*"]), "twisted.plugins"],
    # Makes `pip install -e .` a plain path entry. Without it the install is an import hook, behind which
    # twistd does not find our plugin, and says nothing.
    package_dir={"": "."},
    cmdclass={"build_py": BuildWithConnector},
    ext_modules=extensions(),
    setup_requires=needed_to_compile() if IS_COMPILED else [],
)
