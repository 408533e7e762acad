"""Documents that others wrote: how deep they may be nested, whatever another package did to Python's limits."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drw_hf.reading.files import _is_too_deep, parse_json

DEEPEST = 64
RAISED = "import sys; sys.setrecursionlimit(1_000_000); from drw_hf.reading.files import parse_json; "
HOSTILE = {
    "lists": '"[" * 10**6',
    "objects": """'{"a":' * 10**6""",
    "behind a string with brackets": """'["]]]", ' * 10**6""",
    "behind an escaped quote": r"""'["\\"]' + '[' * 10**6""",
    "in UTF-16": '("[" * 10**6).encode("utf-16")',
    "in UTF-16, behind a byte like a quote": """('["\\u2200", ' * 10**6).encode('utf-16')""",
    "a string without an end": r"""'"' + '\\"' * 10**6""",
}


@pytest.mark.parametrize("document", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_document_overflows_no_stack_where_python_s_limit_was_raised(document):
    command = RAISED + f"assert parse_json({document}) is None; print('none')"
    asked = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, timeout=60)
    assert asked.stdout == "none\n", asked.stderr[-300:]


def nested(depth):
    return "[" * depth + "]" * depth


@pytest.mark.parametrize("limit", [sys.getrecursionlimit(), 100_000])
def test_documents_are_read_to_the_same_depth_under_every_limit(limit):
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        assert parse_json(nested(DEEPEST)) is not None
        assert parse_json(nested(DEEPEST + 1)) is None
    finally:
        sys.setrecursionlimit(usual)


JSON = st.recursive(
    st.none() | st.integers() | st.text('[]{}"\\a∀') | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[{"\\'), inner, max_size=3),
)


@given(JSON, st.sampled_from(["utf-8", "utf-16", "utf-32"]), st.booleans())
def test_brackets_in_strings_nest_nothing(document, encoding, in_bytes):
    text = json.dumps([document] * 100, ensure_ascii=False)
    assert not _is_too_deep(text.encode(encoding) if in_bytes else text)
