"""The readme as a package index shows it. Everything else about the package is in setup.cfg."""

import configparser
import re
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).parent


def for_the_index(readme: str, repository: str) -> str:
    """Let links lead into the repository: at an index nothing lies beside the readme."""

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['text']}]({repository}/{kind}/main/{link['target']})"

    return re.sub(r"(?P<picture>!?)\[(?P<text>[^]]*)\]\((?!\w+:|#)(?P<target>[^)\s]+)\)", absolute, readme)


if __name__ == "__main__":
    metadata = configparser.ConfigParser()
    metadata.read(HERE / "setup.cfg", encoding="utf-8")
    setup(
        long_description=for_the_index((HERE / "README.md").read_text("utf-8"), metadata["metadata"]["url"]),
        long_description_content_type="text/markdown",
    )
