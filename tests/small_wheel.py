"""A wheel that pip takes for drw_hf, without building the real one; it holds one module, ``told``."""

import zipfile


def make_wheel(folder, version="1.0"):
    """Write it into the folder, and return its path."""
    path = folder / f"drw_hf-{version}-py3-none-any.whl"
    info = f"drw_hf-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("told.py", "")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: drw_hf\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path
